// SPDX-License-Identifier: MIT
// Defines what a Trainer remembers of its graphs; micro_batch_graphs.hpp stores it. MicroBatchGraph is the
// record of one form of micro-batch (shapes, types and values on the host). EndGraph is the record of the end
// of one update's window. LossBuffers is memory in which graphs sum losses. GraphAssumptions detects changes
// of the model that make graphs invalid, and GraphCounts counts how micro-batches ran.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/flops/flops.hpp>
#include <looptorch/graph/graph_generator.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/optim/fused/fused_call.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A number of the host, at an address on the device from which graphs read it.
struct DeviceNumber {
  DeviceNumber() = default;
  /// Takes memory of any shape and type, which holds the number.
  DeviceNumber(double number, at::Tensor holds) : tensor(std::move(holds)), known(number) {}
  /// Makes memory of its own, 0-dim fp64.
  DeviceNumber(double number, c10::Device device)
      : DeviceNumber(number, at::full({}, number, at::TensorOptions(device).dtype(at::kDouble))) {}

  /// Writes the number if it has changed.
  void set(double number) {
    if (std::exchange(known, number) != number) tensor.fill_(number);
  }

  at::Tensor tensor;  ///< undefined if there is none
  double known = 0;   ///< the value in `tensor`
};

/// One form of micro-batch of one update, and its graph once there is one.
struct MicroBatchGraph {
  /// A parameter that backward reaches, and the gradient that the graph adds to.
  struct Target {
    at::Tensor parameter, gradient;
  };
  /// Described in graphed_micro_batch.hpp.
  enum class State { warming_up, ready, captured, refused };

  [[nodiscard]] State state(std::int64_t warmup) const {
    if (graph) return State::captured;
    if (!refused.empty()) return State::refused;
    return seen <= warmup ? State::warming_up : State::ready;
  }

  std::int64_t seen = 0;  ///< number of micro-batches of this form so far, with the current one
  std::string refused;    ///< why there will be no graph; empty if there may be one
  at::Tensor loss_like;   ///< a loss of an eager micro-batch, detached, for its shape, type and device
  std::vector<Target> targets;
  /// True if the window has one micro-batch: the graph sets gradients to 0 first, and sums up the loss.
  bool is_whole_window = false;
  GraphGenerator generator;       ///< the generator that the graph draws from
  std::vector<at::Tensor> slots;  ///< the batch that the graph reads
  DeviceNumber root;              ///< the gradient of the loss, 0-dim or of one element
  at::Tensor scale;               ///< loss scale, by which the graph multiplies `root`; undefined: none
  Loss loss;                      ///< the graph's output; its weight is that of the captured micro-batch
  std::unique_ptr<DeviceGraph> graph;
  Flops flops;  ///< of one replay

  /// Keeps the form from becoming a graph. The first reason stays: what follows may be its consequence.
  void refuse(std::string reason) {
    if (refused.empty()) refused = std::move(reason);
  }
};

/// Memory in which an update's graphs sum losses: each micro-batch's graph writes the window's sum, the graph
/// of the window's end adds that to the epoch's. The graph of a window's only micro-batch reads the loss's
/// weight from it.
struct LossBuffers {
  at::Tensor sum;       ///< 0-dim fp64: the window's losses
  DeviceNumber weight;  ///< of a loss that is a mean
  at::Tensor zero;      ///< 0-dim fp64
  at::Tensor epoch;     ///< 0-dim fp64: the epoch's losses

  explicit LossBuffers(c10::Device device)
      : sum(at::zeros({}, at::TensorOptions(device).dtype(at::kDouble))),
        weight(0, device),
        zero(at::zeros_like(sum)),
        epoch(at::zeros_like(sum)) {}
  /// Sets the window's sum to this loss, by the arithmetic of RunningMean.
  void set_sum(const Loss& loss) const {
    at::Tensor result = sum;
    const at::Tensor& value = loss_tensor(loss);
    const at::Tensor number = value.dim() == 0 ? value : value.reshape({});
    loss.sum.defined() ? at::add_out(result, zero, number)
                       : at::addcmul_out(result, zero, number, weight.tensor);
  }
};

