// SPDX-License-Identifier: MIT
// A window: micro-batches arrive one by one, and the last one ends it. With one update they stream, and each
// is released once it is differentiated. With several, the window's batches are kept, and each update sees
// all of them.
#pragma once

#include <looptorch/loop/batch_range.hpp>
#include <looptorch/loop/call_in_progress.hpp>
#include <looptorch/loop/compose/included_code.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/step/agree_on_window.hpp>
#include <looptorch/loop/step/closure_step.hpp>
#include <looptorch/loop/step/optimizer_step.hpp>
#include <looptorch/loop/step/retry.hpp>
#include <looptorch/loop/step/seek_scale.hpp>
#include <looptorch/loop/step/shard.hpp>
#include <looptorch/loop/step/side_by_side.hpp>
#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/loop/update.hpp>

#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A share of a window that is done again for a look; defined in watched_share.hpp, which the headers of
/// policies that keep windows include.
template <std::size_t I, class Engine, class Batch>
class WatchedShare;

/// Offers a share to the policies while it lives.
class OfferedShare {
 public:
  OfferedShare(ShareAgain*& slot, ShareAgain* share) : slot_(slot) { slot_ = share; }
  ~OfferedShare() { slot_ = nullptr; }
  OfferedShare(const OfferedShare&) = delete;
  OfferedShare& operator=(const OfferedShare&) = delete;

 private:
  ShareAgain*& slot_;
};

/// Opens a window, and asks each update whether it takes part.
template <class Engine>
void begin_window(Engine& engine) {
  engine.refresh_changed_parameters();
  WindowState& window = engine.window();
  window.open.open();
  const Progress& progress = engine.progress();
  for_each_index<Engine::kUpdates>([&](auto i) {
    const UpdateOptions& options = engine.template update<i>().options;
    UpdateWork& work = engine.works()[i];
    work.due = progress.step % options.every == 0 && (!options.when || options.when(engine.run()));
    if constexpr (Engine::kRetries) work.pieces = pieces_of(engine), work.attempts = 1;
  });
  window.origin.begin(progress.step, progress.epoch);
}

/// Keeps a batch, on the model's device.
template <class Engine, class Batch, class Given>
void keep_batch(Engine& engine, std::vector<Batch>& kept, Given&& batch) {
  kept.push_back(std::forward<Given>(batch));
  const at::Device device = engine.run().device();
  if (!is_on(kept.back(), device)) move_to(kept.back(), device, engine.window().pinned);
}

/// Counts the window that has ended.
template <class Engine>
void count_step(Engine& engine) {
  Progress& progress = RunAccess::progress(engine.run());
  WindowState& window = engine.window();
  ++progress.step;
  if (window.in_epoch) progress.batch += window.micro_batches + std::exchange(window.passed_over, 0);
  progress.samples += std::exchange(window.samples, 0);
  window.last = std::exchange(window.micro_batches, 0);
  window.turns = 0;
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
  drop_known_trouble(engine);
  const std::int64_t step = engine.progress().step;
  std::exception_ptr ignored;  // the exception on its way is the one to report
  for_each_index<Engine::kUpdates>([&](auto i) {
    UpdateView& view = engine.run().updates()[i];
    UpdateWork& work = engine.works()[i];
    if (work.verdict.step() == step) {  // its window will not count
      ignoring_errors([&] { settle_update<i>(engine, ignored); });
      work.verdict.drop_trouble();
    }
    view.skipped -= std::exchange(work.skipped, 0);
    if (alone) drop_gradients(view.parameters);
    if constexpr (Engine::kHasRanks)
      if (const OptimizerParts* parts = engine.template parts<i>()) drop_gradients(parts->tensors());
    work.gradients.clear();
    work.begin_next_window();
  });
  window.thrown = nullptr;
  if constexpr (Engine::kAttempts) engine.attempt().end();
  if constexpr (Engine::kMayLeaveOut) engine.share_start().end();
  if (engine.ranks()) ignoring_errors([&] { engine.ranks()->drop_sums(); });
  if (window.last_skipped == step) --RunAccess::progress(engine.run()).skipped, window.last_skipped = -1;
  window.micro_batches = window.samples = window.passed_over = window.turns = 0;
}

/// Performs the updates on what the window holds, in their order, and counts the step. On several ranks they
/// agree first; a window that does not count (`WindowState::counts`) is discarded.
template <class Batch, class Engine>
void end_window(Engine& engine, typename Engine::template Kept<Batch>& kept) {
  if constexpr (Engine::kStreams) seek_scale<0>(engine, kept);
  if constexpr (Engine::kHasRanks)
    if (engine.ranks() &&
        !engine.in_phase(RunPhase::update, "agreement", [&] { return agree_on_window(engine); })) {
      if constexpr (Engine::kKeepsBatches) kept.clear();
      const std::int64_t left_out = engine.window().left_out ? engine.window().passed_over : 0;
      abandon_window(engine);
      RunAccess::progress(engine.run()).batch += left_out;
      return;
    }
  for_each_index<Engine::kUpdates>([&](auto i) {
    if (!engine.works()[i].due) return;
    if constexpr (!Engine::kStreams) {
      differentiate_kept<i>(engine, kept);
      seek_scale<i>(engine, kept);
      if constexpr (Engine::kHasRanks)
        if (engine.ranks()) agree_on_update<i>(engine);
    }
    const auto finish = [&] {
      if constexpr (Engine::template kByClosure<i>)
        finish_update_by_closure<i>(engine, kept);
      else if constexpr (Engine::kRetries)
        finish_update_with_retries<i>(engine, kept);
      else
        finish_update<i>(engine, [](auto& optimizer, UpdateContext& context, const GradientScale&) {
          return step_optimizer(optimizer, context);
        });
    };
    engine.in_phase(
        RunPhase::update, "update", [&] { finish_offered<i>(engine, kept, finish); }, i);
  });
  if constexpr (Engine::kKeepsBatches) kept.clear();
  count_step(engine);
}

