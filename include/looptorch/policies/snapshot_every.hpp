// SPDX-License-Identifier: MIT
// Writes the whole run to disk at intervals, so that a fit can resume from there bit for bit, even if the
// process is killed. Training waits for a copy of the state in host memory; a separate thread writes it. Use
// it in every run that you would not like to restart.
//
//   Trainer trainer(net, optimizer, objective, SnapshotEvery{.folder = "runs/a", .steps = 500});
//   trainer.fit(loader, {.epochs = 3, .resume = folder_or_snapshot});
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/terminal.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/policies/metrics/best_few.hpp>
#include <looptorch/policies/metrics/metric_reader.hpp>
#include <looptorch/resume/snapshots.hpp>
#include <looptorch/state/snapshot/snapshot_work.hpp>

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace looptorch {

/// How a fit reacts when a snapshot cannot be written. Earlier snapshots stay either way.
enum class OnSnapshotError {
  stop,  ///< throws the error at the next step
  warn,  ///< warns, continues, and tries again when the next one is due
};

/// Writes a snapshot, `folder/step-NNNNNNNN`, whenever one of the conditions holds, at the end of a window or
/// an epoch, and at the fit's end unless the fit fails. A snapshot due at an epoch's last window waits for
/// the epoch's end, evaluation included. Training waits for a snapshot that is still being written.
///
/// SIGTERM, SIGINT and SIGHUP (a closed terminal) end the fit after the window under way, with a snapshot and
/// FitStatus::interrupted; a signal ignored so far, as under nohup, stays ignored. A second SIGTERM or SIGINT
/// acts at once, unless it repeats the first within a second. The former handlers are restored after the fit.
struct SnapshotEvery {
  std::filesystem::path folder = {};
  std::int64_t steps = 0;   ///< 0: not by steps.
  double minutes = 0;       ///< 0: not by time.
  std::int64_t epochs = 0;  ///< 0: not by epochs.
  std::int64_t keep = 3;    ///< Newest snapshots to keep; 0: all.
  std::string best = {};    ///< A metric. A snapshot whose value is among the `keep_best` best is
                            ///< written, and stays while that is so. Empty: none.
  Better better = Better::lower;
  OnSnapshotError on_error = OnSnapshotError::stop;
  bool on_signals = true;       ///< false: signals are left alone.
  std::int64_t keep_best = 1;   ///< How many of the best snapshots to keep.
  std::int64_t keep_every = 0;  ///< Keep snapshots whose step is a multiple of this; 0: none.

  static constexpr Phase phase = Phase::snapshot;
  static constexpr bool leader_only = true;
  static constexpr bool takes_snapshots = true;

  struct State {
    std::int64_t at_step = -1;  ///< Step of the last snapshot that was begun; -1 before the first.
    BestFew best;               ///< Best values of the metric, with the steps of their snapshots.
    std::int64_t failures = 0;  ///< Snapshots that could not be written, with OnSnapshotError::warn.
    std::string last_error;     ///< Message of the last failure.

    BestFew best_before;  // `best` without the value whose snapshot is being written
    detail::MetricReader reader;
    bool due = false;
    std::chrono::steady_clock::time_point began;
    std::unique_ptr<detail::SnapshotWork> work;
  };

  /// Throws UsageError for options out of range, a folder that another run is writing to, and one with later
  /// snapshots of another run; SnapshotError for an unusable folder.
  void on_fit_begin(FitContext& fit, State& state) const {
    check();
    const std::int64_t step = fit.run.progress().step;
    state.work.reset();  // a loop by `step` without its `finish` may still hold the folder's lock
    auto lock = detail::prepare_snapshot_folder(folder, step);
    if (state.at_step < 0 && step > 0 && detail::has_snapshot(folder, step)) state.at_step = step;
    if (!best.empty()) state.reader.begin_fit(fit.run, best, "SnapshotEvery");
    state.due = false;
    state.began = std::chrono::steady_clock::now();
    const detail::SnapshotsToKeep kept{static_cast<std::size_t>(keep), keep_every};
    state.work = std::make_unique<detail::SnapshotWork>(folder, std::move(lock), kept, on_signals);
  }

  /// Throws UsageError for a folder with later snapshots. Called before a fit loads a snapshot of this step.
  void before_resume(const ResumeContext& resume, State&) const {
    detail::require_no_later_snapshots(folder, resume.step);
  }

  /// Throws UsageError if no policy publishes the metric.
  void on_epoch_begin(EpochContext& epoch, State& state) const {
    if (!best.empty()) state.reader.begin_epoch(epoch.run, best, "SnapshotEvery");
  }

  /// Skips a value from before the first step: no snapshot belongs to it.
  void on_fit_ready(FitContext& fit, State& state) const {
    if (fit.run.progress().step == 0) static_cast<void>(state.reader.next(fit.run, best));
  }
  /// Throws SnapshotError.
  void on_window_end(WindowContext& window, State& state) const {
    const Progress& progress = window.run.progress();
    poll(window.run, state);
    state.due |= steps > 0 && progress.step % steps == 0;
    const bool ends_epoch = progress.batches_per_epoch && progress.batch >= *progress.batches_per_epoch;
    // A signal may be followed by SIGKILL: the snapshot does not wait for the epoch's evaluation.
    if (state.due && (!ends_epoch || state.work->signal() != 0)) write(window.run, state);
  }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    poll(epoch.run, state);
    state.due |= epochs > 0 && epoch.run.progress().epoch % epochs == 0;
    if (state.due) write(epoch.run, state);
  }
  void on_fit_end(FitContext& fit, State& state) const {
    if (!state.work) return;
    const auto at_exit = c10::make_scope_exit([&state] { state.work.reset(); });
    if (fit.status != FitStatus::failed) {
      if (fit.run.progress().step > 0) write(fit.run, state);
      attempt(state, [&] { state.work->wait(); });
    }
    if (const int signal = state.work->end_watch()) interrupt(fit.run, signal);
  }

  void forecast_memory(MemoryForecast& forecast, State&) const { forecast.snapshots = true; }

  void state_dict(StateDict& out, State& state) const {
    StateDict best_state;
    state.best.save(best_state);
    out.set("best", best_state);
    state.reader.save(out);
  }
  void load_state_dict(const StateDict& in, State& state) const {
    state.best.load(in.under("best"));
    state.reader.load(in);
  }

 private:
  void check() const {
    if (folder.empty()) throw UsageError("SnapshotEvery needs a folder");
    if (!(minutes >= 0.0 && std::isfinite(minutes)))
      throw UsageError(message("SnapshotEvery's minutes must be at least 0, got ", minutes));
    const auto require = [](const char* name, std::int64_t value) {
      if (value < 0) throw UsageError(message("SnapshotEvery's ", name, " must be at least 0, got ", value));
    };
    require("steps", steps);
    require("epochs", epochs);
    require("keep", keep);
    require("keep_every", keep_every);
    if (keep_best < 1)
      throw UsageError(message("SnapshotEvery's keep_best must be at least 1, got ", keep_best));
  }

  static void interrupt(Run& run, int signal) {
    run.interrupt(detail::signal_name(signal) + " was received", signal);
  }

  /// Reads the writer's errors, signals, time and metric, and decides whether a snapshot is due.
  void poll(Run& run, State& state) const {
    attempt(state, [&] { state.work->poll(); });
    if (const int signal = state.work->signal()) interrupt(run, signal);
    const bool improved = is_best(run, state);  // read first: each publication is handed out once
    state.due |= improved || run.interruption() || time_is_up(state);
  }

  [[nodiscard]] bool time_is_up(const State& state) const {
    if (minutes <= 0) return false;
    return std::chrono::steady_clock::now() - state.began >=
           std::chrono::duration<double, std::ratio<60>>(minutes);
  }

  [[nodiscard]] bool is_best(const Run& run, State& state) const {
    if (best.empty()) return false;
    const auto value = state.reader.next(run, best);
    if (!value) return false;
    const auto offer = [&](BestFew& to) {
      return to.offer(*value, run.progress().step, better, static_cast<std::size_t>(keep_best));
    };
    if (BestFew trial = state.best; !offer(trial)) return false;
    attempt(state, [&] { state.work->wait(); });  // a best whose snapshot failed is dropped first
    state.best_before = state.best;
    return offer(state.best);
  }

  void write(Run& run, State& state) const {
    state.due = false;
    if (run.progress().step != state.at_step)
      run.in_phase(RunPhase::snapshot, "snapshot", [&] { begin_writing(run, state); });
  }
  void begin_writing(Run& run, State& state) const {
    const std::int64_t step = run.progress().step;
    state.began = std::chrono::steady_clock::now();
    attempt(state, [&] { state.work->wait(); });
    SnapshotContents contents;
    try {
      contents = run.snapshot(folder);
    } catch (const SnapshotError&) {  // another rank could not write; all other errors are the run's
      state.at_step = step;
      return attempt(state, [] { throw; });
    }
    state.at_step = step;
    attempt(state, [&] { state.work->begin(contents, state.best.steps()); });
  }

  /// Calls `work`, which may throw that the last snapshot failed. Stops or warns as `on_error` says.
  template <class Work>
  void attempt(State& state, Work&& work) const {
    try {
      work();
      return;
    } catch (const Error& error) {
      if (state.best.steps().count(state.at_step) > 0) state.best = state.best_before;
      state.at_step = -1;
      if (on_error == OnSnapshotError::stop) throw;
      ++state.failures;
      state.last_error = error.what();
    }
    std::fputs(detail::clearing_code(stderr), stderr);
    TORCH_WARN("looptorch: training goes on without a snapshot: ", state.last_error);
  }
};

}  // namespace looptorch
