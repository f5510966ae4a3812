// SPDX-License-Identifier: MIT
// Represents a model's forward as a list of calls of LibTorch's operators, without the model's C++ code.
// export_model writes such a program to a file, and run_program.hpp runs it. A size that depends on dynamic
// sizes is stored as a polynomial of them.
#pragma once

#include <looptorch/export/program/dynamic_dims.hpp>
#include <looptorch/export/program/polynomial.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch {

/// The position of a tensor in ExportedProgram::values.
using ValueId = std::size_t;

/// The type, device and sizes of a tensor, which are known before the program runs.
struct TensorMeta {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  bool requires_grad = false;
  std::vector<Polynomial> sizes = {}, strides = {};  ///< strides are hints: operators choose their own
};

/// One argument of an operator: a constant, a tensor, a size to be computed, or a list of these.
struct ProgramArgument {
  using List = std::vector<ProgramArgument>;

  std::variant<c10::IValue, ValueId, Polynomial, List> held;

  [[nodiscard]] const c10::IValue* constant() const { return std::get_if<c10::IValue>(&held); }
  [[nodiscard]] const ValueId* value() const { return std::get_if<ValueId>(&held); }
  [[nodiscard]] const Polynomial* size() const { return std::get_if<Polynomial>(&held); }
  [[nodiscard]] const List* list() const { return std::get_if<List>(&held); }
};

/// One return of an operator: a tensor, or a list of tensors, which is unpacked.
struct ProgramResult {
  std::vector<ValueId> values;
  bool is_list = false;
};

/// A call of an operator.
struct ProgramNode {
  c10::OperatorHandle op;
  std::vector<ProgramArgument> arguments;  ///< as many as the schema has
  std::vector<ProgramResult> results;      ///< as many as the schema has

  /// Returns such as "aten::add.Tensor".
  [[nodiscard]] std::string name() const {
    const auto& of = op.operator_name();
    return of.overload_name.empty() ? of.name : of.name + "." + of.overload_name;
  }
};

/// A program over tensors: weights, constants and inputs are given, nodes make the others in order.
struct ExportedProgram {
  struct Weight {
    std::string name;
    at::Tensor tensor;  ///< the model's own
    bool is_parameter = true;
    ValueId value = 0;
  };
  struct Constant {
    at::Tensor tensor;
    ValueId value = 0;
  };
  struct Input {
    std::string name;
    at::Tensor example;
    ValueId value = 0;
  };

  std::vector<Weight> weights;  ///< parameters first; a tensor with several names is listed by the first
  std::vector<Constant> constants;
  std::vector<Input> inputs;
  std::vector<TensorMeta> values;
  std::vector<ProgramNode> nodes;
  std::vector<ValueId> outputs;
  std::vector<DynamicDim> dims;
  DimValues example_dims;                      ///< in the example inputs
  std::vector<std::string> output_names = {};  ///< keys of a dictionary; empty: a tensor or a tuple

  ValueId add_value(TensorMeta meta) {
    values.push_back(std::move(meta));
    return values.size() - 1;
  }
};

/// Calls `visit(ValueId)` for each tensor among an argument, in order.
template <class Visit>
void for_each_value(const ProgramArgument& argument, const Visit& visit) {
  if (argument.value()) visit(*argument.value());
  if (!argument.list()) return;
  for (const auto& item : *argument.list()) for_each_value(item, visit);
}

}  // namespace looptorch
