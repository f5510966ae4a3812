// SPDX-License-Identifier: MIT
// Stores a Trainer's graphs, and the memory that they read and write. There is one graph per form of
// micro-batch, and one per update for the end of its window. graphed_micro_batch.hpp describes the graphs'
// life cycle.
#pragma once

#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/graph/graph_records.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/empty_like.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace looptorch::detail {

/// The graphs of a fit: of micro-batches by form, of windows' ends by update, and the gradients that they add
/// to. Drops all of them when a parameter moves or is frozen, or a module changes its mode.
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
    assumptions_.refresh(model, trained);
    if (assumptions_.take_changes()) entries_.clear();
    if (entries_.empty()) drop_memory();  // parameters may have another type or device since
    if (entries_.size() >= kMaxForms && !entries_.contains(form))
      std::erase_if(entries_, [](const auto& item) { return !item.second.graph; });
    return entries_[form];
  }

  [[nodiscard]] bool lies_on(c10::Device device) const { return assumptions_.lies_on(device); }

  /// Returns the graph of an update's window ends.
  EndGraph& end(std::size_t update) { return ends_[update]; }

  /// Returns the buffers of an update's losses.
  LossBuffers& losses(std::size_t update, c10::Device device) {
    return losses_.try_emplace(update, device).first->second;
  }

  /// True if any of these parameters has a gradient, and graphs add to every such gradient.
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

  /// Frees the gradients that no graph adds to: those made for a capture that failed.
  void free_unused_gradients() {
    std::erase_if(gradients_, [](const auto& item) { return item.second.use_count() == 1; });
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
    assumptions_ = {};
  }

 private:
  void drop_memory() {
    ends_.clear();
    losses_.clear();
    gradients_.clear();
  }

  static constexpr std::size_t kMaxForms = 1024;  // a batch with a text of its own has a form of its own

  std::map<std::string, MicroBatchGraph> entries_;
  std::map<std::size_t, EndGraph> ends_;                   // by update
  std::map<std::size_t, LossBuffers> losses_;              // by update
  std::unordered_map<const void*, at::Tensor> gradients_;  // by parameter, which the assumptions hold
  GraphAssumptions assumptions_;
};

}  // namespace looptorch::detail
