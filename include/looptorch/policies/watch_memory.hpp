// SPDX-License-Identifier: MIT
// Watches a run's memory: its peak by phase, what the peak consists of, and three faults, namely leaks,
// spikes and fragmentation of the allocator. Never waits for the device. Costs two readings of the
// allocator's counters for each micro-batch and two for each step. On a CPU, looptorch's own counters
// (HostMemory) count allocations from the first fit on.
#pragma once

#include <looptorch/base/process/terminal.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/memory/measure/memory_breakdown.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>
#include <looptorch/policies/declared.hpp>
#include <looptorch/policies/watching/memory_watch.hpp>

#include <cstdio>
#include <string>

namespace looptorch {

struct CacheFlushFamily;
struct ShowProgress;

/// Writes its findings to `out`, each kind once, and the peak as a fit ends, with advice if little memory was
/// left. `trainer.policy<WatchMemory>()` returns the numbers. ShowProgress shows the peak in its line. Resets
/// the device's peak statistics several times a step, so a program cannot use them itself.
struct WatchMemory {
  std::FILE* out = stderr;     ///< Null: nothing is written.
  PartRemedies remedies = {};  ///< The names in advice and findings; a program gives its flags.

  static constexpr bool reads_memory = true;
  static constexpr bool leader_only = true;
  static constexpr bool ignores_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  using runs_after =
      After<CacheFlushFamily, LogMetrics, ShowProgress, SkipBadWindows>;  // reads what they left
  using State = detail::MemoryWatch;

  void on_fit_ready(FitContext& fit, State& state) const {
    state.begin(fit.run);
    fit.run.show("memory", [&state] { return state.short_text(); });
  }

  /// Ends the phase when destroyed.
  class Phase {
   public:
    Phase(State& state, MemoryPhase phase, MemoryPhase next, const Run& run)
        : state_(state), next_(next), run_(run) {
      state_.enter(phase, run_);
    }
    ~Phase() { state_.enter(next_, run_); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    State& state_;
    MemoryPhase next_;
    const Run& run_;
  };

  Phase forward_scope(const ForwardContext& forward, State& state) const {
    if (forward.training) return {state, MemoryPhase::forward, MemoryPhase::backward, forward.run};
    return {state, MemoryPhase::evaluation, MemoryPhase::evaluation, forward.run};
  }
  Phase evaluation_scope(const EvaluationContext& evaluation, State& state) const {
    return {state, MemoryPhase::evaluation, MemoryPhase::between, evaluation.run};
  }
  void before_update(UpdateContext& update, State& state) const {
    state.enter(MemoryPhase::update, update.run);
  }

  void on_window_end(WindowContext& window, State& state) const {
    if (const auto found = state.end_window(window.run, remedies)) write(found->text);
  }
  void on_epoch_end(EpochContext& epoch, State& state) const { state.add_up(epoch.run); }
  void on_fit_end(FitContext& fit, State& state) const {
    if (const auto found = state.end(fit.run, fit.status == FitStatus::failed)) write(found->text);
    if (state.peak().bytes > 0) write(state.text());  // else no window has begun
    for (const std::string& remedy : state.advice(remedies)) write("little is left. " + remedy);
  }

 private:
  void write(const std::string& text) const {
    if (out) std::fputs(detail::own_line(out, "memory: " + text).c_str(), out);
  }
};

}  // namespace looptorch
