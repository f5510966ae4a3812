// SPDX-License-Identifier: MIT
// Runs an exported model's program for `ExportedModel::forward`. Checks inputs, and writes updated buffers
// back. Before a run, adapts the program to the device on which the weights lie, and to train or eval mode.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/running_module.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/exported/graph/graph.hpp>
#include <looptorch/exported/graph/run_graph.hpp>
#include <looptorch/exported/graph/signature.hpp>
#include <looptorch/exported/module/check_inputs.hpp>
#include <looptorch/exported/module/joint_layers.hpp>
#include <looptorch/exported/module/program_file.hpp>
#include <looptorch/exported/module/segments.hpp>
#include <looptorch/exported/module/training_modes.hpp>
#include <looptorch/memory/recompute/checkpointed_call.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail::exported {

/// Runs a program: checks inputs, sets the program's device arguments to the inputs' devices, puts inputs and
/// weights into slots, runs the nodes in order (a segment as a function that backward recomputes, joint
/// layers as one matmul), and assigns buffers.
class ModelRunner {
 public:
  /// Keeps references to both. The file's modules are below `root`.
  ModelRunner(ProgramFile& file, const torch::nn::Module& root)
      : file_(file),
        root_(root),
        device_(at::kCPU),
        joint_(find_joint_layers(file.graph, file.tensors.linears)) {
    std::map<std::string, const torch::nn::Module*> modules;
    for (const auto& item : root.named_modules("", /*include_self=*/false))
      modules[item.key()] = item.value().get();
    modules[""] = &root;
    for (const auto& module : file.graph.modules) {
      const auto found = modules.find(module.path);
      modules_.push_back(found == modules.end() ? &root : found->second);
    }
    for (const GraphNode& node : file.graph.nodes)
      plans_.push_back({.is_linear = node.target == "torch.ops.aten.linear.default",
                        .is_batch_norm = uses_batch_statistics(node)});
    for (const auto& [node, mode] : file.modes.in_eval) plans_[node].in_eval = &mode;
    for (const auto& [node, linear] : file.tensors.linears) plans_[node].linear = linear;
    for (const auto& group : joint_)
      for (const std::size_t node : group.nodes) plans_[node].joint = &group;
    for (auto& node : file.graph.nodes)
      for (auto& argument : node.arguments)
        if (argument.constant.isDevice() && argument.constant.toDevice().type() == file.device.type())
          devices_.push_back(&argument.constant);
  }

