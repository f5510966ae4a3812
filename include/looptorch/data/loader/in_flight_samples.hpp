// SPDX-License-Identifier: MIT
// Records for each batch which sample its worker has reached, so that the message of a timeout can name that
// sample. The loader records only if `timeout` is set; this costs a lock and a look-up per sample. Includes
// nothing of LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace looptorch::detail {

class InFlightSamples {
 public:
  void begin(std::int64_t batch, std::int64_t sample) {
    const std::lock_guard lock(mutex_);
    samples_[batch] = sample;
  }

  void end(std::int64_t batch) {
    const std::lock_guard lock(mutex_);
    samples_.erase(batch);
  }

  /// Returns the sample that batch `batch` is at; -1 if it has not begun or is past its samples.
  [[nodiscard]] std::int64_t of(std::int64_t batch) const {
    const std::lock_guard lock(mutex_);
    const auto found = samples_.find(batch);
    return found == samples_.end() ? -1 : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> samples_;
};

}  // namespace looptorch::detail
