// SPDX-License-Identifier: MIT
// Lists a module's parameters and buffers by their names in an exported program, where Python's keywords get
// an underscore. TensorVersions finds a weight or an input that a traced forward has written to.
#pragma once

#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/python_names.hpp>

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns all weights, tied ones too: parameters, then buffers, by their names for Python. Undefined tensors
/// are skipped. Throws ExportError for two with the same name in Python.
[[nodiscard]] inline std::vector<ExportedProgram::Weight> weights_of(const torch::nn::Module& module) {
  std::vector<ExportedProgram::Weight> weights;
  const auto add = [&](const auto& items, bool is_parameter) {
    for (const auto& item : items)
      if (item.value().defined()) weights.push_back({for_python(item.key()), item.value(), is_parameter, 0});
  };
  add(module.named_parameters(), true);
  add(module.named_buffers(), false);
  std::set<std::string> names;
  for (const auto& weight : weights)
    if (!names.insert(weight.name).second)
      throw ExportError("two weights would be called \"" + weight.name +
                        "\" in Python, where keywords get an underscore: rename one of them");
  return weights;
}

/// Returns the weight that this tensor is, or is a view of; null if there is none.
[[nodiscard]] inline const ExportedProgram::Weight* weight_under(
    const std::vector<ExportedProgram::Weight>& weights, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return nullptr;
  for (const auto& weight : weights)
    if (weight.tensor.has_storage() && weight.tensor.numel() > 0 && weight.tensor.is_alias_of(tensor))
      return &weight;
  return nullptr;
}

/// The version counters of a model's tensors and its inputs: a write in place increases a tensor's counter.
class TensorVersions {
 public:
  TensorVersions(const std::vector<ExportedProgram::Weight>& weights, const std::vector<at::Tensor>& inputs,
                 const std::vector<std::string>& input_names) {
    for (const auto& weight : weights)
      add((weight.is_parameter ? "the parameter \"" : "the buffer \"") + weight.name + '"', weight.tensor);
    for (std::size_t i = 0; i < inputs.size(); ++i) add("the input \"" + input_names[i] + '"', inputs[i]);
  }

  /// Returns the first tensor written to since, such as `the buffer "steps"`; empty if there is none.
  [[nodiscard]] std::string written() const {
    for (const auto& each : all_)
      if (each.tensor._version() != each.version) return each.what;
    return {};
  }

 private:
  struct Versioned {
    std::string what;
    at::Tensor tensor;
    std::uint32_t version;
  };

  void add(std::string what, const at::Tensor& tensor) {
    if (!tensor.is_inference())
      all_.push_back({std::move(what), tensor, static_cast<std::uint32_t>(tensor._version())});
  }

  std::vector<Versioned> all_;
};

}  // namespace looptorch::detail
