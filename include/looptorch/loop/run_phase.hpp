// SPDX-License-Identifier: MIT
// Names the parts of a step, such as data, forward and backward. The loop announces each part to the policies
// that measure or record time.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace looptorch {

class Run;

/// The parts of a step by which a run's time is counted. Phases may nest, as an evaluation within `update`:
/// time counts for the innermost.
enum class RunPhase {
  data,        ///< fetching a batch from the range: waiting for a loader
  forward,     ///< forward passes and losses, in training
  backward,    ///< differentiation
  update,      ///< reductions over ranks, clipping, optimizers, and hooks at a window's end
  evaluation,  ///< evaluations, with their data
  snapshot,    ///< taking a snapshot, and waiting for the one before
  other,       ///< everything else, as copying batches to a device
};
inline constexpr std::array<std::string_view, 7> kRunPhases = {"data",       "forward",  "backward", "update",
                                                               "evaluation", "snapshot", "other"};

/// A phase that begins.
struct PhaseContext {
  static constexpr std::size_t kNoUpdate = static_cast<std::size_t>(-1);

  const Run& run;
  RunPhase phase;
  std::string_view name;           ///< for display: "data wait", "window end"
  std::size_t update = kNoUpdate;  ///< the index of the update that it belongs to
};

/// The call of a policy's hook.
struct HookContext {
  std::string_view policy;  ///< its type's name
  std::string_view hook;
};

}  // namespace looptorch
