// SPDX-License-Identifier: MIT
// Writes a trace of some steps, for chrome://tracing and Perfetto. The trace shows LibTorch's operators
// within the loop's phases and each policy's hooks. Use it to see what a slow step waits for. Steps without a
// trace cost a comparison for each phase and hook. Not part of policies.hpp, since the profiler's header
// takes long to compile: include it by name.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/policies/watching/trace_recorder.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// Writes `folder`/trace.json, on several ranks trace-rank0.json, trace-rank1.json, ... A step is traced from
/// its first forward pass to the next step's, as the rows of LogMetrics are: data wait, forward, backward,
/// update, window end, evaluation, snapshot, within a range `ProfilerStep#N`. A fit that ends or throws
/// within these steps writes those traced so far. The host waits for the device as the first step begins and
/// as the last one ends.
struct Profile {
  std::filesystem::path folder;  ///< Created if it is missing.
  std::int64_t first = 10;       ///< Steps count from 1, earlier fits and processes of the run included.
  std::int64_t last = 15;        ///< At least `first`.
  bool shapes = false;           ///< Record the shapes of operators' inputs.
  bool memory = false;           ///< Record allocations.
  std::function<void(const std::string&)> report = {};  ///< Gets the trace's path; empty: stderr.

  static constexpr Phase phase = Phase::prepare;  // its scopes are the outermost
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr ResumeRule resume_rule = ResumeRule::always;

  struct State {
    bool armed = false;                // in a fit whose steps may be traced
    std::optional<std::int64_t> rank;  // of several
    std::int64_t begin_step = 0;       // where the fit began
    std::int64_t step = 0;             // under way while recording
    std::int64_t traced_from = 0;
    std::size_t phases = 0;  // that are open
    RunPhase innermost = RunPhase::other;
    std::unique_ptr<detail::TraceRecorder> recorder;  // null outside of the steps
  };

  void on_ranks(Ranks& ranks, State& state) const {
    if (ranks.size() > 1) state.rank = ranks.rank();
  }

  /// Throws UsageError for options out of range, and if LibTorch's profiler is on already.
  void on_fit_begin(FitContext&, State& state) const {
    if (folder.empty()) throw UsageError("Profile needs a folder");
    if (first < 1 || last < first)
      throw UsageError(message("Profile needs 1 <= first <= last, got first ", first, " and last ", last));
    detail::require_no_profiler();
    state.recorder.reset();  // of a loop by `step` without its `finish`
    state.armed = false;
  }
  /// Throws std::filesystem::filesystem_error for a folder that cannot be created.
  void on_fit_ready(FitContext& fit, State& state) const {
    std::filesystem::create_directories(folder);
    state.begin_step = fit.run.progress().step;
    state.traced_from = 0;
    state.phases = 0;
    state.armed = true;
  }
  /// Throws FileError for a trace that cannot be written.
  void on_fit_end(FitContext& fit, State& state) const {
    if (!std::exchange(state.armed, false)) return;
    if (state.recorder)
      write(state);
    else if (state.traced_from == 0)
      tell(message("Profile: no trace was written: steps ", first, " to ", last,
                   " were asked for, and the fit began after step ", state.begin_step,
                   " and ended after step ", fit.run.progress().step));
  }

  /// A range of the trace. Closes the ranges within it when destroyed.
  class Range {
   public:
    Range() = default;
    Range(State& state, const std::string& name) : state_(&state), depth_(state.recorder->depth()) {
      recorder_ = state.recorder.get();
      recorder_->open(name);
    }
    ~Range() {
      if (recorder_ && state_->recorder.get() == recorder_) recorder_->close_to(depth_);
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    State* state_ = nullptr;
    detail::TraceRecorder* recorder_ = nullptr;
    std::size_t depth_ = 0;
  };

  /// Counts the phases that are open.
  class PhaseRange {
   public:
    PhaseRange(State& state, const PhaseContext& next) : state_(state), before_(state.innermost) {
      const bool is_new = state.phases++ == 0 || before_ != next.phase;
      state.innermost = next.phase;
      if (state.recorder && is_new) range_.emplace(state, name_of(next));
    }
    ~PhaseRange() { --state_.phases, state_.innermost = before_; }
    PhaseRange(const PhaseRange&) = delete;
    PhaseRange& operator=(const PhaseRange&) = delete;

   private:
    State& state_;
    RunPhase before_;
    std::optional<Range> range_;
  };

  PhaseRange phase_scope(const PhaseContext& next, State& state) const {
    const bool learns = next.phase == RunPhase::forward || next.phase == RunPhase::backward;
    if (state.armed && state.phases == 0 && learns) begin_step(next.run, state);
    return {state, next};
  }
  Range hook_scope(const HookContext& hook, State& state) const {
    if (!state.recorder) return {};
    return {state, short_name(hook.policy) + "." + std::string(hook.hook)};
  }

 private:
  /// Notes the step that a forward pass belongs to, or the backward pass of a replayed graph.
  void begin_step(const Run& run, State& state) const {
    const std::int64_t step = run.progress().step + 1;
    if (state.recorder && step == state.step) return;
    if (state.recorder && step > last) return write(state);
    if (step < first || step > last) return;
    if (!state.recorder) {
      std::fputs(detail::clearing_code(stderr), stderr);  // LibTorch's profiler may write there
      state.recorder = std::make_unique<detail::TraceRecorder>(
          detail::TraceRecorder::Options{run.device(), shapes, memory});
      state.traced_from = step;
    }
    state.recorder->close_to(0);
    state.recorder->open(message("ProfilerStep#", state.step = step));
  }

  void write(State& state) const {
    const auto recorder = std::move(state.recorder);
    const auto file = folder / (state.rank ? message("trace-rank", *state.rank, ".json") : "trace.json");
    std::fputs(detail::clearing_code(stderr), stderr);
    recorder->stop(file);
    tell(message("Profile: ", file.string(), " has steps ", state.traced_from, " to ", state.step,
                 "; open it in https://ui.perfetto.dev or chrome://tracing"));
  }
  void tell(const std::string& text) const {
    report ? report(text) : void(std::cerr << detail::own_line(stderr, text));
  }

  /// Returns "forward", or "forward (generator)" with several updates.
  static std::string name_of(const PhaseContext& of) {
    std::string name(of.name);
    const auto& updates = of.run.updates();
    if (of.update < updates.size() && updates.size() > 1) name += " (" + updates[of.update].name + ")";
    return name;
  }

  /// Returns a type's name without our namespace, and without template arguments that are long.
  static std::string short_name(std::string_view type) {
    constexpr std::string_view kOurs = "looptorch::";
    constexpr std::size_t kLong = 48;
    if (type.starts_with(kOurs)) type.remove_prefix(kOurs.size());
    if (type.size() <= kLong || type.find('<') == type.npos) return std::string(type);
    return std::string(type.substr(0, type.find('<'))) + "<...>";
  }
};

}  // namespace looptorch
