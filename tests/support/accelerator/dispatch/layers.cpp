// SPDX-License-Identifier: MIT
// Kernels of operators that LibTorch calls on accelerators only: convolution, dropout, fused LSTM cells.
#include "support/accelerator/dispatch/launch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace looptorch_test::accelerator {

namespace {

bool is_given(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       std::int64_t groups) {
  const auto compute = [stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), transposed,
                        output_padding = output_padding.vec(),
                        groups](const std::vector<at::Tensor>& operands) {
    const std::optional<at::Tensor> bias = operands[2].defined() ? std::optional(operands[2]) : std::nullopt;
    return torch::jit::Stack{at::convolution(operands[0], operands[1], bias, stride, padding, dilation,
                                             transposed, output_padding, groups)};
  };
  return launch({.name = "convolution", .device = input.device()},
                {{input}, {weight}, {bias ? *bias : at::Tensor()}}, compute)[0]
      .toTensor();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    std::int64_t groups, std::array<bool, 3> mask) {
  const auto compute = [stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), transposed,
                        output_padding = output_padding.vec(), groups,
                        mask](const std::vector<at::Tensor>& operands) {
    const at::Tensor& weight = operands[2];
    const std::int64_t biases = transposed ? weight.size(1) * groups : weight.size(0);
    auto [of_input, of_weight, of_bias] =
        at::convolution_backward(operands[0], operands[1], weight, at::IntArrayRef(biases), stride, padding,
                                 dilation, transposed, output_padding, groups, mask);
    return torch::jit::Stack{of_input, of_weight, of_bias};
  };
  const auto results = launch({.name = "convolution_backward", .device = input.device()},
                              {{gradient}, {input}, {weight}}, compute);
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  const auto mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true) || p == 0) return {input.clone(), at::ones_like(input, mask_options)};
  const at::Tensor kept = at::empty_like(input, mask_options).bernoulli_(1 - p);
  return {input.mul(kept).mul_(p == 1 ? 0.0 : 1 / (1 - p)), kept};
}

// torch's recurrent cells ask any accelerator for these two, which CPUs lack.

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates, const at::Tensor& cx,
                                                         const std::optional<at::Tensor>& b_ih,
                                                         const std::optional<at::Tensor>& b_hh) {
  at::Tensor gates = input_gates + hidden_gates;
  if (is_given(b_ih)) gates = gates + *b_ih + *b_hh;
  const auto parts = gates.chunk(4, 1);
  const at::Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(),
                   o = parts[3].sigmoid();
  const at::Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor>& grad_hy,
                                                                  const std::optional<at::Tensor>& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                  const at::Tensor& workspace,
                                                                  bool has_bias) {
  const auto parts = workspace.chunk(4, 1);
  const at::Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  const at::Tensor t = cy.tanh();
  at::Tensor of_cell = is_given(grad_hy) ? *grad_hy * o * (1 - t * t) : at::zeros_like(cy);
  if (is_given(grad_cy)) of_cell = of_cell + *grad_cy;
  const at::Tensor of_output = is_given(grad_hy) ? *grad_hy * t * o * (1 - o) : at::zeros_like(o);
  const at::Tensor gates = at::cat(
      {of_cell * g * i * (1 - i), of_cell * cx * f * (1 - f), of_cell * i * (1 - g * g), of_output}, 1);
  return {gates, of_cell * f, has_bias ? gates.sum(0) : at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("native_dropout", &native_dropout);
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
}

}  // namespace looptorch_test::accelerator
