// SPDX-License-Identifier: MIT
// Returns the dtype in which at::linear would compute, under autocast or without. Layers and losses that
// replace at::linear by code of their own compute in this dtype.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace looptorch::detail {

/// Returns the type in which a matmul of this input computes: under autocast its 16-bit type (fp64 stays
/// fp64), else the input's own.
[[nodiscard]] inline at::ScalarType matmul_type(const at::Tensor& input) {
  const auto device = input.device().type();
  const bool casts = at::autocast::is_autocast_available(device) &&
                     at::autocast::is_autocast_enabled(device) && input.scalar_type() != at::kDouble;
  return casts ? at::autocast::get_autocast_dtype(device) : input.scalar_type();
}

}  // namespace looptorch::detail
