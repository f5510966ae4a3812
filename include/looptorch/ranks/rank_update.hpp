// SPDX-License-Identifier: MIT
// Makes an update on several ranks, after the gradients have been summed. A veto on one rank becomes a veto
// on all. With a sharded optimizer, policies see the gradients of this rank's shard, or all gradients in a
// `reproducible` run. Then each rank updates its own shard of the parameters, and gathers the others' shards.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/policy_states.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

namespace looptorch::detail {

/// Lets before_update see the gradients that this rank has: all gradients, or its shard's.
template <std::size_t I, class Engine>
void show_gradients(Engine& engine, UpdateContext& context) {
  if (const OptimizerShards* shards = engine.template shards<I>(); shards && engine.ranks()->scatters())
    UpdateAccess::show_shards(context, *engine.ranks().get(), shards->tensors());
}

/// Runs the policies' before_update.
template <class Engine>
void ask_before_update(Engine& engine, UpdateContext& context) {
  if (!context.sees_shard()) return engine.ask_before_update(context);
  engine.unscale(context);
  engine.stack().template each_with<before_update_hook>([&](auto& slot) {
    using P = typename std::remove_reference_t<decltype(slot)>::Policy;
    UpdateAccess::set_reader(context, shard_aware<P>() ? std::string() : policy_name<P>());
    engine.stack().template call<before_update_hook>(slot, context);
  });
  UpdateAccess::set_reader(context, {});
}

/// True if a listed policy may veto an update on one rank alone.
template <class Stack>
inline constexpr bool kVetoesAlone = Stack::any_listed([]<class P>() {
  return before_update_hook::template valid<P>() && !veto_is_rank_invariant<P>();
});

/// Extends a veto or a refusal on one rank to all. Costs a small collective, and on a device a wait, if a
/// listed policy may veto and does not declare `veto_is_rank_invariant`.
template <class Engine>
void reduce_veto([[maybe_unused]] Engine& engine, [[maybe_unused]] UpdateContext& context) {
  if constexpr (kVetoesAlone<typename Engine::PolicyStack>) {
    bool refused = context.refusal().read();
    bool vetoed = context.vetoed() || is_set(context.found_inf());
    RankReduction reduction;
    reduction.any("refused", refused);
    reduction.any("vetoed", vetoed);
    engine.ranks()->all_reduce(reduction, message("the end of step ", engine.progress().step,
                                                  " (vetoes of update ", context.index() + 1, ")"));
    UpdateAccess::take_agreed(context, vetoed, refused);
  }
}

/// Calls `move(optimizer, context, scale)` on this rank's shard of update I, then gathers the other shards.
/// `move` returns whether parameters moved, or nothing if only the device knows.
template <std::size_t I, class Engine, class Move>
std::optional<bool> move_shard(Engine& engine, OptimizerShards& shards, UpdateContext& context,
                               const GradientScale& scale, Move&& move) {
  auto& optimizer = *engine.template update<I>().optimizer;
  std::optional<bool> made;
  {
    const ShardsInGroups held(optimizer, shards, /*lends_gradients=*/!engine.ranks()->scatters());
    made = move(optimizer, context, scale);
  }
  drop_gradients(shards.tensors());
  if (made.value_or(true)) engine.ranks()->gather(engine.run().updates()[I]);
  return made;
}

}  // namespace looptorch::detail