/// Offers the window's kept batches to policies that do update I's share again for a look, then calls
/// `finish()`.
template <std::size_t I, class Engine, class Kept, class Finish>
void finish_offered(Engine& engine, [[maybe_unused]] Kept& kept, Finish&& finish) {
  if constexpr (!Engine::kKeeps) {
    finish();
  } else if constexpr (is_included<WindowCode, Engine>) {
    WatchedShare<I, Engine, typename Kept::value_type> share(engine, engine.attempt(), kept);
    const OfferedShare offered(engine.share(), engine.keeps_windows() ? &share : nullptr);
    finish();
  }
}

/// Takes a micro-batch that is kept where it is in case the window must be done again.
template <class Engine, class Batch, class Given>
void learn_with_retries(Engine& engine, std::vector<Batch>& kept, Given&& batch) {
  kept.push_back(std::forward<Given>(batch));
  if (engine.works()[0].due)
    with_retries<0>(engine, kept, [&] { differentiate_pieces<0>(engine, kept.back(), kept.size() - 1); });
}

/// Calls `learn(batch)`; where windows are kept, with the batch that is kept.
template <class Engine, class Kept, class Given, class Learn>
void learn_and_keep([[maybe_unused]] Engine& engine, [[maybe_unused]] Kept& kept, Given&& batch,
                    const Learn& learn) {
  if constexpr (kSeeksScale<Engine, std::remove_cvref_t<Given>>)
    if (engine.template seeks_scale<0>()) {
      detach_from_range(engine, kept.emplace_back(std::forward<Given>(batch)));
      return learn(kept.back());
    }
  if constexpr (Engine::kKeeps)
    if (engine.keeps_windows()) return learn(kept.emplace_back(std::forward<Given>(batch)));
  learn(batch);
}

/// Takes one micro-batch, made of the samples with these indices, into a window, which it begins if none is
/// open.
template <class Batch, class Engine, class Given, class Indices = std::span<const std::int64_t>>
void take_micro_batch(Engine& engine, typename Engine::template Kept<Batch>& kept, Given&& batch,
                      const Indices& indices = {}) {
  WindowState& window = engine.window();
  if (window.micro_batches == 0) begin_window(engine);
  const std::int64_t number = engine.progress().batch + window.passed_over + window.micro_batches;
  window.origin.add(window.in_epoch ? number : WindowOrigin::kUnknown, indices);
  window.samples += batch_size(std::as_const(batch));
  if constexpr (!Engine::kStreams)
    keep_batch(engine, kept, std::forward<Given>(batch));
  else if constexpr (Engine::kRetries)
    beside_other_ranks(engine, window.micro_batches + window.passed_over, [&] {
      if (engine.works()[0].due) enter_shard(engine, window.micro_batches + window.passed_over);
      learn_with_retries(engine, kept, std::forward<Given>(batch));
    });
  else if (engine.works()[0].due)
    learn_and_keep(engine, kept, std::forward<Given>(batch), [&](auto& learnt) {
      with_batch_on(engine.run().device(), window.pinned, learnt, [&](const auto& there) {
        enter_shard(engine, window.micro_batches + window.passed_over);
        const bool is_last = window.micro_batches + window.passed_over + 1 >= engine.window_length();
        beside_other_ranks(engine, window.micro_batches + window.passed_over, [&] {
          differentiate<0>(engine, there, static_cast<std::size_t>(window.micro_batches),
                           /*reevaluates=*/false, is_last);
        });
      });
    });
  ++window.micro_batches;
}

/// Takes one micro-batch. Ends the window and returns true if it is the window's last.
template <class Batch, class Engine, class Given, class Indices = std::span<const std::int64_t>>
bool add_micro_batch(Engine& engine, typename Engine::template Kept<Batch>& kept, Given&& batch,
                     const Indices& indices = {}) {
  take_micro_batch<Batch>(engine, kept, std::forward<Given>(batch), indices);
  const WindowState& window = engine.window();
  if (window.micro_batches + window.passed_over < engine.window_length()) return false;
  end_window<Batch>(engine, kept);
  return true;
}

/// Throws UsageError for a call that needs all windows ended.
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

/// Calls `body` with gradients on; if it throws, abandons the window under way before the exception goes on.
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
