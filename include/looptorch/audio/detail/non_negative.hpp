// SPDX-License-Identifier: MIT
// Whether a tensor can be power or magnitudes.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>

namespace looptorch::audio::detail {

/// Whether all values are finite and at least 0; waits for the device.
inline bool is_non_negative(const at::Tensor& values) {
  const at::Tensor finite = values.lt(std::numeric_limits<double>::infinity());
  return values.ge(0).logical_and_(finite).all().item<bool>();
}

}  // namespace looptorch::audio::detail
