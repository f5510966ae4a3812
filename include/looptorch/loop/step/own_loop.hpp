// SPDX-License-Identifier: MIT
// Implements `Trainer::step`, for callers with a loop of their own. Its windows belong to no epoch. Calls may
// pass different batch types.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/stopwatch.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/fit_events.hpp>
#include <looptorch/loop/step/window.hpp>

#include <any>
#include <cstdint>
#include <optional>
#include <utility>

namespace looptorch::detail {

/// The state of a Trainer's loop of `step` calls: whether its policies have begun, and the open window's
/// batches. The Trainer has one. Not used by `fit`.
template <class Engine>
class OwnLoop {
 public:
  /// Lets policies begin anew with the next step.
  void restart() { begun_ = false; }
  /// Lets policies begin anew. The next step begins `another` loop with means of its own, or else continues
  /// the loop of a loaded state.
  void restart(bool another) {
    restart();
    is_another_ = another;
  }

  /// Learns from one micro-batch, and makes the updates if it is the window's last.
  template <class Host, class Trainer, class Batch>
  StepResult step(Trainer& trainer, Engine& engine, const Batch& batch) {
    if (!begun_) begin<Host>(trainer, engine);
    const Host host(trainer, engine.run());
    return guarded_step(engine, [&] {
      if (engine.window().micro_batches == 0) open_window<Batch>();
      const bool ended = add_and_end_if_last(engine, kept<Batch>(), batch);
      if (ended) close_window(engine);
      const Run& run = engine.run();
      return StepResult{ended, engine.progress().step, run.is_to_end(), run.interruption().has_value(),
                        reason_of(run)};
    });
  }

  /// Ends an open window, then reads whether the last updates were applied, and counts them.
  template <class Host, class Trainer>
  void finish_window(Trainer& trainer, Engine& engine) {
    const Host host(trainer, engine.run());
    end_last_window(engine);
  }

  /// Ends the loop as a fit ends: the window, then every policy. Begins policies that have not begun.
  template <class Host, class Trainer>
  FitResult finish(Trainer& trainer, Engine& engine) {
    if (!begun_) begin<Host>(trainer, engine);
    restart(/*another=*/true);
    const Host host(trainer, engine.run());
    try {
      end_last_window(engine);
    } catch (...) {
      ignoring_errors([&] { end_policies(engine, FitStatus::failed); });
      throw;
    }
    const FitStatus status = status_of(engine.run());
    end_policies(engine, status);
    return fit_result(engine.run(), status, clock_);
  }

 private:
  template <class Batch>
  using Kept = kept_t<Engine, Batch>;

  /// Begins a fit of unknown length for policies.
  template <class Host, class Trainer>
  void begin(Trainer& trainer, Engine& engine) {
    clock_ = {};
    engine.ranks().require_one_process(engine);
    prepare_fit(engine, FitPlan::of_unknown_length());
    if (std::exchange(is_another_, false)) restart_means(engine.run());
    RunAccess::batch_limit(engine.run()) = std::nullopt;  // set by an earlier fit
    engine.window().in_epoch = false;
    engine.window().pinned = PinnedSource::staged;
    engine.window().refills = true;
    try {
      guarded_step(engine, [&] {
        begin_policies(engine);
        const Host host(trainer, engine.run());
        ready_policies(engine);
      });
    } catch (...) {
      ignoring_errors([&] { end_policies(engine, FitStatus::failed); });
      throw;
    }
    first_step_ = engine.progress().step;
    begun_ = true;
  }

  void end_last_window(Engine& engine) {
    guarded_step(engine, [&] {
      if (engine.window().micro_batches > 0) {
        end_open_window_(*this, engine);
        close_window(engine);
      }
      resolve_updates(engine);
    });
  }

  [[nodiscard]] FitStatus status_of(const Run& run) const {
    if (run.interruption()) return FitStatus::interrupted;
    if (run.stop_reason()) return FitStatus::stopped;
    return run.progress().step == first_step_ ? FitStatus::nothing_left : FitStatus::completed;
  }

  template <class Batch>
  void open_window() {
    if (auto* kept = std::any_cast<Kept<Batch>>(&kept_)) {
      drop_batches(*kept);
    } else {
      kept_.template emplace<Kept<Batch>>();
    }
    end_open_window_ = [](OwnLoop& self, Engine& engine) { end_window(engine, self.template kept<Batch>()); };
  }

  template <class Batch>
  Kept<Batch>& kept() {
    if (auto* kept = std::any_cast<Kept<Batch>>(&kept_)) return *kept;
    throw UsageError("step() was given a batch of another type than the window under way began with");
  }

  /// Calls `body`; if it throws, drops the window's batches too.
  template <class Body>
  decltype(auto) guarded_step(Engine& engine, Body&& body) {
    try {
      return guarded(engine, body);
    } catch (...) {
      kept_.reset();
      throw;
    }
  }

  bool begun_ = false;
  bool is_another_ = false;      // the means are those of an earlier loop or fit
  std::int64_t first_step_ = 0;  // of the loop under way
  Stopwatch clock_;
  std::any kept_;  // the window's batches, where several updates need them
  void (*end_open_window_)(OwnLoop&, Engine&) = nullptr;  // knows their type
};

}  // namespace looptorch::detail
