// SPDX-License-Identifier: MIT
// Registers a program's tensors as the parameters and buffers of a tree of modules, under their Python names.
// A tied parameter is registered once. Linear layers become modules that can take adapters.
#pragma once

#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/archive/payload.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/signature.hpp>
#include <looptorch/exported/module/module_tree.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// The tensors that a program reads, by their role in the module.
struct ProgramTensors {
  struct Held {
    at::Tensor tensor;
    Slot slot;
  };
  std::vector<Held> weights;                       ///< parameters and buffers, which the module holds, too
  std::vector<Held> constants;                     ///< all others
  std::map<std::string, at::Tensor> by_name;       ///< weights, tied ones by each of their names
  std::map<std::size_t, LinearPartImpl*> linears;  ///< by the node that multiplies by one
};

class WeightRegistry {
 public:
  WeightRegistry(const Graph& graph, const Signature& signature, torch::nn::Module& root)
      : graph_(graph), signature_(signature), tree_(root) {
    for (const auto& tensor : signature.tensors) {
      kinds_.emplace(tensor.name, tensor.kind);
      names_.emplace(tensor.slot, tensor.name);
    }
  }

  /// Registers weights, and modules with or without weights. Throws ExportedModelError.
  [[nodiscard]] ProgramTensors add(const std::vector<StoredTensor>& stored) {
    std::map<std::string, at::Tensor> known;
    for (const auto& each : stored)
      if (!known.emplace(each.name, each.tensor).second)
        throw ExportedModelError("two tensors are called \"" + each.name + '"');
    for (const auto& tensor : signature_.tensors) {
      const auto found = known.find(tensor.name);
      if (found == known.end())
        throw ExportedModelError("the archive lacks the tensor \"" + tensor.name + '"');
      auto& into = tensor.kind == TensorKind::constant ? made_.constants : made_.weights;
      into.push_back({found->second, tensor.slot});
    }
    find_tied(stored);
    const auto linears = find_linears(known);
    for (const auto& each : stored) add_one(each, known, linears);
    for (const auto& module : graph_.modules)
      if (!kinds_.contains(module.path)) (void)tree_.part(module.path);
    for (const auto& [path, linear] : linears)
      for (const std::size_t node : linear.nodes) made_.linears[node] = linear.module;
    return std::move(made_);
  }

 private:
  /// A linear layer: the nodes that multiply by its weight.
  struct LinearPlan {
    bool has_bias = false;
    std::vector<std::size_t> nodes = {};
    mutable LinearPartImpl* module = nullptr;
  };
  using LinearPlans = std::map<std::string, LinearPlan>;

  void find_tied(const std::vector<StoredTensor>& stored) {
    std::set<const void*> seen;
    for (const auto& each : stored)
      if (each.is_parameter && !seen.insert(each.tensor.unsafeGetTensorImpl()).second)
        tied_.insert(each.tensor.unsafeGetTensorImpl());
  }

  /// Finds modules with a weight, with or without a bias, whose tensors are read by calls of `linear` only.
  [[nodiscard]] LinearPlans find_linears(const std::map<std::string, at::Tensor>& known) const {
    LinearPlans plans;
    std::set<std::string> others;  // modules read by other operators, or both with and without their bias
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      const std::string path = linear_path(node, known);
      if (!path.empty()) {
        auto& plan = plans[path];
        const bool has_bias = node.arguments[2].slot != kNoSlot;
        if (!plan.nodes.empty() && plan.has_bias != has_bias) others.insert(path);
        plan.nodes.push_back(i);
        plan.has_bias = has_bias;
        continue;
      }
      for_each_slot(node.arguments, [&](const GraphArgument& argument) {
        if (const auto name = names_.find(argument.slot); name != names_.end())
          others.insert(ModuleTree::split(name->second).first);
      });
    }
    for (const auto& [name, tensor] : known)
      if (const auto [path, last] = ModuleTree::split(name); last != "weight" && last != "bias")
        others.insert(path);
    std::erase_if(plans, [&](const auto& plan) {
      const std::string bias = plan.first + ".bias";
      return others.contains(plan.first) || known.contains(bias) != plan.second.has_bias;
    });
    return plans;
  }

  /// Returns "X" for a node that multiplies by the parameter "X.weight", with the parameter "X.bias" or none;
  /// else nothing.
  [[nodiscard]] std::string linear_path(const GraphNode& node,
                                        const std::map<std::string, at::Tensor>& known) const {
    if (node.target != "torch.ops.aten.linear.default" || node.arguments[0].slot == kNoSlot ||
        node.results.size() != 1 || node.results[0].slots.size() != 1)
      return {};
    const auto weight = names_.find(node.arguments[1].slot);
    if (weight == names_.end()) return {};
    const auto [path, last] = ModuleTree::split(weight->second);
    const at::Tensor& tensor = known.at(weight->second);
    if (path.empty() || last != "weight" || kinds_.at(weight->second) != TensorKind::parameter ||
        tensor.dim() != 2 || tied_.contains(tensor.unsafeGetTensorImpl()))
      return {};
    const GraphArgument& bias = node.arguments[2];
    if (bias.slot == kNoSlot) return bias.constant.isNone() ? path : std::string();
    const auto name = names_.find(bias.slot);
    const bool is_its_own = name != names_.end() && name->second == path + ".bias" &&
                            kinds_.at(name->second) == TensorKind::parameter;
    return is_its_own ? path : std::string();
  }

  void add_one(const StoredTensor& each, const std::map<std::string, at::Tensor>& known,
               const LinearPlans& linears) {
    const auto kind = kinds_.find(each.name);
    const bool is_parameter =
        kind == kinds_.end() ? each.is_parameter : kind->second == TensorKind::parameter;
    if (kind != kinds_.end() && kind->second == TensorKind::constant) return;
    made_.by_name.emplace(each.name, each.tensor);
    if (!is_parameter) {
      return tree_.add_buffer(each.name, each.tensor);
    }
    if (!registered_.insert(each.tensor.unsafeGetTensorImpl()).second) return;  // tied
    const std::string path = ModuleTree::split(each.name).first;
    const auto linear = linears.find(path);
    if (linear == linears.end()) return tree_.add_parameter(each.name, each.tensor);
    if (linear->second.module) return;  // its bias
    const auto bias = known.find(path + ".bias");
    linear->second.module =
        &tree_.add(path, std::make_shared<LinearPartImpl>(known.at(path + ".weight"),
                                                          bias == known.end() ? at::Tensor() : bias->second));
  }

  const Graph& graph_;
  const Signature& signature_;
  ModuleTree tree_;
  std::map<std::string, TensorKind> kinds_;
  std::map<Slot, std::string> names_;
  std::set<const void*> tied_, registered_;
  ProgramTensors made_;
};

}  // namespace looptorch::detail::exported
