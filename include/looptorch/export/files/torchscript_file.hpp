// SPDX-License-Identifier: MIT
// Writes an exported program as TorchScript. torch.jit.load and torch::jit::load read the file without the
// model's code.
#pragma once

#include <looptorch/export/files/archive_file.hpp>
#include <looptorch/export/files/script_module.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/export.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace looptorch::detail {

/// Makes a graph of TorchScript of a program. Types have no shapes: the file is for all sizes.
class ScriptGraph {
 public:
  /// `module` holds the program's weights by their names.
  ScriptGraph(const ExportedProgram& program, const torch::jit::Module& module)
      : program_(program),
        graph_(std::make_shared<torch::jit::Graph>()),
        self_(graph_->addInput("self")),
        values_(program.values.size(), nullptr) {
    self_->setType(module.type());
    for (const auto& input : program.inputs) {
      values_[input.value] = graph_->addInput(input.name);
      values_[input.value]->setType(c10::TensorType::get());
    }
    add_weights();
    for (const auto& constant : program.constants)
      values_[constant.value] = graph_->insertConstant(constant.tensor);
    for (const auto& node : program.nodes) add_node(node);
    add_outputs();
  }

  [[nodiscard]] std::shared_ptr<torch::jit::Graph> graph() const { return graph_; }

 private:
  using Value = torch::jit::Value;

  void add_weights() {
    std::map<std::string, Value*> modules{{"", self_}};
    for (const auto& weight : program_.weights) {
      std::string path;
      Value* holder = self_;
      std::string rest = weight.name;
      for (auto dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
        const std::string name = rest.substr(0, dot);
        path += "." + name;
        rest = rest.substr(dot + 1);
        auto& child = modules[path];
        if (!child) child = graph_->insertGetAttr(holder, name);
        holder = child;
      }
      values_[weight.value] = graph_->insertGetAttr(holder, rest);
      values_[weight.value]->setType(c10::TensorType::get());
    }
  }

  void add_node(const ProgramNode& node) {
    std::vector<Value*> inputs;
    for (std::size_t i = 0; i < node.arguments.size(); ++i)
      inputs.push_back(argument(node.arguments[i], node.op.schema().arguments()[i]));
    auto* made =
        graph_->create(c10::Symbol::fromQualString(node.op.schema().name()), inputs, node.results.size());
    graph_->insertNode(made);
    for (std::size_t r = 0; r < node.results.size(); ++r) {
      const auto& result = node.results[r];
      made->outputs()[r]->setType(node.op.schema().returns()[r].type());
      if (!result.is_list) {
        values_[result.values.at(0)] = made->outputs()[r];
        continue;
      }
      auto* unpacked = graph_->insertNode(graph_->createListUnpack(made->outputs()[r], result.values.size()));
      for (std::size_t i = 0; i < result.values.size(); ++i)
        values_[result.values[i]] = unpacked->outputs()[i];
    }
  }

  void add_outputs() {
    std::vector<Value*> outputs;
    for (const ValueId output : program_.outputs) outputs.push_back(values_[output]);
    if (!program_.output_names.empty()) {
      std::vector<Value*> keys;
      for (const std::string& name : program_.output_names) keys.push_back(graph_->insertConstant(name));
      auto* made = graph_->createDict(c10::StringType::get(), c10::TensorType::get(), keys, outputs);
      graph_->registerOutput(graph_->insertNode(made)->output());
    } else if (outputs.size() == 1)
      graph_->registerOutput(outputs[0]);
    else
      graph_->registerOutput(graph_->insertNode(graph_->createTuple(outputs))->output());
  }

  Value* argument(const ProgramArgument& argument, const c10::Argument& declared) {
    if (argument.value()) return values_[*argument.value()];
    if (argument.size()) return size(*argument.size());
    if (argument.constant()) return graph_->insertConstant(*argument.constant());
    auto type = declared.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    const auto element = type->expectRef<c10::ListType>().getElementType();
    std::vector<Value*> items;
    for (const auto& item : *argument.list()) {
      items.push_back(this->argument(item, declared));
      // A list has one type: without this, `Tensor?[]` of None and tensors has two.
      if (item.constant() && item.constant()->isNone()) items.back()->setType(element);
    }
    return graph_->insertNode(graph_->createList(element, items))->output();
  }

  // ---- Sizes ----

  Value* number(std::int64_t constant) { return graph_->insertConstant(constant); }

  Value* compute(c10::Symbol kind, Value* a, Value* b) {
    auto* node = graph_->insertNode(graph_->create(kind, {a, b}));
    node->output()->setType(c10::IntType::get());
    return node->output();
  }

  Value* dim(std::size_t i) {
    auto& made = dims_[i];
    if (made) return made;
    const DimPlace& place = program_.dims[i].places.at(0);
    made = compute(c10::aten::size, values_[program_.inputs[place.input].value], number(place.dim));
    if (place.multiple != 1) made = compute(c10::aten::floordiv, made, number(place.multiple));
    return made;
  }

  Value* size(const Polynomial& polynomial) {
    auto& made = sizes_[polynomial];
    if (made) return made;
    Value* sum = nullptr;
    for (const auto& [monomial, factor] : polynomial.terms()) {
      Value* term = monomial.empty() || factor != 1 ? number(factor) : nullptr;
      for (const std::size_t i : monomial) term = term ? compute(c10::aten::mul, term, dim(i)) : dim(i);
      sum = sum ? compute(c10::aten::add, sum, term) : term;
    }
    return made = sum ? sum : number(0);
  }

  const ExportedProgram& program_;
  std::shared_ptr<torch::jit::Graph> graph_;
  Value* self_;
  std::vector<Value*> values_;
  std::map<std::size_t, Value*> dims_;
  std::map<Polynomial, Value*> sizes_;
};

/// Writes the file, whole or not at all. `type` names the module. Throws FileError.
inline void write_torchscript(const ExportedProgram& program, const std::filesystem::path& path,
                              const std::string& type) {
  auto module = script_module(program.weights, type);
  const auto graph = ScriptGraph(program, module).graph();
  graph->lint();
  auto* const forward = module._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module.type()->name(), "forward"), graph);
  module.type()->addMethod(forward);
  ArchiveFile file(path);
  torch::jit::ExportModule(module, file.writer());
  file.commit();
}

}  // namespace looptorch::detail
