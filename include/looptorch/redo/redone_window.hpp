// SPDX-License-Identifier: MIT
// Implements the kind of window that may be retried, examined or skipped; read this header first. A Trainer
// that lists a policy such as RetryOnOom, Autopsy, SkipBadWindows or Autocast<fp16> has it (window_kind_t in
// loop/step/window.hpp). While such a policy is on, RedoneWindow keeps the window's batches and each update's
// initial state, to which a rollback returns. The words of this folder:
//
//   roll back     return to the window's start: WindowStart in loop/step/redo_state.hpp
//   retry         repeat a window to make its update: retry.hpp after memory ran out, in smaller pieces, and
//                 seek_scale.hpp after an overflow, with a lower loss scale; train_rerunnable.hpp runs
//                 the micro-batches of both
//   traced rerun  repeat a window to find what made a NaN, without an update: traced_rerun.hpp
//   judge         decide before the update whether the window counts: judge_window.hpp
//   closure       evaluate the loss again within an optimizer's step: closure_step.hpp
#pragma once

#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/kept_window.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/streamed_window.hpp>
#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/redo/batch_watch.hpp>
#include <looptorch/redo/closure_step.hpp>
#include <looptorch/redo/judge_window.hpp>
#include <looptorch/redo/retry.hpp>
#include <looptorch/redo/seek_scale.hpp>
#include <looptorch/redo/train_rerunnable.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A rerun of the window for one update, with its operators traced; defined in redo/traced_rerun.hpp,
/// which the headers of policies that keep windows include.
template <std::size_t I, class Engine, class Batch>
class TracedRerun;

/// Gives policies a rerun of the window while it lives.
class ScopedRerun {
 public:
  ScopedRerun(WindowRerun*& slot, WindowRerun* rerun) : slot_(slot) { slot_ = rerun; }
  ~ScopedRerun() { slot_ = nullptr; }
  ScopedRerun(const ScopedRerun&) = delete;
  ScopedRerun& operator=(const ScopedRerun&) = delete;

 private:
  WindowRerun*& slot_;
};

/// A window that may be rerun. RedoReasons (loop/step/redo_state.hpp) says what the policies of the stack
/// need it for, such as `kSplits` for RetryOnOom, `kExamines` for Autopsy and SkipBadWindows, and
/// `kSeeksScale` for fp16's first scale.
template <class Engine>
struct RedoneWindow {
  using Redo = RedoReasons<Engine>;
  template <class Batch>
  using Kept = std::vector<Batch>;

  static void begin(Engine& engine) {
    if constexpr (Redo::kSplits)
      for (UpdateWork& work : engine.works()) work.pieces = pieces_of(engine), work.attempts = 1;
    if constexpr (Engine::kStreams) save_on_ranks<0>(engine);
  }

  /// Takes a micro-batch, and learns from it if the window has one update.
  template <class Batch, class Given>
  static void add(Engine& engine, std::vector<Batch>& kept, Given&& batch) {
    if constexpr (!Engine::kStreams) {
      KeptWindow<Engine>::add(engine, kept, std::forward<Given>(batch));
    } else {
      if constexpr (Redo::kSplits)
        if (may_split(engine)) return add_splitting(engine, kept, std::forward<Given>(batch));
      if (!engine.works()[0].due) return;
      keep_if_rerun(engine, kept, std::forward<Given>(batch), [&](auto& learnt) {
        StreamedWindow<Engine>::learn_on_device(engine, learnt,
                                                [&](const auto& there, std::size_t number, bool is_last) {
                                                  train_rerunnable<0>(engine, there, number, is_last);
                                                });
      });
    }
  }

  /// Finishes the window before ranks reduce it.
  template <class Batch>
  static void complete(Engine& engine, std::vector<Batch>& kept) {
    if constexpr (Engine::kStreams) seek_scale<0>(engine, kept);
  }

