// SPDX-License-Identifier: MIT
// Runs an exported program: calls its operators in order by LibTorch's dispatcher. Builds autograd's graph if
// gradients are enabled. Operators are resolved once, before the first run, and constants converted to
// IValues. Each call of an operator converts its other arguments, which takes about a microsecond.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/export/program/exported_program.hpp>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch {

/// Runs one program as often as asked. Keeps a reference to it. One thread at a time.
class ProgramRunner {
 public:
  explicit ProgramRunner(const ExportedProgram& program) : program_(program), dying_(last_uses(program)) {}

  /// Returns the outputs. A tensor is freed after its last use, unless autograd keeps it. Autocast is off:
  /// its casts were recorded in the program. Throws UsageError for a wrong number of inputs or wrong dynamic
  /// sizes.
  [[nodiscard]] std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const DimValues dims = dims_of(inputs);
    values_.assign(program_.values.size(), at::Tensor());
    for (const auto& weight : program_.weights) values_[weight.value] = weight.tensor;
    for (const auto& constant : program_.constants) values_[constant.value] = constant.tensor;
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[program_.inputs[i].value] = inputs[i];
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const ProgramNode& node = program_.nodes[i];
      stack.clear();
      for (std::size_t a = 0; a < node.arguments.size(); ++a)
        stack.push_back(boxed(node.arguments[a], node.op.schema().arguments()[a], dims));
      node.op.callBoxed(&stack);
      for (std::size_t r = 0; r < node.results.size(); ++r) take(node.results[r], std::move(stack[r]));
      for (const ValueId dead : dying_[i]) values_[dead].reset();
    }
    std::vector<at::Tensor> outputs;
    for (const ValueId output : program_.outputs) outputs.push_back(values_[output]);
    values_.clear();
    return outputs;
  }

  /// Returns the dynamic dims that these inputs have. Throws UsageError.
  [[nodiscard]] DimValues dims_of(const std::vector<at::Tensor>& inputs) const {
    if (inputs.size() != program_.inputs.size())
      throw UsageError(message("the program takes ", program_.inputs.size(), " inputs, not ", inputs.size()));
    DimValues dims;
    for (const DynamicDim& dim : program_.dims) {
      const DimPlace& first = dim.places.at(0);
      dims.push_back(inputs[first.input].size(first.dim) / first.multiple);
      for (const DimPlace& place : dim.places)
        if (inputs[place.input].size(place.dim) != dims.back() * place.multiple)
          throw UsageError(message("input \"", program_.inputs[place.input].name, "\" has ",
                                   inputs[place.input].size(place.dim), " in dimension ", place.dim, ", not ",
                                   place.multiple, " times the ", dims.back(), " of ", dim.name));
    }
    return dims;
  }

 private:
  /// Returns for each node the tensors that no later one reads.
  static std::vector<std::vector<ValueId>> last_uses(const ExportedProgram& program) {
    constexpr std::size_t kKept = static_cast<std::size_t>(-1);
    std::vector<std::size_t> last(program.values.size(), 0);
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      for (const auto& argument : program.nodes[i].arguments)
        for_each_value(argument, [&](ValueId value) { last[value] = i; });
      for (const auto& result : program.nodes[i].results)
        for (const ValueId value : result.values) last[value] = i;
    }
    for (const ValueId output : program.outputs) last[output] = kKept;
    std::vector<std::vector<ValueId>> dying(program.nodes.size());
    for (ValueId value = 0; value < last.size(); ++value)
      if (last[value] < dying.size()) dying[last[value]].push_back(value);
    return dying;
  }

  void take(const ProgramResult& result, c10::IValue made) {
    if (!result.is_list) {
      values_[result.values.at(0)] = std::move(made).toTensor();
      return;
    }
    const auto tensors = std::move(made).toTensorVector();
    if (tensors.size() != result.values.size())
      throw UsageError(message("the program unpacks ", result.values.size(), " tensors of ", tensors.size()));
    for (std::size_t i = 0; i < tensors.size(); ++i) values_[result.values[i]] = tensors[i];
  }

  [[nodiscard]] c10::IValue boxed(const ProgramArgument& argument, const c10::Argument& declared,
                                  const DimValues& dims) const {
    if (argument.constant()) return *argument.constant();
    if (argument.value()) return values_[*argument.value()];
    if (argument.size()) return argument.size()->at(dims);
    return boxed_list(*argument.list(), declared, dims);
  }

  [[nodiscard]] c10::IValue boxed_list(const ProgramArgument::List& items, const c10::Argument& declared,
                                       const DimValues& dims) const {
    auto type = declared.type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    const auto element = type->expectRef<c10::ListType>().getElementType();
    if (element->isSubtypeOf(*c10::TensorType::get())) {
      c10::List<at::Tensor> tensors;
      for (const auto& item : items) tensors.push_back(values_[*item.value()]);
      return tensors;
    }
    if (element->kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const auto& item : items)
        tensors.push_back(item.value() ? std::optional(values_[*item.value()]) : std::nullopt);
      return tensors;
    }
    std::vector<std::int64_t> numbers;
    for (const auto& item : items) numbers.push_back(boxed(item, declared, dims).toInt());
    return numbers;
  }

  const ExportedProgram& program_;
  std::vector<std::vector<ValueId>> dying_;
  std::vector<at::Tensor> values_;
};

}  // namespace looptorch
