// SPDX-License-Identifier: MIT
// Runs micro-batches as graphs: the first ones of a form run eagerly, one is captured, and then each is one
// launch. A graph holds forward and backward; graphed_end.hpp makes another one of the window's end. The
// optimizer's kernels, schedules and averages stay outside both. Numbers of the host, such as a loss's
// weight, enter the graph as the gradient of the loss.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/captured_generator.hpp>
#include <looptorch/base/device/generator_state.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch.hpp>
#include <looptorch/graph/batch_signature.hpp>
#include <looptorch/graph/cuda_graph.hpp>
#include <looptorch/graph/gradient_versions.hpp>
#include <looptorch/graph/graph_generator.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/in_backward.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/operations/operation_counter.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/full_like.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// An objective that tells a loss's weight before computing it, and whose arithmetic depends on nothing else
/// that only the host knows.
template <class Objective, class Batch>
concept TellsWeight = requires(const Objective& objective, const Batch& batch) {
  { objective.weight(batch) } -> std::convertible_to<double>;
};

/// Forwards to the observer of training, and notes the loss.
template <class Observer>
struct NotingLoss : MicroBatchObserver {
  NotingLoss(Observer& of_training, Loss& noted) : observer(of_training), loss(noted) {}
  Observer& observer;
  Loss& loss;

  bool take(const Loss& given) { return observer.take(loss = given); }
  at::Tensor scale(const at::Tensor& weighed) { return observer.scale(weighed); }
  void before_backward(const at::Tensor& weighed, double correction) {
    observer.before_backward(weighed, correction);
  }
  void after_backward(const Loss& given) { observer.after_backward(given); }
};

/// Returns the tensor that losses are multiplied by; undefined: none.
template <class Engine>
[[nodiscard]] at::Tensor scale_of(Engine& engine) {
  at::Tensor scale;
  engine.with_loss_scale([&](const auto& of_losses) { scale = of_losses.scale; });
  return scale;
}

/// The observer of a capture: differentiates the bare loss, weighed by the gradient given to it. Hooks get a
/// copy of that, made by the graph: the next replay discards their changes.
template <class Engine>
struct Capturing : MicroBatchObserver {
  Capturing(Engine& of, MicroBatchGraph& captured) : engine(of), entry(captured) {}
  Engine& engine;
  MicroBatchGraph& entry;
  at::Tensor copied;

  at::Tensor weigh(Engine&, UpdateWork&, Loss& given) { return loss_tensor(entry.loss = given); }
  bool take(const Loss&) { return true; }
  at::Tensor scale(const at::Tensor& loss) { return loss; }
  const at::Tensor& root(UpdateWork&, const at::Tensor& loss) {
    const at::NoGradGuard no_gradients;
    copied = engine.watches_losses() ? entry.root.clone() : engine.scaled(entry.root).to(loss.scalar_type());
    return copied;
  }
};

/// Runs one micro-batch of update I. A form of batches, as MicroBatchGraphs keeps them, passes through these
/// states: unseen; warming up, in which micro-batches run eagerly; captured, from then on replayed; or
/// refused, from then on eager.
template <std::size_t I, class Engine, class Batch, class Observer>
class GraphedMicroBatch {
 public:
  GraphedMicroBatch(Engine& engine, MicroBatchGraphs& graphs, const Batch& batch, Observer& observer)
      : engine_(engine), graphs_(graphs), batch_(batch), observer_(observer) {}

  void run() {
    if (const char* const reason = reason_against_all()) return run_eagerly(reason);
    MicroBatchGraph& entry = graphs_.entry(form(), *engine_.model(), engine_.parameters().trained());
    ++entry.seen;
    entry.is_alone = is_alone(engine_, work());
    if (!entry.scale.is_same(scale_of(engine_))) entry.graph.reset();  // a policy's state was loaded
    if (!entry.graph && entry.refused.empty()) {
      if (entry.seen <= graphs_.warmup) return warm_up(entry);
      if (graphs_.size() >= graphs_.max_graphs)
        return run_eagerly("there are as many graphs as max_graphs allows");
      capture(entry);
    }
    if (!entry.graph) return run_eagerly(entry.refused);
    if (!entry.loss.weight.is_known() && !is_alone(engine_, work()))
      return run_eagerly("the losses' weights lie on the device");
    replay(entry);
  }

 private:
  using Objective = std::remove_cvref_t<decltype(std::declval<Engine&>().template update<I>().objective)>;
  static constexpr bool kTellsWeight = TellsWeight<Objective, Batch>;

