// SPDX-License-Identifier: MIT
// Moves a traced program to another device.
#pragma once

#include <looptorch/export/program/exported_program.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>

namespace looptorch::detail {

/// Returns the program with its weights, constants and examples on `device`, and with arguments that name it,
/// such as that of arange. Tensors already on that device are shared.
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

}  // namespace looptorch::detail
