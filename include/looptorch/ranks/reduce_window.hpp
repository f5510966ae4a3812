// SPDX-License-Identifier: MIT
// Exchanges results among ranks at a window's end: `reduce_window` sums losses, weights and gradients over
// all ranks, and decides for all of them whether the window counts as a step. Besides the gradients, this
// costs one small collective per window; a Trainer with several updates has one more for each update.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/ranks/in_lockstep.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace looptorch::detail {

// UpdateReduction and WindowReduction work alike: the constructor adds this rank's values to a RankReduction,
// the collective replaces them with those of all ranks, and `take` passes the result to the run.

/// Losses, weight and fault of one update's window.
class UpdateReduction {
 public:
  UpdateReduction(UpdateWork& work, UpdateView& view, const WindowOrigin& origin, std::size_t index,
                  std::int64_t chunks, RankReduction& reduction)
      : work_(work),
        name_(message("update ", index, " ")),
        unit_(work.weight.unit()),
        chunks_(chunks),
        total_(work.weight.total()) {
    if (work.fault.micro_batch)
      fault_ = origin.narrowed(*work.fault.micro_batch)
                   .error<NonFiniteLoss>(subject_of_loss(view.name), "Look at these samples")
                   .what();
    reduction.max(name_ + "unit", unit_);
    reduction.sum(name_ + "total", total_);
    reduction.first_text(name_ + "fault", fault_);
    work.losses.all_reduce(reduction, name_, chunks_);
  }

  /// Takes the reduced values. Returns the factor of this rank's gradients in sums that have not begun: its
  /// unit of weights (loop/step/window_weight.hpp) divided by that of all ranks.
  double take(const RankReduction& reduction) {
    const double own = work_.weight.unit(), before = work_.weight.joined_unit();
    const double reduced = before != 0 ? before : unit_;  // the unit of the summed gradients
    work_.losses.take(reduction, name_, chunks_);
    if (chunks_ > 0) total_ = work_.losses.weight();
    if (!work_.fault.micro_batch) work_.fault.elsewhere = fault_;
    work_.weight.join(reduced, total_, unit_);
    return reduced != 0 && own != 0 ? own / reduced : 1.0;
  }

 private:
  UpdateWork& work_;
  std::string name_;
  double unit_;
  std::int64_t chunks_;
  double total_;
  std::optional<std::string> fault_;
};

/// Returns the factor of a rank's gradients in the sum, once the ranks' unit is known.
inline double factor_of(const WindowWeight& weight) {
  return weight.unit() != 0 ? weight.unit() / weight.joined_unit() : 1.0;
}

/// Begins to sum the gradients of update I during the backward that follows, if the ranks already know their
/// common unit.
template <std::size_t I, class Engine>
void expect_sums(Engine& engine) {
  const WindowWeight& weight = engine.works()[I].weight;
  if (weight.joined_unit() != 0)
    engine.ranks()->expect_last_backward(engine.run().updates()[I], factor_of(weight));
}

/// Sums the gradients of update I and fills `reduction`. Begins the sums first, to overlap both, unless the
/// first collective must decide the unit.
template <std::size_t I, class Engine>
void reduce_gradients(Engine& engine, RankReduction& reduction, UpdateReduction& of_update,
                      const std::string& point) {
  Ranks& ranks = *engine.ranks().get();
  const UpdateView& update = engine.run().updates()[I];
  const WindowWeight& weight = engine.works()[I].weight;
  const bool known = weight.joined_unit() != 0;
  if (known) ranks.begin_sums(update, factor_of(weight));
  ranks.all_reduce(reduction, point);
  const double factor = of_update.take(reduction);
  if (!known) ranks.begin_sums(update, factor);
  ranks.take_sums();
}

