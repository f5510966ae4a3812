// SPDX-License-Identifier: MIT
// A device's random generator: a seed and an offset, as CUDA's Philox has, in a state of 16 bytes. Each
// kernel draws from a CPU generator that is seeded from both.
#pragma once

#include "support/accelerator/accelerator.hpp"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace looptorch_test::accelerator {

/// Returns a device's generator; -1 is the current device.
[[nodiscard]] const at::Generator& default_generator(int device);
[[nodiscard]] at::Generator make_generator(int device);

/// Returns the state that a device's generator has now, which others may have in its place.
[[nodiscard]] std::shared_ptr<void> generator_state(int device);
/// Begins a capture, in which kernels draw from a state, or ends it; returns how far the capture has advanced
/// the state.
std::uint64_t mark_capturing(const std::shared_ptr<void>& state, bool capturing);
/// The offset of a state's next draw within the capture under way.
[[nodiscard]] std::uint64_t& offset_in_graph(const std::shared_ptr<void>& state);
/// Returns the seeds of kernels that draw at these offsets from a state, and advances it.
[[nodiscard]] std::vector<std::uint64_t> draw_at(const std::shared_ptr<void>& state,
                                                 const std::vector<std::uint64_t>& offsets,
                                                 std::uint64_t advance);

/// The seed for one kernel; of a kernel that is recorded, the number of its seed in each replay.
struct Seed {
  std::uint64_t value = 0;
  int recorded = -1;
};

/// Draws a seed from the given generator, or that of the device, and advances it; a recording does that
/// later.
[[nodiscard]] Seed draw_seed(const std::optional<at::Generator>& given, int device);

}  // namespace looptorch_test::accelerator
