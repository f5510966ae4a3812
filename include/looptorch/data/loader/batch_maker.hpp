// SPDX-License-Identifier: MIT
// Makes one batch of samples: collects them, skips or reports failures as the options say, collates and pins.
// Shared by datasets and streams.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/loader_options.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A worker's result.
template <class Batch>
struct MadeBatch {
  std::optional<Batch> batch = {};          ///< empty if no sample is left
  std::vector<std::int64_t> indices = {};   ///< the samples, if they are not those planned
  std::vector<SkippedSample> skipped = {};  ///< skipped samples in the order of their failures
  bool as_planned = true;
  bool end = false;  ///< a stream's end: neither this batch nor a later one exists
  std::shared_ptr<const StateDict> stream = {};  ///< a stream's position after this batch, if it has one
};

/// Throws if the batch is no longer needed. The exception never reaches the user.
inline void throw_if_stopped(const std::stop_token& stop) {
  if (stop.stop_requested()) throw UsageError("PinnedPrefetchLoader: this epoch was cancelled");
}

/// Returns the dataset's path of a sample, or an empty text. Never throws.
template <class Set>
std::string path_of(const Set& dataset, std::int64_t index) noexcept {
  if constexpr (LocatedDataset<Set>) {
    try {
      return std::filesystem::path(dataset.path(index)).string();
    } catch (...) {  // the sample's own error is the one to report
    }
  }
  return {};
}

/// True for errors that are not the sample's fault: a lack of memory, and errors of the accelerator, many of
/// which recur in every later call.
inline bool is_run_error(const std::exception_ptr& thrown) {
  if (is_out_of_memory(thrown)) return true;
  try {
    std::rethrow_exception(thrown);
  } catch (const AcceleratorError&) {
    return true;
  } catch (const c10::Error& error) {  // some of CUDA's checks throw just this type
    return std::string_view(error.what_without_backtrace()).find("CUDA error: ") != std::string_view::npos;
  } catch (...) {
    return false;
  }
}

/// Returns a tensor's copy in page-locked memory, or the tensor itself if it lies there. Copies an expanded
/// tensor first: `pin_memory` would write some of its elements several times, which LibTorch refuses.
inline at::Tensor in_pinned_memory(const at::Tensor& tensor) {
  const bool repeats = !tensor.is_nested() && !tensor.is_non_overlapping_and_dense() && !tensor.is_pinned();
  return (repeats ? tensor.contiguous() : tensor).pin_memory();
}

/// True if this process has used its accelerator. A loader must not create a context.
inline bool uses_accelerator() {
  static std::atomic<bool> known = false;
  if (!known && !accelerators_in_use().empty()) known = true;
  return known;
}

template <class Sample, class Batch>
class BatchMaker {
 public:
  BatchMaker(const LoaderOptions& options, BatchMemoryPool& pool, std::int64_t epoch, std::int64_t number)
      : options_(options),
        pool_(pool),
        pins_(options.pin ? *options.pin && accelerator_here() : uses_accelerator()),
        epoch_(epoch),
        number_(number) {}

  void reserve(std::size_t samples) {
    samples_.reserve(samples);
    indices_.reserve(samples);
  }

  /// Adds the result of `get` as sample `index`. `path` returns the sample's file and is called only after a
  /// failure.
  template <class Get, class Path>
  void add(std::int64_t index, const Get& get, const Path& path) {
    try {
      samples_.push_back(get());
      indices_.push_back(index);
    } catch (...) {
      const std::exception_ptr thrown = std::current_exception();
      skips(thrown) ? skip(index, path(), what_of(thrown)) : throw_with(index, path(), what_of(thrown));
    }
  }

  /// Returns the result, without a batch if there is no sample. `path` is called for the samples of a batch
  /// that is skipped.
  template <class Collate, class Path>
  MadeBatch<Batch> finish(const Collate& collate, const Path& path) {
    MadeBatch<Batch> made;
    if (!samples_.empty())
      if (std::optional<Batch> batch = collated(collate, path)) made.batch.emplace(std::move(*batch));
    made.as_planned = skipped_.empty();
    made.indices = std::move(indices_);
    made.skipped = std::move(skipped_);
    return made;
  }

 private:
  bool skips(const std::exception_ptr& thrown) const {
    return options_.on_error == OnError::skip && !is_run_error(thrown);
  }

  void skip(std::int64_t index, std::string path, std::string what) {
    skipped_.push_back({epoch_, number_, index, std::move(path), std::move(what)});
  }

  [[noreturn]] void throw_with(std::int64_t index, std::string path, const std::string& what) const {
    const std::string place = path.empty() || what.find(path) != what.npos ? "" : path + ", ";
    std::throw_with_nested(LoaderError(
        message("sample ", index, " (", place, "epoch ", epoch_, ", batch ", number_, "): ", what), epoch_,
        number_, index, std::move(path)));
  }

  template <class Collate, class Path>
  std::optional<Batch> collated(const Collate& collate, const Path& path) {
    std::optional<Batch> batch;
    try {
      const SlotScope slot(pool_, pins_);
      batch.emplace(collate(std::span<Sample>(samples_)));
    } catch (...) {
      const std::exception_ptr thrown = std::current_exception();
      const std::string what = message("batch ", number_, " of epoch ", epoch_, " (samples ", list(indices_),
                                       ") could not be collated: ", what_of(thrown));
      if (!skips(thrown)) std::throw_with_nested(LoaderError(what, epoch_, number_, -1));
      for (const std::int64_t index : std::exchange(indices_, {})) skip(index, path(index), what);
      return std::nullopt;
    }
    pin(*batch);
    return batch;
  }

  void pin([[maybe_unused]] Batch& batch) const {
    if constexpr (BatchLike<Batch>) {
      if (!pins_) return;
      try {
        for_each_tensor(batch, [](at::Tensor& tensor) {
          if (tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided)
            tensor = in_pinned_memory(tensor);  // no copy if the collate used a slot
        });
      } catch (...) {
        std::throw_with_nested(LoaderError(
            message("batch ", number_, " of epoch ", epoch_,
                    " could not be copied into page-locked memory: ", what_of(std::current_exception())),
            epoch_, number_, -1));
      }
    }
  }

  static std::string list(std::span<const std::int64_t> indices) {
    constexpr std::size_t kShown = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(indices.size(), kShown); ++i)
      text += (i ? ", " : "") + std::to_string(indices[i]);
    return indices.size() > kShown ? text + ", ..." : text;
  }

  const LoaderOptions& options_;
  BatchMemoryPool& pool_;
  const bool pins_;
  const std::int64_t epoch_;
  const std::int64_t number_;
  std::vector<Sample> samples_;
  std::vector<std::int64_t> indices_;
  std::vector<SkippedSample> skipped_;
};

}  // namespace looptorch::detail
