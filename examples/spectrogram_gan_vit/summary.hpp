// SPDX-License-Identifier: MIT
// Numbers for summary.json.
#pragma once

#include <looptorch/base/json/json.hpp>

#include <cmath>

namespace spectrogram_gan {

/// JSON has no NaN: what has no value, such as the loss of a player that waited all epoch long, is null.
[[nodiscard]] inline looptorch::Json finite_or_null(double value) {
  return std::isfinite(value) ? looptorch::Json(value) : looptorch::Json();
}

}  // namespace spectrogram_gan
