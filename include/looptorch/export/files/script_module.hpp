// SPDX-License-Identifier: MIT
// Makes a TorchScript module of a model's weights, by their names and without code. The module shares the
// tensors with the model. The tracer and torchscript_file.hpp each add a graph to such a module.
#pragma once

#include <looptorch/export/program/exported_program.hpp>

#include <torch/csrc/jit/api/module.h>

#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The weights of a module and its children, by the parts of their names.
struct ScriptTree {
  std::string name;
  std::vector<std::pair<std::string, const ExportedProgram::Weight*>> weights;
  std::vector<ScriptTree> children;

  void add(const std::string& path, const ExportedProgram::Weight& weight) {
    const auto dot = path.find('.');
    if (dot == std::string::npos) {
      weights.emplace_back(path, &weight);
      return;
    }
    const std::string first = path.substr(0, dot);
    for (auto& child : children)
      if (child.name == first) return child.add(path.substr(dot + 1), weight);
    children.push_back({first, {}, {}});
    children.back().add(path.substr(dot + 1), weight);
  }

  [[nodiscard]] torch::jit::Module module(const std::string& type,
                                          const std::shared_ptr<torch::jit::CompilationUnit>& unit) const {
    torch::jit::Module made(c10::QualifiedName("__torch__." + type), unit, /*shouldMangle=*/true);
    made.register_attribute("training", c10::BoolType::get(), false);
    for (const auto& [own, weight] : weights) {
      if (weight->is_parameter)
        made.register_parameter(own, weight->tensor, /*is_buffer=*/false);
      else
        made.register_buffer(own, weight->tensor);
    }
    for (const auto& child : children) made.register_module(child.name, child.module(type, unit));
    return made;
  }
};

/// Returns a module of these tensors. `type` names it; characters other than letters and digits become "_".
[[nodiscard]] inline torch::jit::Module script_module(const std::vector<ExportedProgram::Weight>& weights,
                                                      std::string type) {
  for (char& c : type)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  if (type.empty() || std::isdigit(static_cast<unsigned char>(type.front()))) type.insert(0, "Model_");
  ScriptTree tree;
  for (const auto& weight : weights) tree.add(weight.name, weight);
  return tree.module(type, std::make_shared<torch::jit::CompilationUnit>());
}

}  // namespace looptorch::detail
