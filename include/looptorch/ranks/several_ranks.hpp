// SPDX-License-Identifier: MIT
// Implements the loop's calls for training on several processes; read this header first. A Trainer has
// SeveralRanks if it lists DataParallel, or another policy with the hook `ranks`.
//
//   SeveralRanks  this header               what the Engine calls (loop/step/rank_calls.hpp) on several ranks
//   SoloRanks     loop/step/solo_ranks.hpp  these calls for one process, at no cost
//   Ranks         loop/ranks.hpp            the interface to other processes, which SeveralRanks calls
//   GroupRanks    distributed/group_ranks.hpp  implements Ranks, by c10d
//   RankSession   ranks/rank_session.hpp    for a fit: joins the ranks, and mutes those that do not lead
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/evaluate.hpp>
#include <looptorch/loop/step/rank_calls.hpp>
#include <looptorch/loop/step/solo_ranks.hpp>
#include <looptorch/loop/step/window.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>
#include <looptorch/ranks/gather_skipped.hpp>
#include <looptorch/ranks/in_lockstep.hpp>
#include <looptorch/ranks/rank_session.hpp>
#include <looptorch/ranks/rank_update.hpp>
#include <looptorch/ranks/reduce_finding.hpp>
#include <looptorch/ranks/reduce_fit.hpp>
#include <looptorch/ranks/reduce_window.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// The calls of loop/step/rank_calls.hpp for several processes, roughly in the order of that header, which
/// says what each returns. A call that takes more than a few lines is a function of the same name in this
/// room. While `ranks_` is null, each call does what SoloRanks does.
template <class Engine>
class SeveralRanks {
  using Solo = SoloRanks<Engine>;

 public:
  // ---- JoinsFits: access ----
  // The ranks of the fit under way; null outside of a fit and on one process.
  [[nodiscard]] Ranks* get() const { return ranks_; }
  Ranks* operator->() const { return ranks_; }
  explicit operator bool() const { return ranks_; }
  [[nodiscard]] bool leads() const { return !ranks_ || ranks_->leads(); }

  // ---- JoinsFits: the beginning and the end of a fit ----
  // Ranks agree on what they must have in common before the first window, and exchange skipped samples.

  /// Gets the ranks of a fit from the policies.
  void join(Engine& engine) {
    engine.stack().template each_with<ranks_hook>([&](auto& slot) {
      Ranks* given = ranks_hook::call(slot.policy, slot.state, std::as_const(engine.run()));
      if (given) ranks_ = given;
    });
    if (ranks_) engine.stack().template run<on_ranks_hook>(*ranks_);
  }
  void leave() { ranks_ = nullptr; }

  template <class Body>
  decltype(auto) run(Engine& engine, Body&& body) {
    return with_ranks(engine, std::forward<Body>(body));
  }

  void require_one_process(Engine& engine) {
    join(engine);
    const bool several = ranks_ != nullptr;
    leave();
    if (several)
      throw UsageError(
          "step() was called on several ranks, or with DataParallel{.reproducible}: they agree on windows in "
          "fit() only: call fit()");
  }

