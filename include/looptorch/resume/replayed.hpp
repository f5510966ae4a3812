// SPDX-License-Identifier: MIT
// The result of replaying a window from a bundle.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/loop/window_place.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace looptorch {

struct Replayed {
  std::filesystem::path bundle;
  WindowPlace place = {};                 ///< The window's number, epoch and batches.
  std::size_t update = 0;                 ///< In the Trainer's list.
  Finding finding = {};                   ///< Found by the replay.
  std::string then = {};                  ///< Found when the bundle was written, in sentences.
  bool was_bad = false;                   ///< Something was not finite then.
  bool same_bits = false;                 ///< Losses and gradients are those of then, bit for bit.
  std::vector<std::string> changed = {};  ///< Settings that differ from those of the bundle.

  /// True if all losses and gradients are finite now.
  [[nodiscard]] bool is_clean() const { return finding.cause == Finding::Cause::none; }

  /// Returns the outcome as sentences.
  [[nodiscard]] std::string text() const {
    std::string text = message("replayed ", place.text(), ": ");
    if (is_clean())
      text += was_bad ? message("the window is clean now. When it was kept: ", then)
                      : "all losses and gradients are finite, as when it was kept.";
    else
      text += finding.text();
    text += same_bits ? " Losses and gradients are those of then, bit for bit."
                      : " Losses or gradients differ from those of then.";
    for (std::size_t i = 0; i < changed.size(); ++i) text += (i ? "; " : " Other settings: ") + changed[i];
    return text;
  }
};

}  // namespace looptorch
