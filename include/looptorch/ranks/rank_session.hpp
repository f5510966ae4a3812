// SPDX-License-Identifier: MIT
// Begins and ends a fit on several ranks: gets the interface to the ranks from a policy such as DataParallel,
// refuses policies that cannot run on several ranks, and shards optimizers. If an exception ends the fit on
// this rank, tells the other ranks. A RankSession lives for a whole fit (loop/step/fit_loop.hpp).
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/loop/compose/rules.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>

#include <c10/util/ScopeExit.h>

#include <exception>
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
    require_policies_for_ranks();
    shard_optimizers();
    for (UpdateWork& work : engine.works()) work.weight.leave();
    engine.window().shared.fit_ends = false;
    leave_on_error.release();
  }
  ~RankSession() {
    if (engine_.ranks() && !engine_.ranks()->leads()) engine_.stack().mute(false);
    engine_.ranks().leave();
  }
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

 private:
  /// Throws PolicyConflict if policies that are on do not work on several ranks.
  void require_policies_for_ranks() {
    const Ranks& ranks = *engine_.ranks().get();
    const auto is_on = [&](auto has) { return engine_.stack().any_enabled(has); };
    const bool splits = is_on([]<class P>() { return pieces_hook::template valid<P>(); });
    if (!Engine::kStreams && ranks.chunks() > 0)
      throw PolicyConflict(
          "DataParallel{.reproducible} sums the gradients of one update only, and this Trainer has several: "
          "switch it off");
    if (is_on([]<class P>() { return updates_in_backward<P>(); }))
      throw PolicyConflict(
          "on several ranks UpdateInBackward would update before gradients are summed: list it or "
          "DataParallel, or switch one of them off by When");
    if (splits && (ranks.chunks() > 0 || ranks.syncs_batch_norm()))
      throw PolicyConflict(
          "RetryOnOom reruns a micro-batch on one rank, in pieces, where DataParallel{.reproducible} and "
          "BatchNormMode::sync need all ranks in it: switch one of them off by When");
    if (!Engine::kStreams && ranks.syncs_batch_norm())
      throw PolicyConflict(
          "BatchNormMode::sync goes through the micro-batches of one update, and this Trainer has "
          "several: use GroupNorm or LayerNorm, or BatchNormMode::per_rank");
  }
  /// Shards optimizers with their moments, if a policy asks for it.
  void shard_optimizers() {
    if (!engine_.ranks()->shards_optimizers()) {
      if (!engine_.ranks().has_sharded_moments()) return;
      throw UsageError(
          "an earlier fit sharded the optimizers' moments (ShardOptimizer), and this one does "
          "not: list ShardOptimizer again, or resume from a snapshot in a new Trainer");
    }
    for_each_index<Engine::kUpdates>([&](auto i) {
      using Optimizer =
          std::remove_cvref_t<decltype(*std::declval<Engine&>().template update<i>().optimizer)>;
      if constexpr (SavesWhole<Optimizer> || !(SavesParameters<Optimizer> || LibTorchOptimizer<Optimizer>))
        throw PolicyConflict(
            message("ShardOptimizer cannot shard ", type_name<Optimizer>(),
                    ", which does not say what it keeps for each parameter: give it `state_of` "
                    "and `load_state_of`, or leave ShardOptimizer out"));
    });
    shard_moments(engine_);
    serve_shards(engine_);
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
