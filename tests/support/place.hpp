// SPDX-License-Identifier: MIT
// The device of a unit test's tensors, `place()`. A test that makes its tensors there, and says "Runs on
// every device" in its first lines, runs twice: on the CPU with the unit tests, and on the device under test
// with those of tests/device.
#pragma once

#include "support/precompiled.hpp"

namespace looptorch::testing {

/// The device of the test's tensors. A program of device tests sets it before its first case.
inline at::Device& place() {
  static at::Device place = at::kCPU;
  return place;
}

/// Returns a tensor at `place()`: a copy, or the tensor itself if it is there.
inline at::Tensor placed(const at::Tensor& tensor) { return tensor.to(place()); }

}  // namespace looptorch::testing
