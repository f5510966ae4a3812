// SPDX-License-Identifier: MIT
// Implements the calls of rank_calls.hpp for a run of one process: each does nothing or returns a constant.
#pragma once

#include <looptorch/loop/step/rank_calls.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace looptorch::detail {

/// RankCalls whose answers are constants, and whose reductions do nothing.
template <class Engine>
class SoloRanks {
 public:
  [[nodiscard]] static constexpr Ranks* get() { return nullptr; }
  Ranks* operator->() const { return nullptr; }
  explicit constexpr operator bool() const { return false; }
  [[nodiscard]] static constexpr bool leads() { return true; }
  template <class Body>
  static decltype(auto) run(Engine&, Body&& body) {
    return body();
  }
  static void require_one_process(Engine&) {}
  template <class Batches, class Options>
  [[nodiscard]] static std::optional<std::int64_t> plan_epochs(Engine&, const Batches& batches,
                                                               const Options&) {
    return batches.size();
  }
  static void mute(Engine&) {}
  static void share_awaited_metrics(Engine&) {}
  static void gather_skipped(SkippedSamples&) {}
  static void fix_units(Engine&) {}
  template <class Loop>
  [[nodiscard]] static constexpr bool join_skipped_windows(Loop&, std::int64_t) {
    return true;
  }
  template <class Loop>
  [[nodiscard]] static constexpr bool join_remaining_windows(Loop&) {
    return true;
  }
  template <class Loop, class Plan>
  [[nodiscard]] static bool ends_fit(Engine& engine, Loop&, const Plan& plan) {
    return plan.ended(engine.run());
  }
  static void reduce_end(Engine&) {}
  template <class Differentiate>
  static void join_micro_batch(Engine&, std::int64_t, Differentiate&& differentiate) {
    differentiate();
  }
  [[nodiscard]] static constexpr bool is_lockstep(Engine&) { return false; }
  template <class Differentiate>
  static void join_rerun_micro_batch(Engine&, std::int64_t, Differentiate&& differentiate) {
    differentiate();
  }
  static void wait_in_lockstep(Engine&) {}
  template <std::size_t I>
  static void expect_sums(Engine&) {}
  [[nodiscard]] static constexpr bool reduce_window(Engine&) { return true; }
  template <std::size_t I>
  static void reduce_update(Engine&) {}
  template <std::size_t I>
  static void reduce_overflow(Engine&, bool& /*overflowed*/, bool& /*loss_overflowed*/) {}
  static void drop_sums(Engine&) {}
  template <std::size_t I>
  static void drop_parts(Engine&) {}
  template <std::size_t I>
  static void before_update(Engine& engine, UpdateContext& context) {
    engine.ask_before_update(context);
  }
  template <std::size_t I, class Move>
  static std::optional<bool> move(Engine& engine, UpdateContext& context, const GradientScale& scale,
                                  Move&& move) {
    return move(*engine.template update<I>().optimizer, context, scale);
  }
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
  template <std::size_t I>
  [[nodiscard]] static constexpr OptimizerShards* shards(const Engine&) {
    return nullptr;
  }
  [[nodiscard]] static constexpr bool has_sharded_moments() { return false; }
  template <class Measure>
  [[nodiscard]] static Evaluation evaluation(Engine&, EvaluationSums& sums, Measure& measure) {
    return own_evaluation(sums, measure);
  }
};

}  // namespace looptorch::detail
