// SPDX-License-Identifier: MIT
// Finds linear layers of one module that read the same input, such as the queries, keys and values of
// attention. ModelRunner computes such layers as one matmul.
#pragma once

#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/run_graph.hpp>
#include <looptorch/exported/module/module_tree.hpp>
#include <looptorch/layers/joint_linear.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// Layers that can run where the first of their nodes does.
struct JointLayers {
  std::vector<std::size_t> nodes;
  std::vector<LinearPartImpl*> layers;
};

/// Returns groups of two or more of `linears`, whose keys are nodes. Between the nodes of a group no operator
/// writes to a tensor, and neither gradients nor autocast are switched.
[[nodiscard]] inline std::vector<JointLayers> find_joint_layers(
    const Graph& graph, const std::map<std::size_t, LinearPartImpl*>& linears) {
  std::vector<JointLayers> found;
  std::map<std::pair<Slot, std::string>, JointLayers> open;  // by the input, and the module that holds them
  const auto close = [&] {
    for (auto& [key, group] : open)
      if (group.nodes.size() > 1) found.push_back(std::move(group));
    open.clear();
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (std::holds_alternative<BeginScope>(node.action) || std::holds_alternative<EndScope>(node.action) ||
        (node.op() && node.op()->schema().is_mutable()))
      close();
    const auto linear = linears.find(i);
    if (linear == linears.end() || node.results[0].slots[0] == kNoSlot) continue;
    auto& group = open[{node.arguments[0].slot, ModuleTree::split(graph.modules[node.module].path).first}];
    group.nodes.push_back(i);
    group.layers.push_back(linear->second);
  }
  close();
  return found;
}

/// Computes all layers of a group at the first of its nodes. Returns false where joint_linear would call the
/// layers one by one.
inline bool run_joint(const JointLayers& joint, const std::vector<GraphNode>& nodes, Values& values) {
  std::vector<at::Tensor> weights, biases;
  for (const LinearPartImpl* layer : joint.layers) {
    if (!has_no_adapter(layer)) return false;
    weights.push_back(layer->weight);
    biases.push_back(layer->bias);
  }
  const Slot input = nodes[joint.nodes.front()].arguments[0].slot;
  auto outputs = joint_outputs(values[input].toTensor(), weights, std::move(biases));
  for (std::size_t i = 0; i < outputs.size(); ++i)
    values[nodes[joint.nodes[i]].results[0].slots[0]] = std::move(outputs[i]);
  return !outputs.empty();
}

/// True if the node's result was already computed, together with the first node of its group. Frees the
/// node's input if no later node reads it.
inline bool take_joint(const GraphNode& node, Values& values) {
  if (values[node.results[0].slots[0]].isNone()) return false;
  if (node.arguments[0].is_last) values[node.arguments[0].slot] = {};
  return true;
}

}  // namespace looptorch::detail::exported
