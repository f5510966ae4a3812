// SPDX-License-Identifier: MIT
// Implements the usual kind of window: each micro-batch runs forward and backward as soon as it arrives, and
// is then released. Used by Trainers with one update. If a policy may rerun windows, or the optimizer
// evaluates the loss several times, another kind is used. window.hpp chooses the kind, and documents the
// functions that each kind has.
#pragma once

#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/measure.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/update_step.hpp>

#include <cstddef>

namespace looptorch::detail {

/// The kind of window that holds no batch beyond its micro-batch: `add` runs forward and backward at once.
/// Has no state of its own; window_kind_t (window.hpp) chooses it.
template <class Engine>
struct StreamedWindow {
  template <class Batch>
  using Kept = NoState;

  static void begin(Engine&) {}

  template <class Given>
  static void add(Engine& engine, NoState&, Given&& batch) {
    if (!engine.works()[0].due) return;
    learn_on_device(engine, batch, [&](const auto& there, std::size_t number, bool is_last) {
      train_micro_batch<0>(engine, there, number, is_last);
    });
  }

  static void complete(Engine&, NoState&) {}

  template <std::size_t I>
  static void finish(Engine& engine, NoState&) {
    engine.in_phase(
        RunPhase::update, "update", [&] { finish_update<I>(engine, MoveByStep{}); }, I);
  }

  static void abandon(Engine&) {}

  /// Adds a batch of an evaluation to its sums.
  template <class Measure, class Batch>
  static void measure(Engine& engine, Measure& measure, const Batch& batch, EvaluationSums& sums) {
    sums.add(as_measure(engine.forward(measure, batch, /*training=*/false)));
  }

  /// Calls `learn(batch, number, is_last)` with the window's next micro-batch, moved to the model's device,
  /// in step with other ranks.
  template <class Batch, class Learn>
  static void learn_on_device(Engine& engine, Batch& batch, const Learn& learn) {
    const WindowState& window = engine.window();
    const auto number = static_cast<std::size_t>(window.micro_batches);
    at_place(engine, number, [&] {
      with_batch_on(engine.run().device(), window.pinned, batch, [&](const auto& there) {
        const bool is_last = window.next_number() + 1 >= engine.window_length();
        engine.ranks().join_micro_batch(engine, window.next_number(), [&] { learn(there, number, is_last); });
      });
    });
  }
};

}  // namespace looptorch::detail
