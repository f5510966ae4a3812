// SPDX-License-Identifier: MIT
// Keeps the device under test busy.
#pragma once

#include "support/precompiled.hpp"

#include "support/device.hpp"

namespace looptorch::testing {

/// Keeps the current stream busy.
struct Work {
  at::Tensor matrix =
      is_simulated() ? torch::ones({4, 4}, test_device()) : torch::ones({4096, 4096}, test_device());
  void operator()(int products) const {
    for (int i = 0; i < products; ++i) at::mm(matrix, matrix);
  }
};

}  // namespace looptorch::testing