/// The end of an update's window as a graph, once there is one.
struct EndGraph {
  explicit EndGraph(int so_far = 0) : captures(so_far) {}

  int captures;         ///< number of captures so far
  std::string refused;  ///< why there will be no graph; empty if there may be one
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients;  ///< each parameter and its gradient, or none
  bool adds_losses = false;  ///< true if the graph adds the window's losses to the epoch's
  DeviceNumber factor;       ///< turns the sum of gradients into the window's; none if it is 1
  at::Tensor scale;          ///< loss scale; undefined: none
  at::Tensor non_finite;     ///< result: not zero if the sum of losses is not finite; undefined: not checked
  at::Tensor overflow;       ///< result: not zero if scaled gradients overflow; undefined without a scale
  UpdateDecision decision;
  std::shared_ptr<BegunStep> step;
  std::unique_ptr<DeviceGraph> graph;

  void keep_gradients_of(const std::vector<at::Tensor>& parameters) {
    gradients.clear();
    for (const at::Tensor& parameter : parameters) gradients.emplace_back(parameter, parameter.grad());
  }
  [[nodiscard]] bool has_gradients_of(const std::vector<at::Tensor>& parameters) const {
    return std::ranges::equal(parameters, gradients, [](const at::Tensor& parameter, const auto& kept) {
      return parameter.is_same(kept.first) && parameter.grad().is_same(kept.second);
    });
  }
};

/// The state that all graphs rely on: addresses of parameters and buffers, which parameters are trained, and
/// each module's training mode. Lists modules and tensors anew when an optimizer's parameters change, and in
/// the first micro-batches, whose forward may register some.
class GraphAssumptions {
 public:
  /// True if all parameters and buffers are on this device: a graph would miss changes on the host.
  [[nodiscard]] bool lies_on(c10::Device device) const {
    return std::ranges::all_of(tensors_, [&](const auto& tensor) { return tensor.device() == device; });
  }
  /// Lists modules and tensors, unless they are known.
  void refresh(const torch::nn::Module& model, const std::vector<at::Tensor>& trained) {
    constexpr int kListings = 16;  // each walks through all modules
    if (!tensors_.empty() && are_same(trained, trained_) && listings_ >= kListings) return;
    ++listings_;
    trained_ = trained;
    std::vector<at::Tensor> tensors = model.parameters();
    tensors.insert(tensors.end(), trained.begin(), trained.end());
    for (const at::Tensor& buffer : model.buffers()) tensors.push_back(buffer);
    auto modules = model.modules();
    if (modules == modules_ && are_same(tensors, tensors_)) return;
    tensors_ = std::move(tensors), modules_ = std::move(modules);
    places_.assign(tensors_.size(), {});
    training_.assign(modules_.size(), std::nullopt);
  }

  /// Returns true if anything has changed since the last call.
  [[nodiscard]] bool take_changes() {
    bool changed = false;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor& tensor = tensors_[i];
      const Place place{tensor.has_storage() ? tensor.const_data_ptr() : nullptr, tensor.requires_grad()};
      changed |= std::exchange(places_[i], place) != place;
    }
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      const bool training = modules_[i]->is_training();
      changed |= std::exchange(training_[i], training) != training;
    }
    return changed;
  }

 private:
  using Place = std::pair<const void*, bool>;
  [[nodiscard]] static bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::ranges::equal(a, b, [](const auto& one, const auto& other) { return one.is_same(other); });
  }

  int listings_ = 0;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<at::Tensor> trained_, tensors_;
  std::vector<Place> places_;
  std::vector<std::optional<bool>> training_;  // empty before the first look
};

/// How micro-batches ran.
struct GraphCounts {
  std::int64_t replayed = 0, eager = 0;            ///< numbers of micro-batches
  std::int64_t graphs = 0;                         ///< number of graphs of micro-batches
  std::map<std::string, std::int64_t> reasons;     ///< numbers of micro-batches without a graph, by reason
  std::int64_t ends = 0;                           ///< number of ends of windows that were replayed
  std::map<std::string, std::int64_t> eager_ends;  ///< numbers of eager ends after replayed micro-batches
};

}  // namespace looptorch::detail
