// SPDX-License-Identifier: MIT
// Runs the end of a window as a graph: the check for finite losses, unscaling, clipping and the optimizer's
// step counts. The optimizer's kernels are launched after the graph, not in it, since learning rates and
// options may change. Needs gradients at the addresses to which the graphs of micro-batches write.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/graph/capture_graph.hpp>
#include <looptorch/graph/graph_candidate.hpp>
#include <looptorch/graph/graph_reasons.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/compose/declared_members.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/loss_scale.hpp>
#include <looptorch/loop/step/in_backward.hpp>
#include <looptorch/loop/step/micro_batch.hpp>
#include <looptorch/loop/step/update_step.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// Ends a window of update I by a graph, if its gradients are still in the memory to which the graphs of
/// micro-batches add. `run` replays the graph, and captures it first if necessary. `launch_optimizer` then
/// launches the kernels that change the parameters.
template <std::size_t I, class Engine>
class GraphedEnd {
 public:
  /// `context` belongs to the window's update; no policy has seen it yet.
  GraphedEnd(Engine& engine, MicroBatchGraphs& graphs, UpdateContext& context)
      : engine_(engine), graphs_(graphs), context_(context) {}

  /// Replays the graph, or captures it first, and gives the context its decision. Returns false, and does
  /// nothing, if the window must end eagerly.
  [[nodiscard]] bool run() {
    if constexpr (kIsOurs && !Engine::template kByClosure<I>) {
      EndGraph& end = graphs_.end(I);
      const bool same_gradients = end.graph && end.has_gradients_of(view().parameters);
      if (!same_gradients && !graphs_.keeps_gradients(view().parameters)) return false;
      std::string reason = reason_against_window();
      if (reason.empty() && !(same_gradients && fits(end))) reason = capture_anew(end);
      if (!reason.empty()) return end_eagerly(reason);
      replay(end);
      return true;
    } else {
      return graphs_.keeps_gradients(view().parameters) && end_eagerly(graph_reasons::kOtherOptimizer);
    }
  }

  /// Returns a tensor that is not zero if the window's losses were not finite; undefined: unknown.
  [[nodiscard]] const at::Tensor& non_finite() { return graphs_.end(I).non_finite; }

  /// True if the graph has added the window's losses to the epoch's.
  [[nodiscard]] bool adds_losses() { return graphs_.end(I).adds_losses; }

  /// Launches the optimizer's kernels. Returns whether the update was applied; empty if only the device
  /// knows.
  std::optional<bool> launch_optimizer() {
    if constexpr (kIsOurs) optimizer().finish_step(*graphs_.end(I).step);
    return context_.found_inf().defined() ? std::nullopt : std::optional(true);
  }

 private:
  using Optimizer = std::remove_cvref_t<decltype(*std::declval<Engine&>().template update<I>().optimizer)>;
  static constexpr bool kIsOurs = std::is_base_of_v<AnyOptimizer, Optimizer>;
  static constexpr int kMaxCaptures = 8;

  [[nodiscard]] UpdateWork& work() { return engine_.works()[I]; }
  [[nodiscard]] const UpdateView& view() { return engine_.run().updates()[I]; }
  [[nodiscard]] AnyOptimizer& optimizer() { return *engine_.template update<I>().optimizer; }
  [[nodiscard]] at::Device device() { return with_index(engine_.run().device()); }

  [[nodiscard]] bool end_eagerly(const std::string& reason) {
    ++graphs_.counts.eager_ends[reason];
    return false;
  }

  [[nodiscard]] std::string reason_against_window() {
    if (context_.vetoed()) return graph_reasons::kVetoed;
    if (engine_.window().shared.ranks > 0) return graph_reasons::kSeveralRanks;
    if (applies_in_backward(engine_)) return graph_reasons::kInBackward;
    if (work().weight.is_unread()) return graph_reasons::kWeightsOnDevice;
    if (engine_.watches_losses() && !work().losses.device_sum().defined())
      return graph_reasons::kLossesOnHost;
    std::string reader;
    engine_.stack().template each_with<before_update_hook>([&](auto& slot) {
      using Policy = typename std::remove_reference_t<decltype(slot)>::Policy;
      if (!ignores_gradients<Policy>() && !replayed_update_hook::template valid<Policy>())
        reader = type_name<Policy>();
    });
    return reader.empty() ? "" : message("before_update of ", reader, graph_reasons::kReadsGradients);
  }

  [[nodiscard]] const LossBuffers& losses() { return graphs_.losses(I, device()); }
  /// True if the window's losses can be added in place. A metric sink prevents that: it keeps the sums that
  /// it is given.
  [[nodiscard]] bool may_add_losses() {
    return !engine_.run().sink() && work().losses.device_sum().defined();
  }

