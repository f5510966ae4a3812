// SPDX-License-Identifier: MIT
// The ranks of a Trainer without a policy that gives any: one process. Every answer is a constant, and every
// reduction does nothing. `SeveralRanks` (ranks/several_ranks.hpp) has the same calls.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/optim/optimizer_parts.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::detail {

class EvaluationSums;

template <class Engine>
class SoloRanks {
 public:
  /// Returns the ranks of the fit under way; null on one process.
  [[nodiscard]] static constexpr Ranks* get() { return nullptr; }
  Ranks* operator->() const { return nullptr; }
  explicit constexpr operator bool() const { return false; }
  /// Returns how many processes add up a window; 0 if this one is alone.
  [[nodiscard]] static constexpr std::int64_t size() { return 0; }
  /// True on the rank that writes reports and snapshots.
  [[nodiscard]] static constexpr bool leads() { return true; }

  /// Runs a whole fit.
  template <class Body>
  static decltype(auto) run(Engine&, Body&& body) {
    return body();
  }
  /// Throws UsageError for a loop of `step` on several ranks.
  static void require_one_process(Engine&) {}
  /// Returns the most batches that a rank has in an epoch.
  template <class Batches, class Options>
  [[nodiscard]] static std::optional<std::int64_t> batches(Engine&, const Batches& batches, const Options&) {
    return batches.size();
  }
  /// Silences ranks that do not lead; weights are counted in units common to all ranks.
  static void mute(Engine&) {}
  static void fix_units(Engine&) {}

  /// Joins windows for which this rank has no batch: its loader skipped all before `number`, or, at an
  /// epoch's end, other ranks have more. Returns false if the fit ends.
  template <class Loop>
  [[nodiscard]] static constexpr bool pass_windows(Loop&, std::int64_t) {
    return true;
  }
  template <class Loop>
  [[nodiscard]] static constexpr bool wait_for_others(Loop&) {
    return true;
  }
  /// True if the fit ends after the last window.
  template <class Loop, class Plan>
  [[nodiscard]] static bool ended(Engine& engine, Loop&, const Plan& plan) {
    return plan.ended(engine.run());
  }
  static void reduce_end(Engine&) {}

  /// Calls `share()`, which learns from the window's micro-batch of this number.
  template <class Share>
  static void in_turn(Engine&, std::int64_t, Share&& share) {
    share();
  }
  /// The same for a rerun, which changes nothing, and the wait after all micro-batches.
  [[nodiscard]] static constexpr bool go_in_lockstep(Engine&) { return false; }
  template <class Share>
  static void in_lockstep(Engine&, std::int64_t, Share&& share) {
    share();
  }
  static void wait_in_lockstep(Engine&) {}
  /// Announces that the next backward of update I is the window's last.
  template <std::size_t I>
  static void expect_sums(Engine&) {}
  /// Reduces the window as it ends; returns false if it does not count.
  [[nodiscard]] static constexpr bool reduce_window(Engine&) { return true; }
  /// Reduces update I of a window with kept batches, and sums its gradients.
  template <std::size_t I>
  static void reduce_update(Engine&) {}
  /// Agrees on whether gradients of update I overflow, and whether a loss does.
  template <std::size_t I>
  static void reduce_overflow(Engine&, bool& /*overflowed*/, bool& /*hopeless*/) {}
  /// Drops sums and turns of a window that is retried or abandoned.
  static void drop_sums(Engine&) {}
  template <std::size_t I>
  static void drop_parts(Engine&) {}

  /// Runs the policies' before_update on the gradients that this rank has.
  template <std::size_t I>
  static void before_update(Engine& engine, UpdateContext& context) {
    engine.ask_before_update(context);
  }
  /// Returns the result of `move(optimizer, context, scale)`, which updates this rank's parameters.
  template <std::size_t I, class Move>
  static std::optional<bool> move(Engine& engine, UpdateContext& context, const GradientScale& scale,
                                  Move&& move) {
    return move(*engine.template update<I>().optimizer, context, scale);
  }
  /// Gives all ranks the same finding about update I, sentence and end.
  template <std::size_t I>
  [[nodiscard]] static Finding agreed_finding(Engine&, Finding own) {
    return own;
  }
  template <std::size_t I>
  [[nodiscard]] static std::string agreed_sentence(Engine&, const Finding&, std::string own) {
    return own;
  }
  template <std::size_t I>
  static void reduce_error(Engine&) {}

  /// Returns this rank's shard of update I's parameters; null if its optimizer has all of them.
  template <std::size_t I>
  [[nodiscard]] static constexpr OptimizerParts* parts(const Engine&) {
    return nullptr;
  }
  /// True once moments are sharded, also after the fit that sharded them.
  [[nodiscard]] static constexpr bool holds_parts() { return false; }

  /// Returns the means, or the result of a measure, over all ranks.
  template <class Measure>
  [[nodiscard]] static Evaluation evaluation(Engine&, EvaluationSums& sums, Measure& measure) {
    return own_evaluation(sums, measure);
  }
};

}  // namespace looptorch::detail
