// SPDX-License-Identifier: MIT
// A fit on several ranks: joins them, silences reports and snapshots on all but the leading rank, and tells
// the others if an exception ends the fit on one.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/optim/optimizer_state.hpp>

#include <c10/util/ScopeExit.h>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// The ranks of one fit while it lives.
template <class Engine>
class RankSession {
 public:
  explicit RankSession(Engine& engine) : engine_(engine) {
    engine.ranks().join(engine);
    if (!engine.ranks()) return;
    auto leave_on_error = c10::make_scope_exit([&engine] { engine.ranks().leave(); });
    const bool redoes =
        engine.stack().any_enabled([]<class P>() { return pieces_hook::template valid<P>(); });
    const bool in_backward = engine.stack().any_enabled([]<class P>() { return updates_in_backward<P>(); });
    if (!Engine::kStreams && engine.ranks()->shards() > 0)
      throw PolicyConflict(
          "DataParallel{.reproducible} sums the gradients of one update only, and this Trainer has several: "
          "switch it off");
    const bool in_step = engine.ranks()->shards() > 0 || engine.ranks()->syncs_batch_norm();
    if (in_backward || (redoes && in_step))
      throw PolicyConflict(
          in_backward
              ? "on several ranks UpdateInBackward would update before gradients are summed: list it or "
                "DataParallel, or switch one of them off by When"
              : "RetryOnOom does a micro-batch again on one rank, in pieces, where DataParallel{.reproducible} "
                "and BatchNormMode::sync have all ranks do the same: switch one of them off by When");
    if (!Engine::kStreams && engine.ranks()->syncs_batch_norm())
      throw PolicyConflict(
          "BatchNormMode::sync goes through the micro-batches of one update, and this Trainer has "
          "several: use GroupNorm or LayerNorm, or BatchNormMode::per_rank");
    share_optimizers();
    for (UpdateWork& work : engine.works()) work.weight.leave();
    engine.window().ranks_end = false;
    leave_on_error.release();
  }
  ~RankSession() {
    if (engine_.ranks() && !engine_.ranks()->leads()) engine_.stack().mute(false);
    engine_.ranks().leave();
  }
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

 private:
  /// Shards optimizers with their moments, if a policy asks for it.
  void share_optimizers() {
    if (!engine_.ranks()->shares_optimizers()) {
      if (!engine_.ranks().holds_parts()) return;
      throw UsageError(
          "an earlier fit shared the optimizers' moments out among the ranks (ShardOptimizer), and this one does "
          "not: list ShardOptimizer again, or resume from a snapshot in a new Trainer");
    }
    for_each_index<Engine::kUpdates>([&](auto i) {
      using Optimizer =
          std::remove_cvref_t<decltype(*std::declval<Engine&>().template update<i>().optimizer)>;
      if constexpr (SavesWhole<Optimizer> || !(SavesParameters<Optimizer> || LibTorchOptimizer<Optimizer>))
        throw PolicyConflict(
            message("ShardOptimizer cannot share out ", type_name<Optimizer>(),
                    ", which does not say what it keeps for each parameter: give it `state_of` "
                    "and `load_state_of`, or leave ShardOptimizer out"));
    });
    share_out_moments(engine_);
    serve_parts(engine_);
  }

  Engine& engine_;
};

/// Calls `body`, a whole fit, on the ranks that the policies give.
template <class Engine, class Body>
decltype(auto) with_ranks(Engine& engine, Body&& body) {
  const RankSession<Engine> joined(engine);
  const auto tell = [&](const char* what) {
    if (engine.ranks()) engine.ranks()->report_failure(what, engine.progress().step);
  };
  const auto end = [&](bool failed) {
    if (engine.ranks()) engine.ranks()->end_fit(failed);
  };
  try {
    auto result = body();
    end(/*failed=*/false);
    return result;
  } catch (const std::exception& error) {
    tell(error.what());
    end(/*failed=*/true);
    throw;
  } catch (...) {
    tell("an exception");
    end(/*failed=*/true);
    throw;
  }
}

}  // namespace looptorch::detail
