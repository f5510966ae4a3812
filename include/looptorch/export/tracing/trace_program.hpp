// SPDX-License-Identifier: MIT
// Traces a module's forward into an ExportedProgram: records it at several sizes, then merges the recordings.
// Other folders include only this header and export_scope.hpp from tracing/.
#pragma once

#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/polynomial_fit.hpp>
#include <looptorch/export/program/sized_inputs.hpp>
#include <looptorch/export/tracing/merge_sizes.hpp>
#include <looptorch/export/tracing/module_weights.hpp>
#include <looptorch/export/tracing/read_trace.hpp>
#include <looptorch/export/tracing/recorded_graph.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Throws ExportError if an operator reads a tensor made by `empty` or the like before any operator has
/// written to it: the tracer does not record writes by a pointer or an accessor.
inline void refuse_unwritten_memory(const ExportedProgram& program) {
  std::map<ValueId, ValueId> memory_of;  // tensors that share memory which no operator has written to
  std::set<ValueId> unwritten;
  const auto is_unwritten = [&](ValueId value) {
    const auto memory = memory_of.find(value);
    return memory != memory_of.end() && unwritten.contains(memory->second);
  };
  for (const ProgramNode& node : program.nodes) {
    const std::string name = node.op.schema().name();
    const auto& declared = node.op.schema().arguments();
    const bool reads_shape_only = name.ends_with("_like") || name.starts_with("aten::new_");
    for (std::size_t a = 0; a < declared.size(); ++a) {
      const auto* alias = declared[a].alias_info();
      for_each_value(node.arguments[a], [&](ValueId value) {
        if (!is_unwritten(value)) return;
        if (alias && alias->isWrite()) {
          unwritten.erase(memory_of[value]);
        } else if (alias) {
          for (const auto& result : node.results)
            for (const ValueId view : result.values) memory_of[view] = memory_of[value];
        } else if (!reads_shape_only) {
          throw ExportError(
              node.name(), declared[a].name(),
              "is memory that the forward filled by a pointer or an accessor, as at::tensor does, "
              "which a file would not repeat. Make it by torch::tensor or by operators");
        }
      });
    }
    if (name.starts_with("aten::empty") || name.starts_with("aten::new_empty"))
      for (const ValueId value : node.results.at(0).values) {
        memory_of[value] = value;
        unwritten.insert(value);
      }
  }
  for (const ValueId output : program.outputs)
    if (is_unwritten(output))
      throw ExportError(
          "an output is memory that the forward filled by a pointer or an accessor. Make it by "
          "operators");
}

/// Returns the forward as a program that holds the module's own tensors. Calls the forward twice without
/// dynamic sizes, and 2 + n + n (n + 1) / 2 times with n of them. The caller sets the mode and switches
/// gradients off. Throws ExportError.
[[nodiscard]] inline ExportedProgram trace_program(const torch::nn::Module& module,
                                                   const TensorFunction& forward,
                                                   const std::vector<at::Tensor>& inputs,
                                                   const std::vector<std::string>& input_names,
                                                   const std::vector<DynamicDim>& dims,
                                                   bool trust_value_reads) {
  const auto weights = weights_of(module);
  const DimValues start = example_dims(inputs, dims);
  const PolynomialFit fit(start, directions(dims, start, &PolynomialFit::reach));
  std::vector<ExportedProgram> programs;
  for (const DimValues& point : fit.points()) {
    auto at_point = inputs_at(inputs, dims, point);
    // Other values, too, so that a constant which depends on them is found.
    if (programs.size() + 1 == fit.points().size()) at_point = with_other_values(std::move(at_point));
    const auto recorded = record_graph(weights, forward, at_point, input_names, trust_value_reads);
    programs.push_back(TraceReader(recorded, weights, at_point, input_names).read());
  }
  auto program = SizeMerger(std::move(programs), fit).merge();
  for (std::size_t i = 0; i < inputs.size(); ++i) program.inputs[i].example = inputs[i];
  program.dims = dims;
  program.example_dims = start;
  refuse_unwritten_memory(program);
  return program;
}

}  // namespace looptorch::detail
