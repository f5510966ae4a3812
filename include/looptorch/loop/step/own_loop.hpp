// SPDX-License-Identifier: MIT
// A caller's own loop, by `Trainer::step`: windows without epochs. Only each call knows the type of its
// batch.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/step/fit_loop.hpp>
#include <looptorch/loop/step/window.hpp>

#include <any>
#include <utility>

namespace looptorch::detail {

template <class Engine>
class OwnLoop {
 public:
  /// Lets policies begin anew with the next step.
  void restart() { begun_ = false; }

  /// Learns from one micro-batch, and makes the updates when it is the window's last.
  template <class Host, class Trainer, class Batch>
  StepResult step(Trainer& trainer, Engine& engine, const Batch& batch) {
    if (!begun_) begin<Host>(trainer, engine);
    const Host host(trainer, engine.run());
    return guarded_step(engine, [&] {
      if (engine.window().micro_batches == 0) open_window<Batch>();
      const bool ended = add_micro_batch(engine, kept<Batch>(), batch);
      if (ended) conclude_window(engine);
      return StepResult{ended, engine.progress().step, engine.run().is_to_end()};
    });
  }

  /// Ends the window if one is open. Then counts what only the device knew of the last one.
  template <class Host, class Trainer>
  void finish_window(Trainer& trainer, Engine& engine) {
    const Host host(trainer, engine.run());
    guarded_step(engine, [&] {
      if (engine.window().micro_batches > 0) {
        end_open_window_(*this, engine);
        conclude_window(engine);
      }
      settle(engine);
    });
  }

 private:
  template <class Batch>
  using Kept = kept_t<Engine, Batch>;

  /// Begins a fit of unknown length for policies.
  template <class Host, class Trainer>
  void begin(Trainer& trainer, Engine& engine) {
    engine.ranks().require_one_process(engine);
    prepare_fit(engine, FitPlan::of_unknown_length());
    engine.window().in_epoch = false;
    engine.window().pinned = PinnedSource::staged;
    guarded_step(engine, [&] {
      begin_policies(engine);
      const Host host(trainer, engine.run());
      ready_policies(engine);
    });
    begun_ = true;
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

  /// Calls `body`; if it throws, drops the window's batches, too.
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
  std::any kept_;  // the window's batches, where several updates need them
  void (*end_open_window_)(OwnLoop&, Engine&) = nullptr;  // knows their type
};

}  // namespace looptorch::detail