  /// True if the graph multiplies gradients by this window's factor.
  [[nodiscard]] bool reads_factor(const EndGraph& end) {
    return end.factor.tensor.defined() || context_.pending().is_one();
  }

  /// True if the graph fits this window; does not compare gradients.
  [[nodiscard]] bool fits(const EndGraph& end) {
    return reads_factor(end) && end.scale.is_same(scale_of(engine_)) && end.adds_losses == may_add_losses() &&
           optimizer().can_begin(end.step.get());
  }

  // ---- Capture ----

  /// Replaces the graph by one for this window. Returns why there is none; empty if there is one.
  [[nodiscard]] std::string capture_anew(EndGraph& end) {
    if (!optimizer().can_begin(nullptr)) return graph_reasons::kNoMoments;
    if (end.graph) end = EndGraph(end.captures);
    if (end.refused.empty()) capture(end);
    return end.graph ? "" : end.refused;
  }

  void capture(EndGraph& end) {
    if (++end.captures > kMaxCaptures) {
      end.refused = graph_reasons::kEndsDiffer;
      return;
    }
    // In a pool of its own: in a shared one, other graphs would overwrite its results.
    auto graph = device_graph_maker(device().type())(device(), nullptr);
    try {
      end.keep_gradients_of(view().parameters);
      if (!context_.pending().is_one()) end.factor = {context_.pending().number(), device()};
      end.scale = scale_of(engine_);
      end.adds_losses = may_add_losses();
      move_sums(end);
      const at::Tensor& factor = end.factor.tensor;
      UpdateContext recorded(engine_.run(), I, GradientScale::read_from(factor), work().gradients);
      capture_without_draws(*graph, device(), [&] { record(end, recorded); });
      end.decision = UpdateAccess::decision(recorded);
      end.graph = std::move(graph);
    } catch (const std::exception& error) {
      end.refused = message(graph_reasons::kFailedEndCapture, first_line(error.what()));
    }
    work().gradients.clear();
  }

  void record(EndGraph& end, UpdateContext& recorded) {
    end.non_finite = unread_non_finite(engine_, work());
    if (end.non_finite.defined()) recorded.veto(end.non_finite);
    engine_.with_loss_scale([&](LossScale& of_losses) { end.overflow = of_losses.divide(recorded); });
    engine_.stack().template each_with<before_update_hook>([&](auto& slot) {
      using Policy = typename std::remove_reference_t<decltype(slot)>::Policy;
      if constexpr (!ignores_gradients<Policy>())
        engine_.stack().template call<before_update_hook>(slot, recorded);
    });
    if (!optimizer().can_fold(recorded.pending())) (void)recorded.gradients();
    end.step = optimizer().begin_step(recorded.pending(), recorded.found_inf());
    if (end.adds_losses) add_losses(recorded.found_inf());
  }

  void add_losses(const at::Tensor& skipped) {
    at::NoGradGuard no_gradients;
    const auto& [sum, weight, zero, epoch] = losses();
    at::Tensor total = epoch;
    total.add_(skipped.defined() ? at::where(skipped.logical_not(), sum, zero) : sum);
  }

  // ---- Replay ----

  /// Moves sums of losses to where the graph reads them and adds to them.
  void move_sums(const EndGraph& end) {
    if (work().losses.device_sum().defined()) work().losses.move_sum_to(losses().sum);
    if (end.adds_losses) engine_.run().updates()[I].loss.move_sum_to(losses().epoch);
  }

  void replay(EndGraph& end) {
    engine_.with_loss_scale([&](LossScale& of_losses) { of_losses.begin_unscale(context_); });
    engine_.stack().template each_with<before_update_hook>([&](auto& slot) {
      using Policy = typename std::remove_reference_t<decltype(slot)>::Policy;
      if constexpr (ignores_gradients<Policy>())
        engine_.stack().template call<before_update_hook>(slot, context_);
    });
    move_sums(end);
    if (end.factor.tensor.defined()) end.factor.set(context_.pending().number());
    end.graph->replay();
    work().graph_ended = true;
    ++graphs_.counts.ends;
    UpdateAccess::decide_as(context_, end.decision);
    engine_.with_loss_scale([&](LossScale& of_losses) { of_losses.note(end.overflow); });
    engine_.stack().template run<replayed_update_hook>(context_);
  }

  Engine& engine_;
  MicroBatchGraphs& graphs_;
  UpdateContext& context_;
};

}  // namespace looptorch::detail
