// SPDX-License-Identifier: MIT
// Runs a window: adds micro-batches as they arrive, and makes the updates after the last. fit_loop.hpp and
// own_loop.hpp call `add_and_end_if_last`. A Trainer has one of three kinds of window. StreamedWindow
// (streamed_window.hpp) releases each batch after its backward. KeptWindow (kept_window.hpp) keeps all
// batches, for several updates or a closure. RedoneWindow (redo/redone_window.hpp) keeps them for reruns.
#pragma once

#include <looptorch/base/process/call_in_progress.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/step/kept_window.hpp>
#include <looptorch/loop/step/resolve_updates.hpp>
#include <looptorch/loop/step/streamed_window.hpp>
#include <looptorch/loop/update.hpp>

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Windows that may be rerun: defined in redo/redone_window.hpp.
template <class Engine>
struct RedoneWindow;
/// The kind of an Engine's windows: they may be rerun, or stream their micro-batches, or keep their batches
/// until they end. A kind has `begin`, `add` (a micro-batch), `complete` (before ranks reduce the window),
/// `finish<I>` (makes update I), `abandon`, `measure` (a batch of an evaluation), and the type `Kept`.
template <class Engine>
using window_kind_t =
    std::conditional_t<kMayRedo<typename Engine::PolicyStack>, RedoneWindow<Engine>,
                       std::conditional_t<Engine::kStreams, StreamedWindow<Engine>, KeptWindow<Engine>>>;

/// The kept batches of a window: none if micro-batches stream and no window is rerun.
template <class Engine, class Batch>
using kept_t = typename window_kind_t<Engine>::template Kept<Batch>;

template <class Batch>
void drop_batches(std::vector<Batch>& kept) {
  kept.clear();
}
inline void drop_batches(NoState&) {}

/// Opens a window, drops gradients that the program has left since the last one, and asks each update whether
/// it takes part.
template <class Engine>
void begin_window(Engine& engine) {
  engine.refresh_changed_parameters();
  WindowState& window = engine.window();
  window.open.open();
  for (const UpdateView& view : engine.run().updates()) drop_gradients(view.parameters);
  const Progress& progress = engine.progress();
  for_each_index<Engine::kUpdates>([&](auto i) {
    const UpdateOptions& options = engine.template update<i>().options;
    UpdateWork& work = engine.works()[i];
    work.due = progress.step % options.every == 0 && (!options.when || options.when(engine.run()));
  });
  window.origin.begin(progress.step, progress.epoch);
  window.shared.ranks = engine.ranks() ? engine.ranks()->size() : 0;
  window_kind_t<Engine>::begin(engine);
}

/// Counts the window that has ended.
template <class Engine>
void count_step(Engine& engine) {
  Progress& progress = RunAccess::progress(engine.run());
  WindowState& window = engine.window();
  ++progress.step;
  if (window.in_epoch) progress.batch += window.micro_batches + std::exchange(window.skipped_batches, 0);
  progress.samples += std::exchange(window.samples, 0);
  window.previous_micro_batches = std::exchange(window.micro_batches, 0);
  window.shared.lockstep_turns = 0;
  for (UpdateWork& work : engine.works()) work.skipped = 0;
  window.open.close();
}

/// Discards the window under way: no gradient and no weight of it remains. Leaves the gradients of another
/// Trainer's window alone.
template <class Engine>
void abandon_window(Engine& engine) {
  WindowState& window = engine.window();
  const bool alone = window.open.is_alone();
  window.open.close();
  window.derived.drop();
  clear_known_errors(engine);
  const std::int64_t step = engine.progress().step;
  std::exception_ptr ignored;  // the exception on its way is the one to report
  for_each_index<Engine::kUpdates>([&](auto i) {
    UpdateView& view = engine.run().updates()[i];
    UpdateWork& work = engine.works()[i];
    if (work.verdict.step() == step) {  // its window will not count
      ignoring_errors([&] { resolve_update<i>(engine, ignored); });
      work.verdict.drop_errors();
    }
    view.skipped -= std::exchange(work.skipped, 0);
    if (alone) drop_gradients(view.parameters);
    engine.ranks().template drop_parts<i>(engine);
    work.gradients.clear();
    work.begin_next_window();
  });
  window.thrown = nullptr;
  window_kind_t<Engine>::abandon(engine);
  ignoring_errors([&] { engine.ranks().drop_sums(engine); });
  if (window.last_skipped == step) {
    --RunAccess::progress(engine.run()).skipped;
    window.last_skipped = -1;
  }
  window.micro_batches = window.samples = window.skipped_batches = window.shared.lockstep_turns = 0;
}

