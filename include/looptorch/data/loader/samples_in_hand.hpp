// SPDX-License-Identifier: MIT
// Which sample the worker of each batch is at: what a timeout tells. Kept only where there is a timeout; a
// lock and a look-up a sample. Free of torch.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace looptorch::detail {

class SamplesInHand {
 public:
  void begin(std::int64_t batch, std::int64_t sample) {
    const std::lock_guard lock(mutex_);
    samples_[batch] = sample;
  }

  void end(std::int64_t batch) {
    const std::lock_guard lock(mutex_);
    samples_.erase(batch);
  }

  /// -1 where it is at none: not begun, or past them.
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
