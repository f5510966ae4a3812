// SPDX-License-Identifier: MIT
// Traces a module's forward into an ExportedProgram. Of the headers in tracing/, other folders need only this
// one and export_scope.hpp.
#pragma once

#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/polynomial_fit.hpp>
#include <looptorch/export/program/sized_inputs.hpp>
#include <looptorch/export/tracing/merge_sizes.hpp>
#include <looptorch/export/tracing/module_weights.hpp>
#include <looptorch/export/tracing/read_trace.hpp>
#include <looptorch/export/tracing/recorded_graph.hpp>
#include <looptorch/export/tracing/unwritten_memory.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the forward as a program that holds the module's own tensors. Calls it twice without dynamic
/// sizes, and 2 + n + n (n + 1) / 2 times with n of them. The caller sets the mode and switches gradients
/// off. Throws ExportError.
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
