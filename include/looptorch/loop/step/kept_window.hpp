// SPDX-License-Identifier: MIT
// Implements the kind of window that keeps its batches on the model's device until the window ends. Then each
// update in turn trains on all of them. Used by Trainers with several updates, or with an optimizer that
// evaluates the loss several times, such as LBFGS. If a policy may rerun windows, RedoneWindow is used
// instead. window.hpp chooses the kind, and documents the functions that each kind has.
#pragma once

#include <looptorch/data/batch/batch.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/streamed_window.hpp>
#include <looptorch/loop/step/update_step.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Moves parameters by an optimizer that evaluates its loss again; defined in redo/closure_step.hpp.
template <std::size_t I, class Engine, class Batch>
class MoveByClosure;

/// Clones a kept batch's tensors if its range may refill them before the window ends.
template <class Engine, class Batch>
void detach_from_range(Engine& engine, Batch& kept) {
  if (engine.window_length() == 1 || !engine.window().refills) return;
  for_each_tensor(kept, [](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.detach().clone();
  });
}

template <class Engine>
struct KeptWindow : StreamedWindow<Engine> {
  template <class Batch>
  using Kept = std::vector<Batch>;

  template <class Batch, class Given>
  static void add(Engine& engine, std::vector<Batch>& kept, Given&& batch) {
    kept.push_back(std::forward<Given>(batch));
    const at::Device device = engine.run().device();
    if (is_on(kept.back(), device)) return detach_from_range(engine, kept.back());
    at_place(engine, kept.size() - 1, [&] { move_to(kept.back(), device, engine.window().pinned); });
  }

  template <class Batch>
  static void complete(Engine&, std::vector<Batch>&) {}

  template <std::size_t I, class Batch>
  static void finish(Engine& engine, std::vector<Batch>& kept) {
    for (std::size_t number = 0; number < kept.size(); ++number)
      at_place(engine, number, [&] {
        train_micro_batch<I>(engine, kept[number], number, /*is_last=*/number + 1 == kept.size());
      });
    engine.ranks().template reduce_update<I>(engine);
    engine.in_phase(
        RunPhase::update, "update",
        [&] {
          if constexpr (Engine::template kByClosure<I>)
            finish_update<I>(engine, MoveByClosure<I, Engine, Batch>(engine, kept));
          else
            finish_update<I>(engine, MoveByStep{});
        },
        I);
  }
};

}  // namespace looptorch::detail
