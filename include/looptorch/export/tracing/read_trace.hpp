// SPDX-License-Identifier: MIT
// Converts a graph that the tracer recorded to an ExportedProgram. Its sizes are those of the traced example;
// merge_sizes.hpp later replaces the ones that vary.
#pragma once

#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/tracing/module_weights.hpp>
#include <looptorch/export/tracing/recorded_graph.hpp>

#include <ATen/core/List.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Reads one recorded graph.
class TraceReader {
 public:
  /// `weights` have all names, `inputs` are those of the recorded call.
  TraceReader(const RecordedGraph& recorded, const std::vector<ExportedProgram::Weight>& weights,
              const std::vector<at::Tensor>& inputs, const std::vector<std::string>& input_names)
      : graph_(*recorded.graph) {
    add_weights(weights);
    const auto values = graph_.inputs();
    paths_[values[0]] = "";
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      program_.inputs.push_back({input_names[i], inputs[i], add_tensor(values[i + 1], "an input")});
    }
  }

  /// Throws ExportError for what a program cannot hold.
  [[nodiscard]] ExportedProgram read() {
    for (torch::jit::Node* node : graph_.nodes()) read(*node);
    for (torch::jit::Value* output : graph_.outputs())
      program_.outputs.push_back(tensor(output, "", "output"));
    return std::move(program_);
  }

 private:
  using Node = torch::jit::Node;
  using Value = torch::jit::Value;

  /// Keeps the first of several names of one tensor.
  void add_weights(const std::vector<ExportedProgram::Weight>& weights) {
    std::unordered_map<const void*, ValueId> kept;
    for (auto weight : weights) {
      const auto [found, is_new] = kept.emplace(weight.tensor.unsafeGetTensorImpl(), program_.values.size());
      weight.value = found->second;
      by_name_[weight.name] = found->second;
      if (!is_new) continue;
      program_.add_value(meta_of(weight.tensor));
      program_.weights.push_back(std::move(weight));
    }
  }

  static TensorMeta meta_of(const at::Tensor& tensor) {
    TensorMeta meta{tensor.scalar_type(), tensor.device(), tensor.requires_grad()};
    for (const auto size : tensor.sizes()) meta.sizes.emplace_back(size);
    for (const auto stride : tensor.strides()) meta.strides.emplace_back(stride);
    return meta;
  }

  /// Makes a tensor of the graph one of the program.
  ValueId add_tensor(Value* value, const std::string& made_by) {
    const auto type = value->type()->cast<c10::TensorType>();
    const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
    if (!sizes || !type->scalarType() || !type->device())
      throw ExportError(made_by + ": the result is no strided tensor of a known shape");
    TensorMeta meta{*type->scalarType(), *type->device(), type->requiresGrad().value_or(false)};
    for (const auto size : *sizes) meta.sizes.emplace_back(size);
    if (const auto strides = type->strides().concrete_sizes())
      for (const auto stride : *strides) meta.strides.emplace_back(stride);
    return tensors_[value] = program_.add_value(std::move(meta));
  }

  void read(Node& node) {
    namespace prim = torch::jit::prim;
    switch (node.kind()) {
      case prim::Constant:
      case prim::ListConstruct:
      case prim::ListUnpack:
        return;  // read where they are used
      case prim::GetAttr:
        return read_attribute(node);
      default:
        return read_operator(node);
    }
  }

  void read_attribute(Node& node) {
    std::string path = paths_.at(node.input());
    path += (path.empty() ? "" : ".") + node.s(torch::jit::attr::name);
    if (const auto weight = by_name_.find(path); weight != by_name_.end())
      tensors_[node.output()] = weight->second;
    paths_[node.output()] = std::move(path);
  }

  void read_operator(Node& node) {
    const auto op = resolve(node);
    ProgramNode made{op, {}, {}};
    const auto& declared = op.schema().arguments();
    for (std::size_t i = 0; i < declared.size(); ++i)
      made.arguments.push_back(argument(node.input(i), declared[i], made.name()));
    for (std::size_t i = 0; i < op.schema().returns().size(); ++i)
      made.results.push_back(result(node.outputs()[i], op.schema().returns()[i], made.name()));
    program_.nodes.push_back(std::move(made));
  }

  static c10::OperatorHandle resolve(const Node& node) {
    // For a convolution the tracer records the operator within it, which also takes cuDNN's current flags.
    // The first nine arguments are convolution's.
    if (node.kind() == c10::aten::_convolution)
      return c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
    const std::string kind = node.kind().toQualString();
    const auto* schema = node.maybeSchema();
    const auto op = schema
                        ? c10::Dispatcher::singleton().findSchema({schema->name(), schema->overload_name()})
                        : std::nullopt;
    if (!op || node.kind().is_prim())
      throw ExportError(kind, "", "is an operator of TorchScript alone, which no other reader has");
    if (!node.kind().is_aten())
      throw ExportError(kind, "", "is not one of ATen's operators, which every LibTorch has");
    return *op;
  }

  ProgramResult result(Value* value, const c10::Argument& declared, const std::string& op) {
    if (declared.type()->isSubtypeOf(*c10::TensorType::get())) return {{add_tensor(value, op)}, false};
    ProgramResult list{{}, true};
    const auto& uses = value->uses();
    if (!declared.type()->isSubtypeOf(*c10::ListType::ofTensors()))
      throw ExportError(op, "", "returns " + declared.type()->str() + ", and only tensors can go on");
    if (uses.size() != 1 || uses[0].user->kind() != torch::jit::prim::ListUnpack)
      throw ExportError(op, "", "returns a list that is not unpacked");
    for (Value* item : uses[0].user->outputs()) list.values.push_back(add_tensor(item, op));
    return list;
  }

  ValueId tensor(Value* value, const std::string& op, const std::string& argument) {
    if (const auto found = tensors_.find(value); found != tensors_.end()) return found->second;
    const auto constant = torch::jit::toIValue(value);
    if (!constant || !constant->isTensor())
      throw ExportError(op, argument, "is " + value->type()->str() + " where a tensor is needed");
    return tensors_[value] = add_constant(constant->toTensor(), op, argument);
  }

  /// Adds a tensor that is neither an input nor registered. Copies it, since its owner may write to it later.
  ValueId add_constant(const at::Tensor& constant, const std::string& op, const std::string& argument) {
    if (const auto* weight = weight_under(program_.weights, constant))
      throw ExportError(op, argument,
                        "\"" + weight->name +
                            "\" is used other than as the registered tensor, such as by "
                            "data() or detach() before the forward, and would be a copy in the file");
    for (const auto& input : program_.inputs)
      if (constant.has_storage() && constant.numel() > 0 && input.example.is_alias_of(constant))
        throw ExportError(op, argument,
                          "the input \"" + input.name +
                              "\" is used by data() or by its memory, and its "
                              "values would be frozen");
    const auto copy = constant.detach().clone();
    program_.constants.push_back({copy, program_.add_value(meta_of(copy))});
    return program_.constants.back().value;
  }

  ProgramArgument argument(Value* value, const c10::Argument& declared, const std::string& op) {
    auto type = declared.type();
    const auto constant = torch::jit::toIValue(value);
    if (constant && constant->isNone()) return {c10::IValue()};
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->isSubtypeOf(*c10::TensorType::get())) return {tensor(value, op, declared.name())};
    if (constant && !holds_tensors(*constant)) return {spread(*constant, declared)};
    if (value->node()->kind() != torch::jit::prim::ListConstruct)
      throw ExportError(op, declared.name(),
                        "is computed by " + std::string(value->node()->kind().toQualString()) +
                            ", which is no operator on tensors");
    return list(value->node()->inputs(), declared, op);
  }

  static bool holds_tensors(const c10::IValue& value) {
    return value.isTensorList() || value.isOptionalTensorList();
  }

  ProgramArgument list(at::ArrayRef<Value*> items, const c10::Argument& declared, const std::string& op) {
    std::vector<c10::IValue> constants;
    ProgramArgument::List all;
    for (Value* item : items) {
      const auto constant = torch::jit::toIValue(item);
      if (constant && !constant->isTensor()) {
        constants.push_back(*constant);
        all.push_back({*constant});
      } else {
        all.push_back({tensor(item, op, declared.name())});
      }
    }
    if (constants.size() == all.size() && !all.empty())
      if (const auto packed = pack(constants)) return {spread(*packed, declared)};
    if (all.empty()) return empty_list(declared);
    return {std::move(all)};
  }

  static ProgramArgument empty_list(const c10::Argument& declared) {
    const std::string type = declared.type()->str();
    if (type.find("Tensor") != std::string::npos) return {ProgramArgument::List()};
    if (type.find("float") != std::string::npos) return {c10::IValue(std::vector<double>())};
    return {c10::IValue(std::vector<std::int64_t>())};
  }

  /// Returns numbers of one type as the list that operators take; nothing for others.
  static std::optional<c10::IValue> pack(const std::vector<c10::IValue>& items) {
    if (items[0].isInt()) {
      std::vector<std::int64_t> numbers;
      for (const auto& item : items) numbers.push_back(item.toInt());
      return c10::IValue(numbers);
    }
    if (items[0].isDouble()) {
      std::vector<double> numbers;
      for (const auto& item : items) numbers.push_back(item.toDouble());
      return c10::IValue(numbers);
    }
    if (items[0].isBool()) {
      c10::List<bool> flags;
      for (const auto& item : items) flags.push_back(item.toBool());
      return c10::IValue(flags);
    }
    return std::nullopt;
  }

  /// Expands a number that stands for a whole list, since not all readers do: `int[2]` of {1} is {1, 1}.
  static c10::IValue spread(const c10::IValue& value, const c10::Argument& declared) {
    if (!value.isIntList() || !declared.N() || value.toIntVector().size() != 1) return value;
    return std::vector<std::int64_t>(static_cast<std::size_t>(*declared.N()), value.toIntVector()[0]);
  }

  torch::jit::Graph& graph_;
  ExportedProgram program_;
  std::map<std::string, ValueId> by_name_;
  std::unordered_map<const Value*, ValueId> tensors_;
  std::unordered_map<const Value*, std::string> paths_;
};

}  // namespace looptorch::detail
