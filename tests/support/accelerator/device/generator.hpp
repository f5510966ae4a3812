// SPDX-License-Identifier: MIT
// A device's random generator: a seed and an offset, as CUDA's Philox has, in a state of 16 bytes. Each
// kernel draws from a CPU generator that is seeded from both.
#pragma once

#include "support/accelerator/accelerator.hpp"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace looptorch_test::accelerator {

/// Returns a device's generator; -1 is the current device.
[[nodiscard]] const at::Generator& default_generator(int device);
[[nodiscard]] at::Generator make_generator(int device);

/// Returns the state that a device's generator has now, which others may have in its place.
[[nodiscard]] std::shared_ptr<void> generator_state(int device);
/// Lets kernels draw from a state in a capture, or outside of one.
void mark_capturing(const std::shared_ptr<void>& state, bool capturing);

/// The seed for one kernel; of a kernel that is recorded, the number of its seed in each replay.
struct Seed {
  std::uint64_t value = 0;
  int recorded = -1;
};

/// Draws a seed from the given generator, or that of the device, and advances it; a recording does that
/// later.
[[nodiscard]] Seed draw_seed(const std::optional<at::Generator>& given, int device);

}  // namespace looptorch_test::accelerator
