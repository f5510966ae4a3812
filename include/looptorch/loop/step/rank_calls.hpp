// SPDX-License-Identifier: MIT
// Lists, as concepts, each call that the loop makes to involve the run's other processes. SoloRanks
// (solo_ranks.hpp) implements these calls for one process, at no cost. SeveralRanks (ranks/several_ranks.hpp)
// implements them for a Trainer that lists a policy such as DataParallel.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

namespace looptorch::detail {

class EvaluationSums;

/// Placeholder in these concepts for the calls' template arguments. Each is named after what the loop passes:
/// the fit's `batches`, `options`, `loop` and `plan`, a `measure`, and the callbacks `run` (forward and
/// backward of a micro-batch) and `move` (an optimizer's step).
struct AnyArgument {
  template <class... Arguments>
  std::optional<bool> operator()(Arguments&&...) const;
};

/// The calls of a whole fit.
template <class Here, class Engine>
concept JoinsFits = requires(Here ranks, Engine& engine, AnyArgument& batches, AnyArgument& options,
                             AnyArgument& loop, AnyArgument& plan, SkippedSamples& skipped) {
  /// Returns the ranks of the fit under way; null on one process.
  { ranks.get() } -> std::same_as<Ranks*>;
  { ranks.operator->() } -> std::same_as<Ranks*>;
  {static_cast<bool>(ranks)};
  /// True on the rank that writes reports and snapshots.
  { ranks.leads() } -> std::same_as<bool>;
  /// Throws UsageError for a loop of `step` on several ranks.
  ranks.require_one_process(engine);
  /// Agrees on windows and on the length of an epoch. Returns the most batches that a rank has in an epoch.
  { ranks.plan_epochs(engine, batches, options) } -> std::same_as<std::optional<std::int64_t>>;
  /// Mutes the `leader_only` policies of ranks that do not lead.
  ranks.mute(engine);
  /// Lets every rank know which metrics the policies of all ranks wait for.
  ranks.share_awaited_metrics(engine);
  /// Lists the samples that the loaders of all ranks have skipped.
  ranks.gather_skipped(skipped);
  /// Fixes the unit of weights, so that all ranks use the same one.
  ranks.fix_units(engine);
  /// True if the fit ends with the window that has ended.
  { ranks.ends_fit(engine, loop, plan) } -> std::same_as<bool>;
  /// Gives all ranks the same reasons for the end of a fit.
  ranks.reduce_end(engine);
  /// True once moments are sharded, also after the fit that sharded them.
  { ranks.has_sharded_moments() } -> std::convertible_to<bool>;
};

/// The calls of a window.
template <class Here, class Engine>
concept JoinsWindows = requires(Here ranks, Engine& engine, AnyArgument& loop, AnyArgument& run,
                                std::int64_t number, bool& flag) {
  /// Takes part in windows for which this rank has no batch: its loader skipped all before a number. Returns
  /// false if the fit ends.
  { ranks.join_skipped_windows(loop, number) } -> std::same_as<bool>;
  /// Takes part in windows at an epoch's end, while other ranks have more batches. Returns false if the fit
  /// ends.
  { ranks.join_remaining_windows(loop) } -> std::same_as<bool>;
  /// Runs forward and backward of the window's micro-batch with this number.
  ranks.join_micro_batch(engine, number, run);
  /// Reruns forward and backward of the window's micro-batch with this number; the run stays unchanged.
  ranks.join_rerun_micro_batch(engine, number, run);
  /// True if each micro-batch must wait for those of the other ranks.
  { ranks.is_lockstep(engine) } -> std::same_as<bool>;
  /// Waits for the other ranks' micro-batches after this rank's last one.
  ranks.wait_in_lockstep(engine);
  /// Reduces the window as it ends; returns false if it does not count.
  { ranks.reduce_window(engine) } -> std::same_as<bool>;
  /// Agrees on whether gradients of update I overflow, and whether a loss does.
  ranks.template reduce_overflow<0>(engine, flag, flag);
  /// Drops the sums of a window that is retried or abandoned, and restarts its count of lockstep turns.
  ranks.drop_sums(engine);
  /// Drops the gradients of this rank's shard of update I.
  ranks.template drop_parts<0>(engine);
};

/// The calls of update I, and of an evaluation.
template <class Here, class Engine>
concept JoinsUpdates = requires(Here ranks, Engine& engine, const Engine& held, AnyArgument& move,
                                AnyArgument& measure, UpdateContext& context, const GradientScale& scale,
                                Finding finding, EvaluationSums& sums) {
  /// Announces that the next backward is the window's last.
  ranks.template expect_sums<0>(engine);
  /// Reduces the update of a window with kept batches, and sums its gradients.
  ranks.template reduce_update<0>(engine);
  /// Runs the policies' before_update on the gradients that this rank has.
  ranks.template before_update<0>(engine, context);
  /// Returns the result of `move(optimizer, context, scale)`, which updates this rank's parameters.
  { ranks.template move<0>(engine, context, scale, move) } -> std::same_as<std::optional<bool>>;
  /// Returns the finding, sentence or error that all ranks report of the update.
  { ranks.template agreed_finding<0>(engine, finding) } -> std::same_as<Finding>;
  { ranks.template agreed_sentence<0>(engine, finding, std::string()) } -> std::same_as<std::string>;
  ranks.template reduce_error<0>(engine);
  /// Returns this rank's shard of the parameters; null if its optimizer has all of them.
  { ranks.template shards<0>(held) } -> std::same_as<OptimizerShards*>;
  /// Returns the means, or the result of a measure, over all ranks.
  { ranks.evaluation(engine, sums, measure) } -> std::same_as<Evaluation>;
};

/// The interface of SoloRanks and SeveralRanks, besides `run(engine, body)`, which runs a whole fit.
template <class Here, class Engine>
concept RankCalls = JoinsFits<Here, Engine> && JoinsWindows<Here, Engine> && JoinsUpdates<Here, Engine>;

}  // namespace looptorch::detail
