// SPDX-License-Identifier: MIT
// Runs one micro-batch of one update: forward, loss, weight, backward. Training, closures, retries, dry steps
// and replays all call `run_micro_batch`. Each passes an observer for what it does differently, such as
// scaling the loss or stopping before backward.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/in_backward.hpp>
#include <looptorch/loop/step/non_finite.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/window_state.hpp>
#include <looptorch/loop/update.hpp>
#include <looptorch/memory/recompute/layer_watch.hpp>
#include <looptorch/memory/recompute/saving_block_watch.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/optim/gradients/batched_gradient_sums.hpp>
#include <looptorch/optim/gradients/frozen_scope.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/logical_or.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Multiplies the gradients of the window's earlier micro-batches by `factor`, a power of two. Needed when
/// the unit of weights has grown.
inline void rescale_gradients(const UpdateView& view, UpdateWork& work, double factor) {
  if (factor == 1) return;
  GradientScale scale;
  scale.multiply(factor);
  collect_gradients(view.parameters, work.gradients);
  scale.flush(work.gradients);
  work.gradients.clear();
}

/// Throws UsageError for a value to differentiate that has no graph; `type` is the loss's.
inline void require_graph(const at::Tensor& weighed, at::ScalarType type, const UpdateView& view) {
  if (weighed.requires_grad()) return;
  if (!at::isFloatingType(type))
    throw UsageError(message("the loss of ", view.name, " is of type ", type,
                             ", which has no gradient: return a floating-point tensor"));
  if (weighed.is_inference())
    throw UsageError(message("the loss of ", view.name,
                             " has no gradient, since it was computed in c10::InferenceMode: end it before "
                             "training, or use torch::NoGradGuard in its place"));
  throw UsageError(
      message("the loss of ", view.name,
              " does not depend on any parameter that its optimizer trains; is the optimizer made "
              "from this model's parameters, is nothing detached, and are any of them unfrozen?"));
}

/// True if the window is one whole micro-batch on one process, which needs no weighing.
template <class Engine>
[[nodiscard]] bool is_whole_window(Engine& engine, const UpdateWork& work) {
  return engine.window().shared.ranks == 0 && work.pieces == 1 && engine.window_length() == 1;
}

/// Returns the factor that turns the sum of differentiated values, and its gradients, into the window's mean
/// and gradients.
template <std::size_t I, class Engine>
[[nodiscard]] GradientScale window_scale(Engine& engine) {
  const UpdateWork& work = engine.works()[I];
  return is_whole_window(engine, work) ? GradientScale{} : work.weight.scale();
}

/// Returns the value to differentiate; undefined if the micro-batch contributes no gradient. Where ranks must
/// add weights up, waits for and reads a weight on a device.
template <class Engine>
[[nodiscard]] at::Tensor weigh(Engine& engine, UpdateWork& work, Loss& loss) {
  if (engine.window().shared.ranks > 0 && !loss.weight.is_known())
    loss.weight = loss.weight.tensor().template item<double>();
  return is_whole_window(engine, work) ? work.weight.weigh_alone(loss) : work.weight.weigh(loss);
}

/// The base of observers. run_micro_batch calls, in this order: `may_keep_casts`, `weigh` (returns the value
/// to differentiate; undefined: none), `accept` (whether to differentiate it), `scale` (returns the loss to
/// differentiate), `before_backward`, `root` (returns the gradient that backward begins with) and
/// `after_backward`. Each observer adds `accept` and `scale`.
struct MicroBatchObserver {
  template <class Engine>
  at::Tensor weigh(Engine& engine, UpdateWork& work, Loss& loss) {
    return detail::weigh(engine, work, loss);
  }
  /// True if the window's next micro-batch uses the same weights.
  [[nodiscard]] static bool may_keep_casts() { return false; }
  const at::Tensor& root(UpdateWork& work, const at::Tensor& scaled) { return work.root.of(scaled); }
  void before_backward(const at::Tensor&, double) {}
  void after_backward(const Loss&) {}
};

/// Adds the gradients of a micro-batch, which is on the model's device, to update I's window.
template <std::size_t I, class Engine, class Batch, class Observer>
void run_micro_batch(Engine& engine, const Batch& batch, Observer&& observer) {
  UpdateView& view = engine.run().updates()[I];
  UpdateWork& work = engine.works()[I];
  const FrozenScope frozen(engine.parameters().outside(I));
  DerivedWeights& derived = engine.window().derived;
  derived.drop_if_changed(view.parameters);
  std::shared_ptr<void>* const kept = observer.may_keep_casts() ? derived.place(view.parameters) : nullptr;
  const SavingBlockWatch saving_blocks;
  Loss loss = engine.in_phase(
      RunPhase::forward, "forward",
      [&] {
        return as_loss(engine.forward(engine.template update<I>().objective, batch, /*training=*/true, kept));
      },
      I);
  // Blocks that save memory cast again in backward, so casts kept from forward would only add to the peak.
  if (!kept || saving_blocks.saw_one()) derived.drop();
  derived.drop_if_changed(view.parameters);
  const at::Tensor weighed = observer.weigh(engine, work, loss);
  if (!weighed.defined() || !observer.accept(loss)) return;
  require_graph(weighed, loss_tensor(loss).scalar_type(), view);
  engine.in_phase(
      RunPhase::backward, "backward",
      [&] {
        const at::Tensor scaled = observer.scale(weighed);
        if (LayerWatch* const watch = engine.layer_watch()) watch->check(scaled);
        const double correction = work.weight.take_correction();
        rescale_gradients(view, work, correction);
        observer.before_backward(weighed, correction);
        BatchedGradientSums sums(computes_on_cpu(engine.run().device()) ? std::vector<at::Tensor>()
                                                                        : view.parameters);
        scaled.backward(observer.root(work, scaled));
        sums.add();
      },
      I);
  observer.after_backward(loss);
}

