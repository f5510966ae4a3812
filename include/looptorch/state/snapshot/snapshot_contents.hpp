// SPDX-License-Identifier: MIT
// Defines SnapshotContents, the state of a whole run in memory: what is written to a snapshot, and what
// reading one returns. Include snapshot.hpp instead.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace looptorch {

/// Everything that a training run needs to resume. Tensors are handles, on any device, strided, contiguous or
/// not. Names that share one tensor, as tied weights do, share one tensor again after reading.
struct SnapshotContents {
  /// Optimizer steps taken so far; names the snapshot's folder.
  std::int64_t step = 0;
  /// The model's parameters and buffers, as `state_dict(module)` gives them.
  TensorMap model{};
  /// The averaged weights under the same names; empty where none are kept.
  TensorMap averaged{};
  /// The optimizers' moments, steps and options.
  StateDict optimizer{};
  /// Everything else: policies, loader, random generators, counters.
  StateDict state{};
  /// Files that other ranks have written for this snapshot, each with the shard of `optimizer` that its rank
  /// holds. write_snapshot moves them into it. Empty in contents that were read, which are whole.
  std::vector<std::filesystem::path> shards{};
};

}  // namespace looptorch
