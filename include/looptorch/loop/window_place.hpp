// SPDX-License-Identifier: MIT
// Describes where a window is in its run, for errors and reports: its step, batches and, where known,
// samples.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace looptorch {

/// A window, or one micro-batch of it.
struct WindowPlace {
  std::int64_t step = 0;                   ///< Index of the window, from 0.
  std::int64_t epoch = 0;                  ///< Index of the epoch, from 0.
  std::int64_t first_batch = -1;           ///< In its epoch, from 0; -1 in `Trainer::step`.
  std::int64_t last_batch = -1;            ///< The same of the last batch.
  std::vector<std::int64_t> samples = {};  ///< Dataset indices, where the range's iterator has `indices()`.
  std::string elsewhere = {};              ///< The sentence of another rank, if the fault is there.

  /// Returns "step 3, batch 6 to 7 of epoch 0 (samples 12, 13)", as far as it is known; at most 16 samples.
  [[nodiscard]] std::string text() const {
    std::string text = message("step ", step);
    if (first_batch >= 0)
      text += message(", batch ", first_batch, last_batch > first_batch ? message(" to ", last_batch) : "",
                      " of epoch ", epoch);
    return samples.empty() ? text : text + message(" (samples ", sample_text(), ")");
  }

 private:
  [[nodiscard]] std::string sample_text() const {
    constexpr std::size_t kShown = 16;
    std::string text;
    for (std::size_t i = 0; i < std::min(samples.size(), kShown); ++i)
      text += (i ? ", " : "") + std::to_string(samples[i]);
    return samples.size() > kShown ? text + ", ..." : text;
  }
};

}  // namespace looptorch
