// SPDX-License-Identifier: MIT
// What a loader does with a sample that cannot be had, and how it tells. Use `OnError::skip` where a few
// damaged files among many must not end a night's run, and look at `loader.skipped()` afterwards.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// What becomes of an exception of a dataset or a collate.
enum class OnError {
  fail,  ///< LoaderError in place of the batch; the epoch ends
  skip,  ///< the sample is left out, its batch is smaller; a lack of memory and CUDA's errors still fail
};

/// What a dataset or a collate threw, with its place; the original exception is nested
/// (`std::rethrow_if_nested`).
struct LoaderError : Error {
  LoaderError(const std::string& what, std::int64_t in_epoch, std::int64_t in_batch, std::int64_t at_sample,
              std::string at_path = {})
      : Error(what), epoch(in_epoch), batch(in_batch), sample(at_sample), path(std::move(at_path)) {}
  std::int64_t epoch;
  std::int64_t batch;   ///< number of the batch in its epoch; -1 where a whole epoch failed
  std::int64_t sample;  ///< index in the dataset; -1 where a whole batch failed
  std::string path;     ///< the dataset's `path(sample)`; empty where it has none
};

/// A batch that did not come within `LoaderOptions::timeout`; `sample` is the one that its worker has had in
/// hand, -1 where that is none. The worker cannot be stopped: it and what it uses stay until the process
/// ends, and the dataset must outlive it.
struct LoaderTimeout : LoaderError {
  using LoaderError::LoaderError;
};

/// A sample that was left out.
struct SkippedSample {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< number of the batch in its epoch
  std::int64_t index = 0;  ///< in the dataset
  std::string path = {};   ///< the dataset's `path(index)`; empty where it has none
  std::string message = {};

  bool operator==(const SkippedSample&) const = default;
};

/// What a loader has left out since it was made, in the order of its batches.
struct SkippedSamples {
  static constexpr std::size_t kListed = 1000;

  std::int64_t count = 0;                 ///< all, in every epoch
  std::vector<SkippedSample> first = {};  ///< the first `kListed`

  void add(std::vector<SkippedSample>&& more) {
    count += std::ssize(more);
    for (SkippedSample& sample : more)
      if (first.size() < kListed) first.push_back(std::move(sample));
  }
};

}  // namespace looptorch
