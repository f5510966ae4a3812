// SPDX-License-Identifier: MIT
// Writes a trained model to a file that runs without the model's C++ code. The file is TorchScript, or
// torch.export's .pt2 for Python, AOTInductor and ONNX. Takes some 10 to 25 forward passes. Include it only
// in programs that export, since it includes LibTorch's tracer.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/export/export_check.hpp>
#include <looptorch/export/files/pt2_file.hpp>
#include <looptorch/export/files/torchscript_file.hpp>
#include <looptorch/export/program/dynamic_dims.hpp>
#include <looptorch/export/program/export_error.hpp>
#include <looptorch/export/program/exported_program.hpp>
#include <looptorch/export/program/python_names.hpp>
#include <looptorch/export/tracing/export_scope.hpp>
#include <looptorch/export/tracing/trace_program.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cctype>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Returns the program with its weights, constants and examples on `device`. Arguments that are devices, such
/// as arange's, become `device`, too. Tensors already on `device` are shared.
[[nodiscard]] inline ExportedProgram program_on_device(ExportedProgram program, at::Device device) {
  const auto move = [&](at::Tensor& tensor) {
    if (tensor.device() == device) return;
    const bool requires_grad = tensor.requires_grad();
    tensor = tensor.detach().to(device).set_requires_grad(requires_grad);
  };
  for (auto& weight : program.weights) move(weight.tensor);
  for (auto& constant : program.constants) move(constant.tensor);
  for (auto& input : program.inputs) move(input.example);
  for (auto& meta : program.values) meta.device = device;
  for (auto& node : program.nodes)
    for (auto& argument : node.arguments)
      if (auto* constant = std::get_if<c10::IValue>(&argument.held); constant && constant->isDevice())
        *constant = device;
  return program;
}

}  // namespace detail

/// Names and sizes of an exported model's inputs and outputs, and the device that its file names.
struct ExportOptions {
  std::vector<std::string> input_names = {};   ///< input_0, input_1, ... if empty
  std::vector<std::string> output_names = {};  ///< if given, outputs are a dictionary with these keys
  std::vector<DynamicDim> dynamic = {};        ///< sizes that stay open; all others are the example's
  at::Device device = at::kCPU;                ///< where readers of the file place its tensors
  bool trust_value_reads = false;              ///< true if the forward reads tensors' values only for checks
};

/// Counts of what was written, and remarks.
struct ExportReport {
  std::size_t weights = 0;    ///< parameters and buffers, tied ones once
  std::size_t operators = 0;  ///< calls in the program
  std::size_t constants = 0;  ///< tensors that are neither registered nor inputs
  std::size_t constant_bytes = 0;
  /// Large constants, random operators and renamed weights; also reported as warnings.
  std::vector<std::string> notes = {};
};

/// Throws ExportError for a model whose parameters or buffers hold NaN, naming the first of them: other
/// programs would read the file without a warning. export_model calls this.
inline void require_no_nan(const torch::nn::Module& model) {
  for (const auto& weights : {model.named_parameters(), model.named_buffers()})
    for (const auto& item : weights)
      if (item.value().is_floating_point() && item.value().isnan().any().item<bool>())
        throw ExportError("the weight " + item.key() +
                          " holds NaN: export one that was saved before training diverged");
}

