// SPDX-License-Identifier: MIT
// The ranks of a Trainer that lists no policy which gives any: one process, for which each question has its
// answer when it compiles, and nothing is to be done. `SeveralRanks` (ranks/several_ranks.hpp) has the same
// calls.
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
  /// Returns how many processes' parts of a window are added up; 0 if this one is alone.
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
  /// Returns the batches of an epoch on the rank that has most.
  template <class Batches, class Options>
  [[nodiscard]] static std::optional<std::int64_t> batches(Engine&, const Batches& batches, const Options&) {
    return batches.size();
  }
  /// Lets a rank that does not lead write nothing; units of weights become those of all.
  static void mute(Engine&) {}
  static void fix_units(Engine&) {}

  /// Takes part in windows of which the loader of this rank left out all batches before number `number`, or,
  /// at an epoch's end, in those of ranks that have more. Returns false if the fit ends.
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

  /// Calls `share()`, which learns from the micro-batch with this number in the window.
  template <class Share>
  static void in_turn(Engine&, std::int64_t, Share&& share) {
    share();
  }
  /// The same for a second look, which changes nothing; and what comes behind all turns.
  [[nodiscard]] static constexpr bool go_in_lockstep(Engine&) { return false; }
  template <class Share>
  static void in_lockstep(Engine&, std::int64_t, Share&& share) {
    share();
  }
  static void wait_in_lockstep(Engine&) {}
  /// Says that the next backward of update I is the last in the window.
  template <std::size_t I>
  static void expect_sums(Engine&) {}
  /// Agrees on the window as it ends; returns false if it does not count.
  [[nodiscard]] static constexpr bool reduce_window(Engine&) { return true; }
  /// Agrees on update I of a window whose batches are kept, and sums its gradients.
  template <std::size_t I>
  static void reduce_update(Engine&) {}
  /// Agrees on whether gradients of update I overflow, and whether a loss does.
  template <std::size_t I>
  static void reduce_overflow(Engine&, bool& /*overflowed*/, bool& /*hopeless*/) {}
  /// Forgets sums and turns of a window that is done again or abandoned.
  static void drop_sums(Engine&) {}
  template <std::size_t I>
  static void drop_parts(Engine&) {}

  /// Runs the policies' before_update on the gradients that this rank has.
  template <std::size_t I>
  static void before_update(Engine& engine, UpdateContext& context) {
    engine.ask_before_update(context);
  }
  /// Returns what `move(optimizer, context, scale)` returns, which moves the parameters that are this rank's.
  template <std::size_t I, class Move>
  static std::optional<bool> move(Engine& engine, UpdateContext& context, const GradientScale& scale,
                                  Move&& move) {
    return move(*engine.template update<I>().optimizer, context, scale);
  }
  /// Lets all ranks find the same in update I, report it in one sentence, and end with one.
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

  /// Returns this rank's part of what update I trains; null where its optimizer has all of it.
  template <std::size_t I>
  [[nodiscard]] static constexpr OptimizerParts* parts(const Engine&) {
    return nullptr;
  }
  /// True once moments lie in parts, also after the fit that shared them out.
  [[nodiscard]] static constexpr bool holds_parts() { return false; }

  /// Returns the means, or the result of a measure, over all ranks.
  template <class Measure>
  [[nodiscard]] static Evaluation evaluation(Engine&, EvaluationSums& sums, Measure& measure) {
    return own_evaluation(sums, measure);
  }
};

}  // namespace looptorch::detail