  [[nodiscard]] UpdateWork& work() { return engine_.works()[I]; }
  [[nodiscard]] const UpdateView& view() { return engine_.run().updates()[I]; }
  [[nodiscard]] at::Device device() { return engine_.run().device(); }
  [[nodiscard]] DeviceGraphMaker maker() { return device_graph_maker(device().type()); }

  /// Returns why no micro-batch of this fit, or of this window, becomes a graph; null if one may.
  [[nodiscard]] const char* reason_against_all() {
    if (!maker()) return "this device has no graphs";
    if (engine_.window().ranks > 0) return "gradients are summed over several ranks";
    if (Engine::template kByClosure<I>) return "the optimizer evaluates the loss again";
    if (applies_in_backward(engine_)) return "parameters are updated during backward";
    if (work().pieces > 1) return "memory ran out, and micro-batches come in pieces";
    if (work().weight.is_unread() && !is_alone(engine_, work()))
      return "the losses' weights lie on the device";
    return reason_against(batch_);
  }

  void run_eagerly(const std::string& reason) {
    ++graphs_.counts.eager;
    ++graphs_.counts.reasons[reason];
    run_micro_batch<I>(engine_, batch_, observer_);
  }

  // ---- The form of a graph ----

  [[nodiscard]] std::string form() {
    std::string form = form_of(batch_);
    append_bytes(form, I);
    append_bytes(form, is_alone(engine_, work()));
    if constexpr (!kTellsWeight) append_host_values(form, batch_, sees_all_);
    if constexpr (kTellsWeight) append_structure(form, batch_);
    return form;
  }

  // ---- The first ones ----

  void warm_up(MicroBatchGraph& entry) {
    ++graphs_.counts.eager;
    const GradientVersions before(view().parameters);
    const CapturedGenerator random(at::detail::getDefaultCPUGenerator()), there(default_generator(device()));
    Loss loss;
    NotingLoss<Observer> noting(observer_, loss);
    run_micro_batch<I>(engine_, batch_, noting);
    if (!random.same(CapturedGenerator(at::detail::getDefaultCPUGenerator())))
      entry.refused = "the objective or the model draws random numbers on the host";
    entry.draws = entry.draws || !there.same(CapturedGenerator(default_generator(device())));
    if (!sees_all_) entry.refused = "the batch's type has each_tensor, and its objective no weight(batch)";
    if (!loss.weight.is_known() && (!is_alone(engine_, work()) || loss.sum.defined()))
      entry.refused = "the loss's weight lies on the device";
    if (!loss_tensor(loss).defined() || work().at_fault) return void(--entry.seen);  // it shows no gradients
    if (!graphs_.lies_on(with_index(device()))) entry.refused = "the model lies on several devices";
    if (!tells_weight_of(loss))
      entry.refused = "the objective's weight(batch) is another weight than its loss has";
    entry.loss_like = loss_tensor(loss).detach();
    entry.targets.clear();
    for (const at::Tensor& parameter : before.reached()) {
      if (parameter.grad().layout() != at::kStrided) entry.refused = "gradients are sparse";
      entry.targets.push_back({parameter, {}});
    }
  }

  [[nodiscard]] double told_weight() {
    return static_cast<double>(engine_.template update<I>().objective.weight(batch_));
  }
  [[nodiscard]] bool tells_weight_of(const Loss& loss) {
    if constexpr (kTellsWeight) return !loss.weight.is_known() || loss.weight.number() == told_weight();
    return true;
  }

  // ---- Capture ----

  void capture(MicroBatchGraph& entry) {
    const GradientHandles gradients(view().parameters);
    const CapturedGenerator random(at::detail::getDefaultCPUGenerator());
    auto graph = graphs_.make(maker(), device());
    entry.slots.clear();
    entry.generator = GraphGenerator(device());
    try {
      prepare(entry);
      const GradientVersions before(view().parameters);
      const OperationCounter counter(/*alone=*/true);
      record(entry, *graph);
      entry.operations = counter.count();
      if (!reached_targets(before, entry)) entry.refused = "backward reached other parameters than before";
    } catch (const std::exception& error) {
      entry.refused = message("it cannot be captured: ", first_line(error.what()));
    } catch (...) {
      entry.refused = "it cannot be captured: an unknown exception";
    }
    if (entry.refused.empty() && !random.same(CapturedGenerator(at::detail::getDefaultCPUGenerator())))
      entry.refused = "the objective or the model draws random numbers on the host";
    if (!entry.refused.empty()) {  // a capture never runs, so no gradient has changed
      entry.generator.give_up();
      gradients.put_back();
      entry.loss = {};
      entry.slots.clear();
      return;
    }
    entry.graph = std::move(graph);
    ++graphs_.counts.graphs;
  }

