// SPDX-License-Identifier: MIT
// Decides whether a micro-batch may run as a graph, and if not, returns the reason. Also computes the
// micro-batch's form (its shapes, types and values on the host): micro-batches of one form share a graph.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/graph/batch_form.hpp>
#include <looptorch/graph/cuda_graph.hpp>
#include <looptorch/graph/graph_reasons.hpp>
#include <looptorch/graph/micro_batch_graphs.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/engine.hpp>
#include <looptorch/loop/step/in_backward.hpp>
#include <looptorch/loop/step/micro_batch.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// An objective that returns a loss's weight before it computes the loss. Its arithmetic must depend on no
/// other value of the batch that only the host knows.
template <class Objective, class Batch>
concept HasHostWeight = requires(const Objective& objective, const Batch& batch) {
  { objective.weight(batch) } -> std::convertible_to<double>;
};

/// Returns the tensor that losses are multiplied by; undefined: none.
template <class Engine>
[[nodiscard]] at::Tensor scale_of(Engine& engine) {
  at::Tensor scale;
  engine.with_loss_scale([&](const auto& of_losses) { scale = of_losses.scale; });
  return scale;
}

/// A micro-batch of update I, and the graphs of its Trainer.
template <std::size_t I, class Engine, class Batch>
struct GraphCandidate {
  using Objective = std::remove_cvref_t<decltype(std::declval<Engine&>().template update<I>().objective)>;
  static constexpr bool kHasHostWeight = HasHostWeight<Objective, Batch>;

  Engine& engine;
  MicroBatchGraphs& graphs;
  const Batch& batch;

  [[nodiscard]] UpdateWork& work() { return engine.works()[I]; }
  [[nodiscard]] const UpdateView& view() { return engine.run().updates()[I]; }
  [[nodiscard]] at::Device device() { return engine.run().device(); }
  [[nodiscard]] DeviceGraphMaker maker() { return device_graph_maker(device().type()); }
  [[nodiscard]] bool is_whole_window() { return looptorch::detail::is_whole_window(engine, work()); }

  /// Returns why the fit, the window or the batch's tensors exclude a graph; null if the micro-batch may be
  /// one.
  [[nodiscard]] const char* reason_against_graph() {
    if (!maker()) return graph_reasons::kNoGraphs;
    if (engine.window().shared.ranks > 0) return graph_reasons::kSeveralRanks;
    if (Engine::template kByClosure<I>) return graph_reasons::kClosure;
    if (applies_in_backward(engine)) return graph_reasons::kInBackward;
    if (work().pieces > 1) return graph_reasons::kPieces;
    if (work().weight.is_unread() && !is_whole_window()) return graph_reasons::kWeightsOnDevice;
    return reason_against_tensors(batch);
  }

  /// The form of a micro-batch. Those with equal keys run by the same graph.
  struct Form {
    std::string key;
    bool sees_all = true;  ///< False if the batch has values on the host that the key lacks: a graph would
                           ///< keep the first ones.
  };
  [[nodiscard]] Form form() {
    Form form{form_of(batch)};
    append_bytes(form.key, I);
    append_bytes(form.key, is_whole_window());
    if constexpr (kHasHostWeight)
      append_structure(form.key, batch);
    else
      append_host_values(form.key, batch, form.sees_all);
    return form;
  }

  [[nodiscard]] double host_weight() {
    return static_cast<double>(engine.template update<I>().objective.weight(batch));
  }
  [[nodiscard]] LossBuffers& loss_buffers() { return graphs.losses(I, with_index(device())); }
};

}  // namespace looptorch::detail