namespace detail {

template <class Outputs>
[[nodiscard]] std::vector<at::Tensor> tensors_of(const Outputs& outputs) {
  if constexpr (std::is_convertible_v<Outputs, at::Tensor>) {
    return {outputs};
  } else if constexpr (requires { std::tuple_size<Outputs>::value; }) {
    return std::apply([](const auto&... each) { return std::vector<at::Tensor>{each...}; }, outputs);
  } else {
    return std::vector<at::Tensor>(outputs.begin(), outputs.end());
  }
}

template <class Model, class Forward, std::size_t... I>
[[nodiscard]] std::vector<at::Tensor> call_forward(Model& model, Forward& forward,
                                                   const std::vector<at::Tensor>& in,
                                                   std::index_sequence<I...>) {
  return tensors_of(forward(model, in[I]...));
}

[[nodiscard]] inline std::vector<std::string> input_names(const ExportOptions& options, std::size_t inputs) {
  auto names = options.input_names;
  if (names.empty())
    for (std::size_t i = 0; i < inputs; ++i) names.push_back("input_" + std::to_string(i));
  if (names.size() != inputs)
    throw ExportError(message(names.size(), " input names for ", inputs, " inputs"));
  for (const std::string& name : names) {
    bool is_name = !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front())) &&
                   name != "self" && !is_python_keyword(name);
    for (const char c : name) is_name = is_name && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
    if (!is_name) throw ExportError("the input name \"" + name + "\" is no identifier");
  }
  if (std::set<std::string>(names.begin(), names.end()).size() != inputs)
    throw ExportError("two inputs have the same name");
  return names;
}

[[nodiscard]] inline const std::vector<std::string>& output_names(const ExportOptions& options,
                                                                  std::size_t outputs) {
  const auto& names = options.output_names;
  if (!names.empty() && std::set<std::string>(names.begin(), names.end()).size() != outputs)
    throw ExportError(
        message(names.size(), " output names for ", outputs, " outputs, each of which needs its own"));
  return names;
}

inline void check_suffix(const std::filesystem::path& path) {
  const auto suffix = path.extension();
  if (suffix != ".pt2" && suffix != ".ts" && suffix != ".pt")
    throw ExportError(path.string() + ": the suffix must be .pt2, or .ts or .pt for TorchScript");
}

/// Throws ExportError for a weight's name that a module cannot have, or that the file's code cannot hold.
inline void require_readable_names(const std::vector<ExportedProgram::Weight>& weights,
                                   const std::filesystem::path& path) {
  for (const auto& weight : weights) {
    if (("." + weight.name + ".").find(".training.") != std::string::npos)
      throw ExportError("the name of the weight " + weight.name +
                        " has a part \"training\", as every module calls its mode: rename it");
    if (weight.name.find_first_of("\"\\\r\n") != std::string::npos)
      throw ExportError(
          "the name of the weight " + weight.name +
          " has a quote, a backslash or a line end, with which Python cannot read the file: rename it");
    const bool is_ascii =
        std::all_of(weight.name.begin(), weight.name.end(), [](unsigned char c) { return c < 0x80; });
    if (path.extension() != ".pt2" && !is_ascii)
      throw ExportError(
          "the name of the weight " + weight.name +
          " is not ASCII, with which Python cannot read TorchScript: rename it, or write a .pt2");
  }
}

inline void write_program(const ExportedProgram& program, const std::filesystem::path& path,
                          const std::string& type) {
  if (path.extension() == ".pt2") return write_pt2(program, path);
  write_torchscript(program, path, type);
}

/// Bytes from which a constant is noted in the report: it is probably a weight that was not registered.
inline constexpr std::size_t kLargeConstant = std::size_t{1} << 20;

/// True if a call draws random numbers. False in eval mode for dropout, recurrent layers and attention.
[[nodiscard]] inline bool draws(const ProgramNode& node) {
  const auto& declared = node.op.schema().arguments();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const c10::IValue* const constant = node.arguments[i].constant();
    if (!constant) continue;
    if (declared[i].name() == "train" && constant->isBool() && !constant->toBool()) return false;
    if (declared[i].name() == "dropout_p" && constant->isDouble() && constant->toDouble() == 0) return false;
  }
  return node.op.hasTag(at::Tag::nondeterministic_seeded);
}

