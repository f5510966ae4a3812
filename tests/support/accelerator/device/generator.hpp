// SPDX-License-Identifier: MIT
// Random numbers of a device: a seed and an offset, as CUDA's Philox has, in a state of 16 bytes. Each kernel
// draws from a CPU generator whose seed these two give.
#pragma once

#include "support/accelerator/accelerator.hpp"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace looptorch_test::accelerator {

/// Returns a device's generator; -1 is the current device.
[[nodiscard]] const at::Generator& default_generator(int device);
[[nodiscard]] at::Generator make_generator(int device);

/// Returns the seed for one kernel, and advances the generator: the given one, or that of the device.
[[nodiscard]] std::uint64_t draw_seed(const std::optional<at::Generator>& given, int device);

}  // namespace looptorch_test::accelerator
