// SPDX-License-Identifier: MIT
// Declares the errors of a loader, and `OnError`, the choice between failing and skipping. Use
// `OnError::skip` if a few damaged files among many must not end a long run, and check `loader.skipped()`
// afterwards.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// The treatment of an exception from a dataset or a collate.
enum class OnError {
  fail,  ///< throws LoaderError instead of the batch; the epoch ends
  skip,  ///< skips the sample, so its batch is smaller; lack of memory and CUDA's errors still fail
};

/// Thrown for an exception from a dataset or a collate, with the sample's position. The original exception is
/// nested (`std::rethrow_if_nested`).
struct LoaderError : Error {
  LoaderError(const std::string& what, std::int64_t in_epoch, std::int64_t in_batch, std::int64_t at_sample,
              std::string at_path = {})
      : Error(what), epoch(in_epoch), batch(in_batch), sample(at_sample), path(std::move(at_path)) {}
  std::int64_t epoch;
  std::int64_t batch;   ///< number of the batch in its epoch; -1 if a whole epoch failed
  std::int64_t sample;  ///< index in the dataset; -1 if a whole batch failed
  std::string path;     ///< the dataset's `path(sample)`; empty if it has none
};

/// Thrown for a batch that did not arrive within `LoaderOptions::timeout`. `sample` is the one that its
/// worker was processing, or -1. The worker cannot be stopped: it and everything it uses stay until the
/// process ends, and the dataset must outlive it.
struct LoaderTimeout : LoaderError {
  using LoaderError::LoaderError;
};

/// A sample that was skipped.
struct SkippedSample {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< number of the batch in its epoch
  std::int64_t index = 0;  ///< index in the dataset
  std::string path = {};   ///< the dataset's `path(index)`; empty if it has none
  std::string message = {};

  bool operator==(const SkippedSample&) const = default;
};

/// The samples that a loader has skipped since it was made, in the order of its batches.
struct SkippedSamples {
  static constexpr std::size_t kListed = 1000;

  std::int64_t count = 0;                 ///< number in all epochs
  std::vector<SkippedSample> first = {};  ///< the first `kListed`

  void add(std::vector<SkippedSample>&& more) {
    count += std::ssize(more);
    for (SkippedSample& sample : more)
      if (first.size() < kListed) first.push_back(std::move(sample));
  }
};

}  // namespace looptorch
