// SPDX-License-Identifier: MIT
// The graphs of a Trainer: one for each form of micro-batch and one for each update's end of a window, with
// the memory that they read and write. Only holds and renews them: graphed_micro_batch.hpp tells their life.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/graph/graph_generator.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/operations/operations.hpp>
#include <looptorch/optim/fused_call.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// One form of micro-batch of one update, and its graph once there is one.
struct MicroBatchGraph {
  /// A parameter that backward reaches, and the gradient that the graph adds to.
  struct Target {
    at::Tensor parameter, gradient;
  };

  std::int64_t seen = 0;  ///< micro-batches of this form so far
  std::string refused;    ///< why there will be no graph; empty if there may be one
  at::Tensor loss_like;   ///< a loss of an eager micro-batch, detached, for its shape, type and device
  std::vector<Target> targets;
  bool is_whole_window =
      false;           ///< of one micro-batch: the graph sets gradients to 0 first, and sums up the loss
  bool draws = false;  ///< from the device's generator
  GraphGenerator generator;       ///< of the graph
  std::vector<at::Tensor> slots;  ///< the batch that the graph reads
  at::Tensor root;                ///< the gradient of the loss, 0-dim or of one element
  double factor = 0;              ///< the value in `root`
  at::Tensor scale;               ///< by which the graph multiplies `root`; undefined: none
  Loss loss;                      ///< the graph's output; its weight is that of the captured micro-batch
  std::unique_ptr<DeviceGraph> graph;
  Operations operations;  ///< of the graph

  /// Keeps the form from becoming a graph. The first reason stays: what follows may be its consequence.
  void refuse(std::string reason) {
    if (refused.empty()) refused = std::move(reason);
  }
};

/// Memory that an update's graphs share for losses: they write a window's sum to it, and add that to the
/// epoch's. A graph of a window's only micro-batch reads the loss's weight from it.
struct LossPlace {
  at::Tensor sum, weight, zero;  ///< 0-dim fp64
  at::Tensor epoch;              ///< the sum of the epoch's losses
  double known_weight = 0;       ///< the value in `weight`

  explicit LossPlace(c10::Device device)
      : sum(at::zeros({}, at::TensorOptions(device).dtype(at::kDouble))),
        weight(at::zeros_like(sum)),
        zero(at::zeros_like(sum)),
        epoch(at::zeros_like(sum)) {}
  /// Adds up as RunningMean does.
  void set_sum(const Loss& loss) const {
    at::Tensor result = sum;
    const at::Tensor& value = loss_tensor(loss);
    const at::Tensor number = value.dim() == 0 ? value : value.reshape({});
    loss.sum.defined() ? at::add_out(result, zero, number) : at::addcmul_out(result, zero, number, weight);
  }
  void set_weight(double number) {
    if (std::exchange(known_weight, number) != number) weight.fill_(number);
  }
};

/// The end of an update's window as a graph, once there is one.
struct EndGraph {
  explicit EndGraph(int so_far = 0) : captures(so_far) {}

  int captures;         ///< so far
  std::string refused;  ///< why there will be no graph; empty if there may be one
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients;  ///< each parameter and its gradient, or none
  bool adds_losses = false;                                  ///< to the epoch's
  double factor = 1;      ///< by which the window's gradients must be multiplied
  at::Tensor scale;       ///< of the losses; undefined: none
  at::Tensor non_finite;  ///< the graph's results: not zero if the sum is not finite; undefined: not checked
  at::Tensor overflow;    ///< not zero if scaled gradients overflow; undefined without a scale
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

/// What all graphs rely on: where parameters and buffers lie, which are trained, and which modules are in
/// training mode. Lists modules and tensors anew when an optimizer's parameters change.
class GraphedWorld {
 public:
  /// True if all parameters and buffers are on this device: a graph would miss changes on the host.
  [[nodiscard]] bool lies_on(c10::Device device) const {
    return std::ranges::all_of(tensors_, [&](const auto& tensor) { return tensor.device() == device; });
  }
  /// True if these were the trained parameters at the last listing.
  [[nodiscard]] bool is_listed_for(const std::vector<at::Tensor>& trained) const {
    return !tensors_.empty() &&
           std::ranges::equal(trained, trained_, [](const auto& a, const auto& b) { return a.is_same(b); });
  }
  void list(const torch::nn::Module& model, const std::vector<at::Tensor>& trained) {
    trained_ = trained;
    modules_ = model.modules();
    tensors_ = model.parameters();
    tensors_.insert(tensors_.end(), trained.begin(), trained.end());
    for (const at::Tensor& buffer : model.buffers()) tensors_.push_back(buffer);
    places_.assign(tensors_.size(), {});
    training_.assign(modules_.size(), 0);
  }

