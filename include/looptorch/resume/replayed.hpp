// SPDX-License-Identifier: MIT
// Defines Replayed, the result of `replay` (replay.hpp): which window ran again, what made its NaN if it has
// one, and whether losses and gradients equal the recorded ones bit for bit.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/loop/window_place.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace looptorch {

/// The result of `replay`: a bundle's window run again, and what was recorded when the bundle was written.
struct Replayed {
  std::filesystem::path bundle;
  WindowPlace place = {};             ///< The window's number, epoch and batches.
  std::size_t update = 0;             ///< Its index in the Trainer's list.
  Finding finding = {};               ///< Found by the replay.
  std::string recorded_finding = {};  ///< Found when the bundle was written, in sentences.
  bool was_bad = false;               ///< True if something was not finite when the bundle was written.
  bool same_bits = false;             ///< True if losses and gradients equal the recorded ones, bit for bit.
  std::vector<std::string> changed = {};  ///< Settings that differ from those of the bundle.

  /// True if all losses and gradients are finite now.
  [[nodiscard]] bool is_clean() const { return finding.cause == Finding::Cause::none; }

  /// Returns the outcome as sentences.
  [[nodiscard]] std::string text() const {
    std::string text = message("replayed ", place.text(), ": ");
    if (is_clean())
      text += was_bad ? message("the window is clean now. When it was kept: ", recorded_finding)
                      : "all losses and gradients are finite, as when it was kept.";
    else
      text += finding.text();
    text += same_bits ? " Losses and gradients match the recorded window bit for bit."
                      : " Losses or gradients differ from the recorded window.";
    for (std::size_t i = 0; i < changed.size(); ++i) text += (i ? "; " : " Other settings: ") + changed[i];
    return text;
  }
};

}  // namespace looptorch