/// Calls `body` for micro-batch `number` of the window. Adds the place to LibTorch's errors: "Target 4 is out
/// of bounds. (in step 3, batch 3 of epoch 0 (samples 213, 6))".
template <class Engine, class Body>
void at_place(Engine& engine, std::size_t number, Body&& body) {
  with_context(std::forward<Body>(body),
               [&] { return "in " + engine.window().origin.narrowed(number).place().text(); });
}

/// True for a loss on the CPU that is NaN or infinite. Losses on a device are checked at the window's end.
template <class Engine>
[[nodiscard]] bool is_known_non_finite(Engine& engine, const Loss& loss) {
  const at::Tensor& value = loss_tensor(loss);
  return engine.watches_losses() && computes_on_cpu(value) && !std::isfinite(cpu_number(value));
}

/// Returns a 0-dim tensor, not zero if one of the window's losses, all on a device, is NaN or infinite:
/// their sum then is too. Undefined on a CPU.
template <class Engine>
[[nodiscard]] at::Tensor unread_non_finite(Engine& engine, const UpdateWork& work) {
  const at::Tensor& sum = work.losses.device_sum();
  if (!engine.watches_losses() || !sum.defined() || computes_on_cpu(sum) || sum.is_meta()) return {};
  return zero_if_finite(sum);
}

/// Returns a 0-dim tensor, not zero if the window's losses so far are not finite or have no weight. Undefined
/// if the host knows both.
template <class Engine>
[[nodiscard]] at::Tensor unread_veto(Engine& engine, const UpdateWork& work) {
  const at::Tensor non_finite = unread_non_finite(engine, work), empty = work.weight.unread_empty();
  if (!non_finite.defined() || !empty.defined()) return non_finite.defined() ? non_finite : empty;
  return at::logical_or(non_finite, on_device_of(non_finite, empty));
}

/// The observer of training: adds a loss to the window's means, or marks it as at fault.
template <std::size_t I, class Engine>
class TrainingObserver : public MicroBatchObserver {
 public:
  /// `number` counts the window's micro-batches; `is_last` if none is known to follow.
  TrainingObserver(Engine& engine, std::size_t number, bool is_last)
      : engine_(engine), number_(number), is_last_(is_last) {}

  [[nodiscard]] bool accept(const Loss& loss) {
    if (is_known_non_finite(engine_, loss)) {
      work().fault.micro_batch = number_;
      if (MetricSink* const sink = engine_.run().sink())
        sink->record(I, "loss", cpu_number(loss_tensor(loss)));
      return false;
    }
    work().losses.add(loss);
    return true;
  }

  [[nodiscard]] at::Tensor scale(const at::Tensor& weighed) { return engine_.scaled(weighed); }

  /// False for split batches, since memory is short; for graphs; for a closure, which moves weights; and in a
  /// caller's own loop, which may change weights between micro-batches.
  [[nodiscard]] bool may_keep_casts() {
    if constexpr (!Engine::PolicyStack::template has<forward_scope_hook>() || Engine::template kByClosure<I>)
      return false;
    else
      return !is_last_ && static_cast<std::int64_t>(number_) + 1 < engine_.window_length() &&
             engine_.window().in_epoch && !engine_.graphs() && (!may_split(engine_) || work().pieces == 1);
  }

  void before_backward(const at::Tensor& weighed, double correction) {
    if constexpr (Engine::template kByClosure<I>) work().add_to_closure_sum(weighed, correction);
    if (applies_in_backward(engine_))
      announce_backward<I>(engine_, correction, window_scale<I>(engine_), unread_veto(engine_, work()));
    if (is_last_) engine_.ranks().template expect_sums<I>(engine_);
  }

 protected:
  [[nodiscard]] UpdateWork& work() { return engine_.works()[I]; }

  Engine& engine_;
  std::size_t number_;

 private:
  bool is_last_;
};

/// Runs micro-batches as graphs if possible; defined in graph/graphed_micro_batch.hpp, which headers of
/// policies with graphs include.
template <std::size_t I, class Engine, class Batch, class Observer>
class GraphedMicroBatch;

/// Runs a micro-batch of training: as a graph, if a listed policy keeps graphs.
template <std::size_t I, class Engine, class Batch, class Observer>
void train_on(Engine& engine, const Batch& batch, Observer&& observer) {
  if constexpr (Engine::PolicyStack::template has<graphs_hook>())
    if (MicroBatchGraphs* const graphs = engine.graphs())
      return GraphedMicroBatch<I, Engine, Batch, std::remove_reference_t<Observer>>(engine, *graphs, batch,
                                                                                    observer)
          .run();
  run_micro_batch<I>(engine, batch, observer);
}

/// Learns from a micro-batch, unless an earlier loss is NaN or infinite: the update is then skipped anyway.
template <std::size_t I, class Engine, class Batch>
void train_micro_batch(Engine& engine, const Batch& batch, std::size_t number, bool is_last = false) {
  if (engine.works()[I].fault.micro_batch) return;
  train_on<I>(engine, batch, TrainingObserver<I, Engine>(engine, number, is_last));
}

}  // namespace looptorch::detail
