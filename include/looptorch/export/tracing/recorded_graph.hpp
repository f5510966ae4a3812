// SPDX-License-Identifier: MIT
// Records one call of a model's forward by TorchScript's tracer. Since the tracer is deprecated, only two
// headers depend on it: this one, and read_trace.hpp, which converts the recorded graph.
#pragma once

#include <looptorch/export/files/script_module.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/tracing/module_weights.hpp>
#include <looptorch/export/tracing/value_watch.hpp>

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::detail {

/// A model's forward from its inputs to its outputs.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct RecordedGraph {
  torch::jit::Module module;  ///< has the attributes that the graph reads
  std::shared_ptr<torch::jit::Graph> graph;
};

[[nodiscard]] inline bool is_weight(const std::vector<ExportedProgram::Weight>& weights,
                                    const at::Tensor& tensor) {
  return std::any_of(weights.begin(), weights.end(),
                     [&](const auto& weight) { return weight.tensor.is_same(tensor); });
}

/// Calls the forward and records its operators. Throws ExportError if the forward writes to a weight or to an
/// input, and for what ValueWatch refuses.
[[nodiscard]] inline RecordedGraph record_graph(const std::vector<ExportedProgram::Weight>& weights,
                                                const TensorFunction& forward,
                                                const std::vector<at::Tensor>& inputs,
                                                const std::vector<std::string>& input_names,
                                                bool trust_value_reads) {
  namespace jit = torch::jit;
  RecordedGraph recorded{script_module(weights, "Recorded"), nullptr};
  at::autocast::clear_cache();  // a weight that was cast before would be a constant here
  const TensorVersions versions(weights, inputs, input_names);
  const ValueWatch watch;
  const auto call = [&](const jit::Stack& stack) {
    std::vector<at::Tensor> tensors;
    for (const c10::IValue& each : stack) tensors.push_back(each.toTensor());
    auto outputs = forward(tensors);
    for (at::Tensor& output : outputs)
      if (is_weight(weights, output))
        output = output.view_as(output);  // the tracer removes its weights' values
    return jit::Stack(outputs.begin(), outputs.end());
  };
  try {
    const auto traced = jit::tracer::trace(
        jit::Stack(inputs.begin(), inputs.end()), call, [](const at::Tensor&) { return std::string(); },
        /*strict=*/true, /*force_outplace=*/false, &recorded.module, input_names);
    recorded.graph = traced.first->graph;
  } catch (const c10::Error& error) {
    watch.refuse(trust_value_reads);
    const auto says = [&](const char* part) {
      return std::string_view(error.what()).find(part) != std::string_view::npos;
    };
    if (says("did not have observable data dependence"))
      throw ExportError(
          "an output is a tensor that no operator of the forward makes and that is not registered. Register it "
          "as a buffer, or return its clone()");
    if (says("Tensor that requires grad as a constant"))
      throw ExportError(
          "the forward uses a tensor that requires gradients and is neither registered nor made of registered "
          "ones. Register it as a parameter");
    throw;
  }
  watch.refuse(trust_value_reads);
  if (const auto what = versions.written(); !what.empty())
    throw ExportError("the forward writes to " + what + ", which a file cannot do");
  return recorded;
}

}  // namespace looptorch::detail