  /// Returns the outputs that are tensors. Throws UsageError.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) {
    check_inputs(inputs, file_.signature.inputs);
    follow_device(inputs);
    Values values(file_.graph.slots);
    put_weights(values);
    for (std::size_t i = 0; i < inputs.size(); ++i) values[file_.signature.input_slots[i]] = inputs[i];
    {
      GraphRun graph(values, device_.type(), file_.graph.modules);
      const bool joins = !traces_modules;
      std::size_t next = 0;
      for (const auto& segment : segments_) {
        run_nodes(next, segment->begin, joins, graph, values);
        graph.enter(0);
        run_segment(segment, joins, values);
        next = segment->end;
      }
      run_nodes(next, file_.graph.nodes.size(), joins, graph, values);
    }
    update_buffers(values);
    std::vector<at::Tensor> outputs;
    for (const Slot slot : file_.signature.outputs) outputs.push_back(values[slot].toTensor());
    return outputs;
  }

  /// Returns named inputs in the program's order. Throws UsageError.
  [[nodiscard]] std::vector<at::Tensor> in_order(const TensorMap& named) const {
    return inputs_in_order(named, file_.signature.inputs);
  }

  /// Recomputes each block that the pattern matches, and returns how many there are. Throws UsageError.
  std::size_t recompute_blocks(const std::string& pattern, const CheckpointOptions& options) {
    const Blocks blocks = find_blocks(file_.graph, pattern);
    if (blocks.empty())
      throw UsageError("the model has no " + (pattern.empty()
                                                  ? std::string("list of modules that run in turn")
                                                  : "module that matches \"" + pattern + '"'));
    Segments segments = segments_;
    for (const auto& [path, range] : blocks) {
      CheckpointOptions own = options;
      if (own.name.empty()) own.name = path;
      add_segment(segments, SegmentMaker(file_).make(range, std::move(own)), file_.graph);
    }
    segments_ = std::move(segments);
    return blocks.size();
  }
  /// Recomputes the nodes from `first` to `last`, inclusive. Throws UsageError.
  void recompute_between(const std::string& first, const std::string& last,
                         const CheckpointOptions& options) {
    const NodeRange range{node(first), node(last)};
    if (range.last < range.first) throw UsageError("the node \"" + last + "\" runs before \"" + first + '"');
    add_segment(segments_, SegmentMaker(file_).make(range, options), file_.graph);
  }
  void recompute_nothing() { segments_.clear(); }

  [[nodiscard]] std::size_t output(const std::string& name) const {
    const auto& names = file_.signature.output_names;
    std::string all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return i;
      all += (i == 0 ? "" : ", ") + names[i];
    }
    throw UsageError("the model has no output \"" + name + "\", but " + all);
  }

 private:
  /// How a node differs from a plain call; all null if it does not.
  struct NodePlan {
    const EvalMode* in_eval = nullptr;   // what eval mode changes
    LinearPartImpl* linear = nullptr;    // the layer that it calls, which may have an adapter
    const JointLayers* joint = nullptr;  // the layers, its own included, that run as one matmul
    bool is_linear = false;              // calls aten::linear, of any weights
    bool is_batch_norm = false;          // normalises by the batch while it trains
  };

  [[nodiscard]] std::size_t node(const std::string& name) const {
    const auto& nodes = file_.graph.nodes;
    const auto found =
        std::find_if(nodes.begin(), nodes.end(), [&](const GraphNode& each) { return each.name == name; });
    if (found == nodes.end())
      throw UsageError("the model has no node \"" + name + "\": print(program) in Python lists them");
    return static_cast<std::size_t>(found - nodes.begin());
  }

  /// Runs the nodes in [begin, end). With `joins`, runs linear layers of one input as one matmul, and each
  /// matmul as one node of autograd; not for Autopsy, which traces the file's own operators.
  void run_nodes(std::size_t begin, std::size_t end, bool joins, GraphRun& graph, Values& values) {
    for (std::size_t i = begin; i < end; ++i) {
      const JointLayers* joint = plans_[i].joint;
      const auto& nodes = file_.graph.nodes;
      if (joint && i != joint->nodes.front() && take_joint(nodes[i], values)) continue;
      if (joint && joins && i == joint->nodes.front() && joint->nodes.back() < end) {
        graph.enter(nodes[i].module);
        if (run_joint(*joint, nodes, values)) continue;
      }
      run_node(i, joins, graph, values);
    }
  }

  void run_node(std::size_t i, bool joins, GraphRun& graph, Values& values) {
    const GraphNode& node = file_.graph.nodes[i];
    const NodePlan& plan = plans_[i];
    graph.enter(node.module);
    if (plan.linear && (plan.linear->has_adapter() || plan.linear->is_int8())) {
      const Slot into = node.results[0].slots[0];
      at::Tensor made = plan.linear->forward(values[node.arguments[0].slot].toTensor());
      if (into != kNoSlot) values[into] = std::move(made);
      return;
    }
    if (plan.is_linear && joins) return graph.run_linear(node);
    if (!plan.in_eval || modules_[node.module]->is_training()) {
      if (plan.is_batch_norm)
        require_several_values(values[node.arguments[0].slot].toTensor(),
                               file_.graph.modules[node.module].path);
      return graph.run(node);
    }
    if (plan.in_eval->is_skipped) {
      const Slot into = node.results[0].slots[0];
      if (into != kNoSlot) values[into] = values[node.arguments[0].slot];
      return;
    }
    graph.run(node, plan.in_eval->argument, plan.in_eval->value);
  }

  void put_weights(Values& values) const {
    for (const auto& weight : file_.tensors.weights) values[weight.slot] = weight.tensor;
    for (const auto& constant : file_.tensors.constants) values[constant.slot] = constant.tensor;
  }

  /// Runs a segment as a checkpointed function, which backward calls again. Keeps the model alive until then.
  void run_segment(const std::shared_ptr<const Segment>& segment, bool joins, Values& values) {
    std::vector<at::Tensor> tensors;
    std::vector<std::pair<Slot, c10::IValue>> others;  // sizes, and tensors that are None
    std::vector<Slot> slots;
    for (const Slot slot : segment->reads) {
      if (values[slot].isTensor() && values[slot].toTensor().defined())
        tensors.push_back(values[slot].toTensor()), slots.push_back(slot);
      else
        others.emplace_back(slot, values[slot]);
    }
    for (const Slot slot : segment->ends) values[slot] = {};
    const auto made = std::make_shared<Values>();  // of the latest run
    const auto body = [this, segment, joins, slots, others, made,
                       kept = root_.shared_from_this()](const std::vector<at::Tensor>& given) {
      Values own(file_.graph.slots);
      put_weights(own);
      for (std::size_t i = 0; i < slots.size(); ++i) own[slots[i]] = given[i];
      for (const auto& [slot, value] : others) own[slot] = value;
      {
        GraphRun graph(own, device_.type(), file_.graph.modules);
        run_nodes(segment->begin, segment->end, joins, graph, own);
      }
      std::vector<at::Tensor> results;
      made->clear();
      for (const Slot slot : segment->makes) {
        const bool is_tensor = own[slot].isTensor();
        if (is_tensor) results.push_back(own[slot].toTensor());
        made->push_back(is_tensor ? c10::IValue() : own[slot]);
      }
      return results;
    };
    const auto results =
        call_checkpointed(segment->options, Callee{nullptr, "a part of the exported model"}, body, tensors);
    auto next = results.begin();
    for (std::size_t i = 0; i < segment->makes.size(); ++i)
      values[segment->makes[i]] =
          (*made)[i].isNone() && next != results.end() ? c10::IValue(*next++) : (*made)[i];
  }

  /// Writes the buffers that a functional program returns.
  void update_buffers(const Values& values) const {
    const at::NoGradGuard no_gradients;
    for (const auto& update : file_.signature.updates) {
      if (counts_batches(update.buffer) && !modules_[0]->is_training()) continue;
      const at::Tensor& buffer = file_.tensors.by_name.at(update.buffer);
      // Batch norm keeps its statistics for backward, which does not read them after training: as LibTorch's
      // own update, this does not raise their version.
      const bool is_statistic =
          update.buffer.ends_with("running_mean") || update.buffer.ends_with("running_var");
      (is_statistic ? buffer.variable_data() : buffer).copy_(values[update.slot].toTensor());
    }
  }

  /// Moves constants, and arguments that name a device, to where the weights are now.
  void follow_device(const std::vector<at::Tensor>& inputs) {
    at::Device now = device_;
    if (!file_.tensors.weights.empty())
      now = file_.tensors.weights.front().tensor.device();
    else if (!inputs.empty())
      now = inputs.front().device();
    if (now == device_ && is_placed_) return;
    for (auto& constant : file_.tensors.constants) constant.tensor = constant.tensor.to(now);
    for (c10::IValue* device : devices_) *device = now;
    device_ = now;
    is_placed_ = true;
  }

  ProgramFile& file_;
  const torch::nn::Module& root_;
  at::Device device_;
  bool is_placed_ = false;
  std::vector<NodePlan> plans_;                    // by node
  std::vector<const torch::nn::Module*> modules_;  // by Graph::modules
  std::vector<c10::IValue*> devices_;              // arguments that name the exported device
  std::vector<JointLayers> joint_;
  Segments segments_;
};

}  // namespace looptorch::detail::exported