/// Discards a window that does not count: no rank had a batch, or a rank has stopped the fit.
template <class Engine, class Kept>
void discard_window(Engine& engine, Kept& kept) {
  drop_batches(kept);
  const std::int64_t skipped =
      engine.window().end == WindowEnd::skipped ? engine.window().skipped_batches : 0;
  abandon_window(engine);
  RunAccess::progress(engine.run()).batch += skipped;
}

/// Makes the updates of the window, in order, and counts the step. On several ranks reduces first; discards a
/// window that does not count (`WindowEnd`).
template <class Engine, class Kept>
void end_window(Engine& engine, Kept& kept) {
  using Kind = window_kind_t<Engine>;
  Kind::complete(engine, kept);
  if (!engine.ranks().reduce_window(engine)) return discard_window(engine, kept);
  for_each_index<Engine::kUpdates>([&](auto i) {
    if (engine.works()[i].due) Kind::template finish<i>(engine, kept);
  });
  drop_batches(kept);
  count_step(engine);
}

/// Takes one micro-batch, made of the samples with these indices; begins a window if none is open.
template <class Engine, class Kept, class Given, class Indices = std::span<const std::int64_t>>
void add_micro_batch(Engine& engine, Kept& kept, Given&& batch, const Indices& indices = {}) {
  WindowState& window = engine.window();
  if (window.micro_batches == 0) begin_window(engine);
  const std::int64_t number = engine.progress().batch + window.next_number();
  window.origin.add(window.in_epoch ? number : WindowOrigin::kUnknown, indices);
  window.samples += batch_size(std::as_const(batch));
  window_kind_t<Engine>::add(engine, kept, std::forward<Given>(batch));
  ++window.micro_batches;
}

/// Takes one micro-batch. Ends the window and returns true if it is the window's last.
template <class Engine, class Kept, class Given, class Indices = std::span<const std::int64_t>>
bool add_and_end_if_last(Engine& engine, Kept& kept, Given&& batch, const Indices& indices = {}) {
  add_micro_batch(engine, kept, std::forward<Given>(batch), indices);
  if (engine.window().next_number() < engine.window_length()) return false;
  end_window(engine, kept);
  return true;
}

/// Throws UsageError for a call made while a window is open.
template <class Engine>
void require_no_open_window(const Engine& engine, const char* call) {
  if (engine.window().open.is_open())
    throw UsageError(message("a window that step() began is still open: call finish_window() before ", call));
}

/// Throws UsageError for a call that a hook may make within fit, but between windows only.
template <class Engine>
void require_between_windows(const Engine& engine, const CallInProgress& calls, const char* call) {
  calls.require_own_weights(call);
  if (calls.under_way() && engine.window().open.is_open())
    throw UsageError(message(call,
                             " was called within a window, by an objective or by a hook of an "
                             "update: call it from on_window_end or later"));
  require_no_open_window(engine, call);
}

/// Calls `body` with gradients on; if it throws, abandons the window before rethrowing.
template <class Engine, class Body>
decltype(auto) guarded(Engine& engine, Body&& body) {
  at::AutoGradMode with_gradients(true);
  try {
    return body();
  } catch (...) {
    abandon_window(engine);
    throw;
  }
}

}  // namespace looptorch::detail