/// Counts of the window under way, and whether the fit ends.
class WindowReduction {
 public:
  WindowReduction(const WindowState& window, const Run& run, RankReduction& reduction)
      : advance_(window.micro_batches + window.skipped_batches),
        micro_batches_(window.micro_batches),
        samples_(window.samples),
        stop_(run.stop_reason()),
        interruption_(run.interruption()),
        signal_(run.signal()) {
    reduction.max("batches", advance_);
    reduction.sum("micro-batches", micro_batches_);
    reduction.sum("samples", samples_);
    reduction.first_text("stop", stop_);
    reduction.first_text("interruption", interruption_);
    reduction.max("signal", signal_);
  }
  /// Ends the fit on this rank if any asked for it: at once for a stop, which counts from the window before.
  /// A window skipped on every rank does not count, as on one process.
  void take(WindowState& window, Run& run) {
    if (stop_) run.stop(*stop_);
    if (interruption_) run.interrupt(*interruption_, static_cast<int>(signal_));
    window.shared.fit_ends = stop_ || interruption_;
    window.end = stop_                    ? WindowEnd::fit_over
                 : micro_batches_ > 0     ? WindowEnd::counted
                 : advance_ > 0           ? WindowEnd::skipped
                 : window.shared.fit_ends ? WindowEnd::fit_over
                                          : WindowEnd::epoch_over;
    window.skipped_batches = advance_ - window.micro_batches;
    window.samples = samples_;
  }

 private:
  std::int64_t advance_;  // batches by which the epoch moves on, skipped ones included
  std::int64_t micro_batches_, samples_;
  std::optional<std::string> stop_, interruption_;
  std::int64_t signal_;
};

/// The updates that take part in the window under way, by each rank's `when`. Rank 0 decides for updates made
/// after the collective. A single update has made its gradients by then, so the ranks must agree.
template <class Engine>
class DueReduction {
 public:
  DueReduction(Engine& engine, RankReduction& reduction) : engine_(engine) {
    for (std::size_t i = 0; i < Engine::kUpdates; ++i) {
      due_[i] = engine.works()[i].due ? 1.0 : 0.0;
      if (Engine::kStreams)
        reduction.require_equal("whether the update takes part", due_[i] != 0 ? "yes" : "no");
      else
        reduction.broadcast(message("due ", i), due_[i]);
    }
  }
  void take() {
    for (std::size_t i = 0; i < Engine::kUpdates; ++i) engine_.works()[i].due = due_[i] != 0;
  }

 private:
  Engine& engine_;
  std::array<double, Engine::kUpdates> due_{};
};

/// Reduces the window as it ends. Returns false if it does not count: a rank stopped the fit after the window
/// before, or no rank has batches in it.
template <class Engine>
bool reduce_window(Engine& engine) {
  Run& run = engine.run();
  WindowState& window = engine.window();
  wait_in_lockstep(engine);
  const std::string point = message("the end of step ", run.progress().step);
  RankReduction reduction;
  WindowReduction of_window(window, run, reduction);
  DueReduction<Engine> due(engine, reduction);
  engine.stack().template run<all_reduce_hook>(reduction);
  if (Engine::kStreams && engine.works()[0].due) {
    UpdateReduction of_update(engine.works()[0], run.updates()[0], window.origin, 0, engine.ranks()->chunks(),
                              reduction);
    reduce_gradients<0>(engine, reduction, of_update, point);
  } else {
    engine.ranks()->all_reduce(reduction, point);
  }
  of_window.take(window, run);
  due.take();
  return window.end == WindowEnd::counted;
}

/// Reduces update I of a window with kept batches, and sums its gradients.
template <std::size_t I, class Engine>
void reduce_update(Engine& engine) {
  RankReduction reduction;
  Run& run = engine.run();
  UpdateReduction of_update(engine.works()[I], run.updates()[I], engine.window().origin, I,
                            engine.ranks()->chunks(), reduction);
  reduce_gradients<I>(engine, reduction, of_update,
                      message("update ", I + 1, " of step ", run.progress().step));
}

}  // namespace looptorch::detail