  /// Returns true if anything has changed since the last call.
  [[nodiscard]] bool changes() {
    bool changed = false;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor& tensor = tensors_[i];
      const Place place{tensor.has_storage() ? tensor.storage().data() : nullptr, tensor.requires_grad()};
      changed |= std::exchange(places_[i], place) != place;
    }
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      const char training = modules_[i]->is_training() ? 2 : 1;
      changed |= std::exchange(training_[i], training) != training;
    }
    return changed;
  }

 private:
  using Place = std::pair<const void*, bool>;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<at::Tensor> trained_, tensors_;
  std::vector<Place> places_;
  std::vector<char> training_;
};

/// How micro-batches ran.
struct GraphCounts {
  std::int64_t replayed = 0, eager = 0, graphs = 0;
  std::map<std::string, std::int64_t> reasons;     ///< micro-batches that can have no graph, by reason
  std::int64_t ends = 0;                           ///< of windows, replayed
  std::map<std::string, std::int64_t> eager_ends;  ///< ends behind replayed micro-batches, by reason
};

/// The graphs of a fit: of micro-batches by the form of their batch, of windows' ends by update, and the
/// gradients that they share. Drops all of them when a parameter moves, freezes or a module changes its mode.
class MicroBatchGraphs {
 public:
  MicroBatchGraphs() = default;
  MicroBatchGraphs(MicroBatchGraphs&&) = default;
  MicroBatchGraphs& operator=(MicroBatchGraphs&&) = default;
  ~MicroBatchGraphs() { drop(); }

  std::int64_t warmup = 0, max_graphs = 0;  ///< CaptureGraphs's options
  GraphCounts counts;

  /// Returns the entry of a form. Drops all graphs if what they rely on has changed.
  MicroBatchGraph& entry(const std::string& form, const torch::nn::Module& model,
                         const std::vector<at::Tensor>& trained) {
    if (!world_.is_listed_for(trained)) world_.list(model, trained);
    if (world_.changes()) entries_.clear();
    if (entries_.empty()) drop_memory();  // parameters may have another type or device since
    if (entries_.size() >= kMostForms && !entries_.contains(form))
      std::erase_if(entries_, [](const auto& item) { return !item.second.graph; });
    return entries_[form];
  }

  [[nodiscard]] bool lies_on(c10::Device device) const { return world_.lies_on(device); }

  /// Returns the entry of an update's windows.
  EndGraph& end(std::size_t update) { return ends_[update]; }

  /// Returns the place of an update's losses.
  LossPlace& losses(std::size_t update, c10::Device device) {
    return losses_.try_emplace(update, device).first->second;
  }

  /// True if all gradients of these parameters, at least one, are those that graphs add to.
  [[nodiscard]] bool keeps_gradients(const std::vector<at::Tensor>& parameters) const {
    bool some = false;
    for (const at::Tensor& parameter : parameters) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const auto kept = gradients_.find(parameter.unsafeGetTensorImpl());
      if (kept == gradients_.end() || !kept->second.is_same(gradient)) return false;
      some = true;
    }
    return some;
  }

  /// Returns a new graph in the pool of the others.
  [[nodiscard]] std::unique_ptr<DeviceGraph> make(DeviceGraphMaker maker, c10::Device device) const {
    for (const auto& [form, entry] : entries_)
      if (entry.graph) return maker(device, entry.graph.get());
    return maker(device, nullptr);
  }
  [[nodiscard]] std::int64_t size() const {
    std::int64_t graphs = 0;
    for (const auto& [form, entry] : entries_) graphs += entry.graph != nullptr;
    return graphs;
  }

  /// Returns the gradient that graphs add to for a parameter.
  [[nodiscard]] at::Tensor gradient_of(const at::Tensor& parameter) {
    at::Tensor& gradient = gradients_[parameter.unsafeGetTensorImpl()];
    if (!gradient.defined()) gradient = at::empty_like(parameter.detach());
    return gradient;
  }

  /// Gives parameters the gradients that a graph adds to, with their current values or zeros; `zeroed` if the
  /// graph sets them to zero.
  static void attach(const std::vector<MicroBatchGraph::Target>& targets, bool zeroed) {
    at::NoGradGuard no_gradients;
    std::vector<at::Tensor> fresh;
    for (const auto& [parameter, gradient] : targets) {
      at::Tensor& now = parameter.mutable_grad();
      if (now.defined() && now.is_same(gradient)) continue;
      now.defined() ? static_cast<void>(gradient.copy_(now)) : fresh.push_back(gradient);
      now = gradient;
    }
    if (!fresh.empty() && !zeroed) at::_foreach_zero_(fresh);
  }

  /// Drops all graphs and their memory.
  void drop() {
    entries_.clear();
    drop_memory();
    world_ = {};
  }

 private:
  void drop_memory() {
    ends_.clear();
    losses_.clear();
    gradients_.clear();
  }

  static constexpr std::size_t kMostForms = 1024;  // each batch may have one of its own, by a name

  std::map<std::string, MicroBatchGraph> entries_;
  std::map<std::size_t, EndGraph> ends_;                   // by update
  std::map<std::size_t, LossPlace> losses_;                // by update
  std::unordered_map<const void*, at::Tensor> gradients_;  // by parameter, which the world holds
  GraphedWorld world_;
};

}  // namespace looptorch::detail
