// SPDX-License-Identifier: MIT
// Shards optimizers over the ranks of DataParallel (ZeRO, stage 1: https://arxiv.org/abs/1910.02054). Use it
// when moments fill the memory: each rank holds only its part, so their memory is divided by the number of
// ranks. Each rank updates its shard of the parameters, and then gathers the others' shards. Results equal
// those of a run without it. Does nothing on one process.
//
//   Trainer trainer(net, optimizer, objective, DataParallel{}, ShardOptimizer{});
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/rank_environment.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/resume_rule.hpp>

namespace looptorch {

/// Each rank's optimizers update a part of the parameters. Snapshots hold all shards, and resume on any
/// number of ranks, with or without this policy.
struct ShardOptimizer {
  static constexpr Phase phase = Phase::prepare;
  static constexpr ResumeRule resume_rule = ResumeRule::always;

  struct State {
    bool is_sharded = false;  ///< True in a fit on several ranks.
  };

  void on_ranks(Ranks& ranks, State& state) const {
    ranks.shard_optimizers();
    state.is_sharded = ranks.shards_optimizers();
  }

  /// Throws UsageError if several ranks train without DataParallel.
  void on_fit_begin(FitContext&, State& state) const {
    if (!state.is_sharded && rank_environment().size > 1)
      throw UsageError("ShardOptimizer shards optimizers over the ranks of DataParallel: list that, too");
  }
};

}  // namespace looptorch
