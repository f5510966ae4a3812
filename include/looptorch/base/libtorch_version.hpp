// SPDX-License-Identifier: MIT
// Checks that LibTorch is 2.7 or newer, and names the differences between versions that matter to looptorch's
// code. Differences that concern devices are in base/device/older_libtorch.hpp.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/version.h>

/// 1 if LibTorch is 2.9 or newer, else 0.
#define LOOPTORCH_LIBTORCH_2_9 (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9)

static_assert(TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 7,
              "looptorch: LibTorch is older than 2.7. Install a newer one. See docs/packaging.md");

namespace looptorch::detail {

/// True if autocast caches casts of weights made with gradients apart from those made without. False before
/// 2.11, which was not tested.
inline constexpr bool kCastsKnowGradients = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11;

/// The type of two packed 4-bit floats. An older LibTorch can only hold their bits.
#if LOOPTORCH_LIBTORCH_2_9
inline constexpr at::ScalarType kFloat4 = at::kFloat4_e2m1fn_x2;
#else
inline constexpr at::ScalarType kFloat4 = at::kBits4x2;
#endif

}  // namespace looptorch::detail
