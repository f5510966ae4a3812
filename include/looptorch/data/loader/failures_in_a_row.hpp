// SPDX-License-Identifier: MIT
// Limits how many samples may fail one after the other. Without a limit, training would wait forever for a
// batch of an endless stream whose samples all fail.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/loader_error.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace looptorch::detail {

class FailuresInARow {
 public:
  /// Resets the count.
  void clear() {
    count_ = 0;
    last_.clear();
  }

  void add(const std::vector<SkippedSample>& skipped) {
    count_ += std::ssize(skipped);
    for (const SkippedSample& sample : skipped) {
      last_.push_back(sample);
      if (last_.size() > kListed) last_.erase(last_.begin());
    }
  }

  /// True if the limit is reached.
  [[nodiscard]] bool too_many() const { return count_ >= kMost; }

  /// Throws LoaderError that lists the last failures.
  [[noreturn]] void throw_error() const {
    const SkippedSample& end = last_.back();
    std::string last;
    for (const SkippedSample& sample : last_)
      last += message("; sample ", sample.index, ": ", sample.message);
    throw LoaderError(message(count_, " samples in a row failed in epoch ", end.epoch,
                              ", with no batch between; the last of them", last),
                      end.epoch, end.batch, end.index, end.path);
  }

 private:
  static constexpr std::int64_t kMost = 1000;
  static constexpr std::size_t kListed = 3;

  std::int64_t count_ = 0;
  std::vector<SkippedSample> last_;
};

}  // namespace looptorch::detail
