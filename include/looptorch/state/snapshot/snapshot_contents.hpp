// SPDX-License-Identifier: MIT
// What a snapshot holds, in memory. Include snapshot.hpp.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/state/weights/safetensors_layout.hpp>

#include <cstdint>

namespace looptorch {

/// Everything that a training run needs to go on. Tensors are handles: of any device, strided, contiguous or
/// not; names of one tensor, as tied weights have them, come back as names of one tensor.
struct SnapshotContents {
  /// Optimizer steps taken so far; names the snapshot's folder.
  std::int64_t step = 0;
  /// The model's parameters and buffers, as `state_dict(module)` gives them.
  TensorMap model{};
  /// The same of averaged weights; empty where none are kept.
  TensorMap averaged{};
  /// The optimizers' moments, steps and options.
  StateDict optimizer{};
  /// All else: policies, loader, random generators, counters.
  StateDict state{};
};

}  // namespace looptorch