  template <class Batches, class Options>
  [[nodiscard]] std::optional<std::int64_t> plan_epochs(Engine& engine, Batches& batches,
                                                        const Options& options) {
    if (!ranks_) return batches.size();
    ranks_->plan_windows(engine.window_length());
    const auto most = agreed_batches(engine, batches.size(), text_of(options));
    batches.count_as(most);
    return most;
  }
  void mute(Engine& engine) {
    if (!leads()) engine.stack().mute(true);
  }
  /// Makes all ranks await the metrics that any rank awaits: a policy that waits for a metric may be muted on
  /// the others, but what follows from it, such as a batch that Validate tries, must be the same on all.
  void share_awaited_metrics(Engine& engine) {
    if (!ranks_) return;
    MetricBoard& board = engine.run().metrics();
    RankReduction reduction;
    std::map<std::string, double> awaited;
    for (const auto& [name, consumer] : board.awaited())
      reduction.max("awaited " + name + "\n" + consumer, awaited[name] = 1);
    ranks_->all_reduce(reduction, "the beginning of a fit");
    reduction.each_number("awaited ", [&](const std::string& of, double) {
      const std::size_t end = of.find('\n');
      board.await(of.substr(0, end), of.substr(end + 1));
    });
  }
  void gather_skipped(SkippedSamples& skipped) {
    if (ranks_) looptorch::detail::gather_skipped(*ranks_, skipped);
  }
  void fix_units(Engine& engine) {
    if (ranks_ && (ranks_->chunks() > 0 || ranks_->syncs_batch_norm()))
      for (UpdateWork& work : engine.works()) work.weight.fix_unit();
  }

  // ---- JoinsWindows: windows without a batch, and the last one ----
  // A rank takes part in every window of the others, so that none waits for it in vain.

  template <class Loop>
  [[nodiscard]] bool join_skipped_windows(Loop& loop, std::int64_t number) {
    if (!ranks_) return true;
    while (loop.skips_whole_window(number))
      if (!loop.join_empty_window(/*skipped=*/true)) return false;
    return true;
  }
  template <class Loop>
  [[nodiscard]] bool join_remaining_windows(Loop& loop) {
    if (!ranks_) return true;
    while (!loop.at_last_batch())
      if (!loop.join_empty_window(/*skipped=*/false)) return loop.ends_at_epoch();
    return true;
  }
  /// Within an epoch a rank stopped by a policy meets the others at the end of their next window, which then
  /// does not count. Between epochs they ask each other.
  template <class Loop, class Plan>
  [[nodiscard]] bool ends_fit(Engine& engine, Loop& loop, const Plan& plan) {
    if (!ranks_) return plan.ended(engine.run());
    if (plan.at_its_length(engine.run()) || engine.window().shared.fit_ends) return true;
    if (engine.progress().batch == 0) return reduce_end(engine), engine.run().is_to_end();
    if (!engine.run().stop_reason()) return false;
    loop.join_final_window();
    return true;
  }
  void reduce_end(Engine& engine) {
    if (ranks_) looptorch::detail::reduce_end(engine);
  }

  // ---- JoinsWindows: micro-batches ----
  // Forward and backward in lockstep with other ranks for SyncBN, and by chunks if the run is reproducible.

  template <class Differentiate>
  void join_micro_batch(Engine& engine, std::int64_t number, Differentiate&& differentiate) {
    run_in_lockstep(engine, number, [&] {
      if (ranks_ && ranks_->chunks() > 0)
        engine.works()[0].losses.enter_chunk(
            ranks_->enter_micro_batch(engine.run().updates()[0], engine.progress().step, number));
      differentiate();
    });
  }
  [[nodiscard]] bool is_lockstep(Engine& engine) { return looptorch::detail::is_lockstep(engine); }
  template <class Differentiate>
  void join_rerun_micro_batch(Engine& engine, std::int64_t number, Differentiate&& differentiate) {
    run_in_lockstep(engine, number, differentiate);
  }
  void wait_in_lockstep(Engine& engine) { looptorch::detail::wait_in_lockstep(engine); }

  // ---- JoinsWindows and JoinsUpdates: sums over all ranks ----
  // Losses, weights, vetoes and gradients as a window ends; dropped if the window is retried or abandoned.