  /// Makes the memory that the graph reads and writes, outside of its pool.
  void prepare(MicroBatchGraph& entry) {
    at::NoGradGuard no_gradients;
    for (auto& [parameter, gradient] : entry.targets) gradient = graphs_.gradient_of(parameter);
    MicroBatchGraphs::attach(entry.targets, entry.is_alone);
    entry.root = at::full_like(entry.loss_like, entry.factor = 1);
    entry.scale = scale_of(engine_);
    (void)place();
    empty_cache(device());  // the graph's own pool cannot use blocks left by eager micro-batches
  }

  void record(MicroBatchGraph& entry, DeviceGraph& graph) {
    Batch slots = batch_;
    for_each_tensor(slots, [&](at::Tensor& tensor) {
      if (tensor.defined()) entry.slots.emplace_back(tensor = tensor.detach().clone());
    });
    MicroBatchGraphs::record(graph, device(), entry.draws, [&] {
      if (entry.is_alone) set_to_zero(entry);
      Capturing<Engine> capturing(engine_, entry);
      run_micro_batch<I>(engine_, std::as_const(slots), capturing);
      detach(entry.loss);
      if (entry.is_alone && entry.loss.weight.is_known()) place().set_sum(entry.loss);
    });
  }

  static void set_to_zero(const MicroBatchGraph& entry) {
    at::NoGradGuard no_gradients;
    std::vector<at::Tensor> gradients;
    for (const auto& [parameter, gradient] : entry.targets) gradients.push_back(gradient);
    at::_foreach_zero_(gradients);
  }
  [[nodiscard]] LossPlace& place() { return graphs_.losses(I, with_index(device())); }

  static void detach(Loss& loss) {
    if (loss.value.defined()) loss.value = loss.value.detach();
    if (loss.sum.defined()) loss.sum = loss.sum.detach();
  }

  /// True if the captured backward adds to the targets' gradients, and to no others.
  [[nodiscard]] bool reached_targets(const GradientVersions& before, const MicroBatchGraph& entry) const {
    const std::vector<at::Tensor> reached = before.reached();
    if (reached.size() != entry.targets.size()) return false;
    for (std::size_t i = 0; i < reached.size(); ++i)
      if (!reached[i].is_same(entry.targets[i].parameter) ||
          !reached[i].grad().is_same(entry.targets[i].gradient))
        return false;
    return true;
  }

  // ---- Replay ----

  void replay(MicroBatchGraph& entry) {
    Loss loss = entry.loss;
    if constexpr (kTellsWeight)
      if (loss.weight.is_known()) loss.weight = told_weight();
    loss = as_loss(std::move(loss));
    const double slope = slope_of(loss);
    if (slope == 0) return run_eagerly("the batch weighs nothing");
    engine_.in_phase(
        RunPhase::backward, "graph",
        [&] {
          rescale_gradients(view(), work(), work().weight.take_correction());
          MicroBatchGraphs::attach(entry.targets, entry.is_alone);
          fill(entry);
          set_numbers(entry, slope, loss.weight);
          entry.generator.before_replay();
          entry.graph->replay();
          OperationCounter::add(entry.operations);
          entry.generator.after_replay();
        },
        I);
    if (!loss.weight.is_known()) (void)work().weight.weigh_alone(loss);
    if (entry.is_alone && loss.weight.is_known()) work().losses.expect_sum(place().sum);
    if (observer_.take(loss)) observer_.after_backward(loss);
    ++graphs_.counts.replayed;
  }

  /// Counts the micro-batch, and returns the factor of its loss; 0 if it teaches nothing.
  [[nodiscard]] double slope_of(const Loss& loss) {
    if (!loss.weight.is_known()) return 1;
    return is_alone(engine_, work()) ? work().weight.slope_alone(loss) : work().weight.slope(loss);
  }

  /// Sets the gradient of the loss, which the graph multiplies by the loss scale, and the loss's weight.
  void set_numbers(MicroBatchGraph& entry, double slope, const Quantity& weight) {
    at::NoGradGuard no_gradients;
    if (std::exchange(entry.factor, slope) != slope) entry.root.fill_(slope);
    if (entry.is_alone && weight.is_known()) place().set_weight(weight.number());
  }

  void fill(MicroBatchGraph& entry) {
    at::NoGradGuard no_gradients;
    std::size_t slot = 0;
    for_each_tensor(batch_, [&](const at::Tensor& tensor) {
      if (tensor.defined()) entry.slots[slot++].copy_(tensor, /*non_blocking=*/true);
    });
  }

  Engine& engine_;
  MicroBatchGraphs& graphs_;
  const Batch& batch_;
  Observer& observer_;
  bool sees_all_ = true;
};

}  // namespace looptorch::detail
