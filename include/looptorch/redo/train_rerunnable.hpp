// SPDX-License-Identifier: MIT
// Trains on a micro-batch of a window that may be rerun, in the first run and in retries. Does what
// `train_micro_batch` does (loop/step/micro_batch.hpp), and also saves the state to which a rollback returns,
// notes overflows for seek_scale.hpp, and splits a kept batch into pieces after memory ran out.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/data/batch/batch_slice.hpp>
#include <looptorch/data/loader/batch_range.hpp>
#include <looptorch/loop/compose/check_split.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/optim/gradients/finite_gradients.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/redo/batch_watch.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Saves the update's initial state, once a window, if the window may be retried or skipped.
template <std::size_t I, class Engine>
void save_window_start(Engine& engine) {
  const bool may_be_redone = may_split(engine) || may_rerun(engine) || may_seek_scale<I>(engine);
  const bool may_be_skipped = judges_losses(engine) && engine.window().may_redo;
  if (may_be_redone || may_be_skipped)
    engine.redo().window_start.save(engine.redo().buffers_of(*engine.model()), engine.works()[I],
                                    may_be_redone);
}

/// The observer of training that notes whether gradients overflow, while the first loss scale is sought.
template <std::size_t I, class Engine>
class OverflowObserver : public TrainingObserver<I, Engine> {
 public:
  using TrainingObserver<I, Engine>::TrainingObserver;

  /// Notes whether gradients overflow, and whether the loss itself did. Waits for the device.
  void after_backward(const Loss& loss) {
    if (!may_seek_scale<I>(this->engine_)) return;
    UpdateWork& work = this->work();
    collect_gradients(this->engine_.run().updates()[I].parameters, work.gradients);
    if (any_non_finite(work.gradients)) {
      work.overflowed = true;
      work.loss_overflowed |= !std::isfinite(loss_tensor(loss).template item<double>());
    }
    work.gradients.clear();
  }
};

/// Does what `train_micro_batch` does, in a window that may be rerun.
template <std::size_t I, class Engine, class Batch>
void train_rerunnable(Engine& engine, const Batch& batch, std::size_t number, bool is_last = false) {
  if (engine.works()[I].fault.micro_batch) return;
  save_window_start<I>(engine);
  if constexpr (RedoReasons<Engine>::kSeeksScale)
    train_on<I>(engine, batch,
                OverflowObserver<I, Engine>(engine, number, is_last && !may_seek_scale<I>(engine)));
  else
    train_on<I>(engine, batch, TrainingObserver<I, Engine>(engine, number, is_last));
}

/// True if a batch can be split, and its pieces add up for each update.
template <class Engine, class Batch>
inline constexpr bool kCanSplit = RedoReasons<Engine>::kSplits&&
    can_split<std::remove_cvref_t<decltype(std::declval<Engine&>().model())>, Batch,
              std::remove_cvref_t<decltype(std::declval<Engine&>().updates())>>;

/// Calls `use(part)` for each of the pieces of a batch of at least one sample.
template <class Batch, class Use>
void for_each_piece(const Batch& batch, std::int64_t pieces, Use&& use) {
  const std::int64_t samples = batch_size(batch);
  if (pieces <= 1 || samples <= 1) return use(batch);
  const std::int64_t length = (samples + pieces - 1) / pieces;
  for (std::int64_t begin = 0; begin < samples; begin += length)
    use(slice_batch(batch, begin, std::min(begin + length, samples)));
}

/// Calls `use(piece)` for each piece of a kept micro-batch of update I.
template <std::size_t I, class Engine, class Batch, class Use>
void each_piece(Engine& engine, Batch& batch, Use&& use) {
  if constexpr (kCanSplit<Engine, Batch>)
    for_each_piece(batch, engine.works()[I].pieces, use);
  else
    use(batch);
}

/// Trains on kept micro-batch `number`, moved to the model's device piece by piece.
template <std::size_t I, class Engine, class Batch>
void train_kept_batch(Engine& engine, Batch& batch, std::size_t number, bool is_last = false) {
  const BatchWatch watch(engine.redo(), batch);
  at_place(engine, number, [&] {
    each_piece<I>(engine, batch, [&](auto&& piece) {
      with_batch_on(engine.run().device(), engine.window().pinned, piece,
                    [&](const auto& there) { train_rerunnable<I>(engine, there, number, is_last); });
    });
  });
}

/// Trains update I on all of the window's kept batches, in the turns and shards that ranks gave them.
template <std::size_t I, class Engine, class Batch>
void train_kept_window(Engine& engine, std::vector<Batch>& kept) {
  for (std::size_t number = 0; number < kept.size(); ++number) {
    // Sums over ranks begin within the last backward, unless that could be split or another batch could
    // follow.
    const bool is_last = !Engine::kStreams && !may_split(engine) && number + 1 == kept.size();
    if (!engine.ranks() || !Engine::kStreams) {
      train_kept_batch<I>(engine, kept[number], number, is_last);
    } else {
      const std::int64_t in_epoch = engine.window().origin.narrowed(number).place().first_batch;
      engine.ranks().join_micro_batch(engine, in_epoch - engine.progress().batch,
                                      [&] { train_kept_batch<I>(engine, kept[number], number); });
    }
  }
}

}  // namespace looptorch::detail