  template <std::size_t I>
  void expect_sums(Engine& engine) {
    if (ranks_) looptorch::detail::expect_sums<I>(engine);
  }
  [[nodiscard]] bool reduce_window(Engine& engine) {
    if (!ranks_) return true;
    return engine.in_phase(RunPhase::update, "agreement",
                           [&] { return looptorch::detail::reduce_window(engine); });
  }
  template <std::size_t I>
  void reduce_update(Engine& engine) {
    if (ranks_) looptorch::detail::reduce_update<I>(engine);
  }
  template <std::size_t I>
  void reduce_overflow(Engine& engine, bool& overflowed, bool& loss_overflowed) {
    if (!ranks_) return;
    if constexpr (Engine::kStreams) wait_in_lockstep(engine);
    // Without a micro-batch in which to agree on buckets, as the others did, this rank does so here.
    if (ranks_->chunks() > 0 && engine.works()[I].due && engine.window().micro_batches == 0)
      (void)ranks_->enter_micro_batch(engine.run().updates()[I], engine.progress().step, 0);
    RankReduction reduction;
    reduction.any("overflowed", overflowed);
    reduction.any("loss_overflowed", loss_overflowed);
    ranks_->all_reduce(reduction,
                       message("the loss scale of update ", I + 1, " in step ", engine.progress().step));
  }
  void drop_sums(Engine& engine) {
    if (ranks_) ranks_->drop_sums();
    engine.window().shared.lockstep_turns = 0;
  }
  template <std::size_t I>
  void drop_parts(Engine& engine) {
    if (const OptimizerShards* here = shards<I>(engine)) drop_gradients(here->tensors());
  }

  // ---- JoinsUpdates: one update ----
  // Policies see the summed gradients; each rank moves its parameters, or its shard of them, and all ranks
  // report the same fault.

  template <std::size_t I>
  void before_update(Engine& engine, UpdateContext& context) {
    if (!ranks_) return engine.ask_before_update(context);
    show_gradients<I>(engine, context);
    ask_before_update(engine, context);
    reduce_veto(engine, context);
  }
  template <std::size_t I, class Move>
  std::optional<bool> move(Engine& engine, UpdateContext& context, const GradientScale& scale, Move&& move) {
    if (OptimizerShards* const here = shards<I>(engine))
      return move_shard<I>(engine, *here, context, scale, move);
    return Solo::template move<I>(engine, context, scale, move);
  }
  template <std::size_t I>
  [[nodiscard]] Finding agreed_finding(Engine& engine, Finding own) {
    if (!ranks_) return own;
    return reduce_finding(*ranks_, std::move(own), point_of_search(engine, I, "a second look"));
  }
  template <std::size_t I>
  [[nodiscard]] std::string agreed_sentence(Engine& engine, const Finding& finding, std::string own) {
    if (!ranks_) return own;
    return reduce_sentence(*ranks_, finding, std::move(own), point_of_search(engine, I, "the report"));
  }
  template <std::size_t I>
  void reduce_error(Engine& engine) {
    UpdateWork& work = engine.works()[I];
    if (ranks_ && work.found.finding)
      looptorch::detail::reduce_error(*ranks_, engine.run().updates()[I].name, work, engine.window().origin,
                                      point_of_search(engine, I, "the error"));
  }

  // ---- JoinsUpdates: sharded moments, and evaluations ----

  template <std::size_t I>
  [[nodiscard]] OptimizerShards* shards(const Engine& engine) const {
    using Optimizer = std::remove_cvref_t<decltype(*engine.template update<I>().optimizer)>;
    if (!ranks_ || !ranks_->shards_optimizers()) return nullptr;
    return &ranks_->shards_of(*engine.run().updates()[I].optimizer, updates_by_element<Optimizer>());
  }
  [[nodiscard]] bool& has_sharded_moments() { return has_sharded_moments_; }

  template <class Measure>
  [[nodiscard]] Evaluation evaluation(Engine& engine, EvaluationSums& sums, Measure& measure) {
    return ranks_ ? evaluation_of_ranks(engine, sums, measure) : own_evaluation(sums, measure);
  }

 private:
  Ranks* ranks_ = nullptr;            // of the fit under way
  bool has_sharded_moments_ = false;  // moments are sharded, also after the fit
};

}  // namespace looptorch::detail