  /// Makes update I of the window.
  template <std::size_t I, class Batch>
  static void finish(Engine& engine, std::vector<Batch>& kept) {
    if constexpr (!Engine::kStreams) {
      save_on_ranks<I>(engine);
      with_retries<I>(engine, kept, [&] { train_kept_window<I>(engine, kept); });
      seek_scale<I>(engine, kept);
      engine.ranks().template reduce_update<I>(engine);
    }
    engine.in_phase(
        RunPhase::update, "update", [&] { update_with_rerun<I>(engine, kept); }, I);
    engine.redo().forget_window();
  }

  static void abandon(Engine& engine) { engine.redo().forget_window(); }

  /// Adds a batch of an evaluation to its sums, in pieces if memory runs out and a policy retries.
  template <class Measure, class Batch>
  static void measure(Engine& engine, Measure& measure, const Batch& batch, EvaluationSums& sums) {
    using Model = std::remove_reference_t<decltype(engine.model())>;
    if constexpr (Redo::kSplits && SliceableBatch<Batch> &&
                  std::is_same_v<std::invoke_result_t<Measure&, Model&, const Batch&>, Loss>)
      if (may_split(engine)) return measure_with_retries(engine, measure, batch, sums);
    StreamedWindow<Engine>::measure(engine, measure, batch, sums);
  }

 private:
  /// Saves the state on all ranks, also on one that has no batch in the window: if the window is skipped, all
  /// go back to the same buffers and the same unit of weights.
  template <std::size_t I>
  static void save_on_ranks(Engine& engine) {
    if (engine.ranks() && engine.works()[I].due) save_window_start<I>(engine);
  }

  /// Takes a micro-batch, and keeps it on its device in case memory runs out.
  template <class Batch, class Given>
  static void add_splitting(Engine& engine, std::vector<Batch>& kept, Given&& batch) {
    kept.push_back(std::forward<Given>(batch));
    if (!engine.works()[0].due) return;
    bool is_detached = false;
    const auto detach = [&] {
      detach_from_range(engine, kept.back());
      is_detached = true;
    };
    engine.ranks().join_micro_batch(engine, engine.window().next_number(), [&] {
      with_retries<0>(engine, kept, [&] {
        train_kept_batch<0>(engine, kept.back(), kept.size() - 1);
        detach();  // memory may run out here, too
      });
    });
    if (!is_detached) detach();
  }

  /// Calls `learn(batch)`. If the window may be rerun, first keeps the batch, and passes the kept batch.
  template <class Batch, class Given, class Learn>
  static void keep_if_rerun(Engine& engine, std::vector<Batch>& kept, Given&& batch, const Learn& learn) {
    if constexpr (kKeepsForScale<Engine, Batch>)
      if (may_seek_scale<0>(engine)) {
        detach_from_range(engine, kept.emplace_back(std::forward<Given>(batch)));
        const BatchWatch watch(engine.redo(), kept.back());
        return learn(kept.back());
      }
    if constexpr (Redo::kExamines)
      if (may_rerun(engine)) {
        detach_from_range(engine, kept.emplace_back(std::forward<Given>(batch)));
        return learn(kept.back());
      }
    learn(batch);
  }

  /// Makes update I while policies may examine its window.
  template <std::size_t I, class Batch>
  static void update_with_rerun(Engine& engine, std::vector<Batch>& kept) {
    if constexpr (Redo::kExamines && is_included<WindowCode, Engine>) {
      TracedRerun<I, Engine, Batch> traced(engine, engine.redo().window_start, kept);
      const ScopedRerun scope(engine.redo().rerun, may_rerun(engine) ? &traced : nullptr);
      update<I>(engine, kept);
    } else {
      update<I>(engine, kept);
    }
  }

  template <std::size_t I, class Batch>
  static void update(Engine& engine, std::vector<Batch>& kept) {
    if constexpr (Engine::template kByClosure<I>) {
      finish_update<I>(engine, MoveByClosure<I, Engine, Batch>(engine, kept), WindowJudge<I, Engine>(engine));
    } else {
      if constexpr (Redo::kSplits)
        if (may_split(engine)) return finish_update_with_retries<I>(engine, kept);
      finish_update<I>(engine, MoveByStep{}, WindowJudge<I, Engine>(engine));
    }
  }
};

}  // namespace looptorch::detail