[[nodiscard]] inline ExportReport report_of(const ExportedProgram& program) {
  ExportReport report{program.weights.size(), program.nodes.size(), program.constants.size()};
  for (const auto& constant : program.constants) {
    report.constant_bytes += constant.tensor.nbytes();
    if (constant.tensor.nbytes() > kLargeConstant)
      report.notes.push_back(message("a tensor ", constant.tensor.sizes(), " of ", constant.tensor.nbytes(),
                                     " bytes is a constant of the file: register it, if it is a weight"));
  }
  std::set<std::string> random;
  for (const auto& node : program.nodes)
    if (draws(node) && random.insert(node.name()).second)
      report.notes.push_back(node.name() +
                             " draws random numbers, others in each program that reads the file");
  return report;
}

/// Notes a weight that has another name in the file.
inline void note_renamed(const std::string& name, std::vector<std::string>& notes) {
  if (const std::string given = for_python(name); given != name)
    notes.push_back("\"" + name + "\" is \"" + given + "\" in the file, since Python has such a keyword");
}

inline ExportReport export_module(torch::nn::Module& module, const TensorFunction& forward,
                                  const std::vector<at::Tensor>& inputs, const std::filesystem::path& path,
                                  const ExportOptions& options) {
  check_suffix(path);
  const auto names = input_names(options, inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined() || inputs[i].layout() != at::kStrided || inputs[i].is_quantized())
      throw ExportError("the input \"" + names[i] + "\" is no dense tensor");
  std::vector<at::Tensor> example;
  for (const auto& input : inputs) example.push_back(input.detach());
  at::Device device = example.empty() ? at::Device(at::kCPU) : example.front().device();
  const auto weights = weights_of(module);
  require_readable_names(weights, path);
  for (const auto& weight : weights)
    if (!weight.tensor.is_cpu()) device = weight.tensor.device();
  require_no_nan(module);
  const ExportScope scope(module, device);
  auto program = trace_program(module, forward, example, names, options.dynamic, options.trust_value_reads);
  program.output_names = output_names(options, program.outputs.size());
  check_program(program, forward, [&] { scope.restore_generators(); });
  write_program(program_on_device(program, options.device), path, module.name());
  auto report = report_of(program);
  for (const auto& parameter : module.named_parameters()) note_renamed(parameter.key(), report.notes);
  for (const auto& buffer : module.named_buffers()) note_renamed(buffer.key(), report.notes);
  for (const std::string& note : report.notes) TORCH_WARN("looptorch: ", path.string(), ": ", note);
  return report;
}

}  // namespace detail

/// Writes what `forward(model, inputs...)` computes in eval mode to `path`, whole or not at all:
/// torch.export's archive for `.pt2`, TorchScript for `.ts` and `.pt`. `example` is a tensor or a tuple of
/// tensors, `forward` returns a tensor, a tuple or a vector of them. Before the file appears the program is
/// run at several sizes and for other values, and gives the forward's bits. Throws ExportError for what a
/// file cannot hold, and FileError. Restores the model, the modes of its modules, the random generators and
/// LibTorch's switches, also after an error.
template <class Model, class Forward, class Example>
requires(!std::convertible_to<Forward, std::filesystem::path>) ExportReport
    export_model(Model& model, Forward forward, const Example& example, const std::filesystem::path& path,
                 const ExportOptions& options = {}) {
  const auto inputs = detail::tensors_of(example);
  constexpr std::size_t kInputs = [] {
    if constexpr (std::is_convertible_v<Example, at::Tensor>)
      return std::size_t{1};
    else
      return std::tuple_size_v<Example>;
  }();
  const detail::TensorFunction call = [&](const std::vector<at::Tensor>& in) {
    return detail::call_forward(model, forward, in, std::make_index_sequence<kInputs>());
  };
  return detail::export_module(*model, call, inputs, path, options);
}

/// Writes what `model->forward(inputs...)` computes.
template <class Model, class Example>
ExportReport export_model(Model& model, const Example& example, const std::filesystem::path& path,
                          const ExportOptions& options = {}) {
  return export_model(
      model, [](Model& holder, const auto&... inputs) { return holder->forward(inputs...); }, example, path,
      options);
}

}  // namespace looptorch
