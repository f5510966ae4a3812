// SPDX-License-Identifier: MIT
// Computes an operator's floating-point operations from its inputs' shapes. Counts matmuls, convolutions and
// attention, but no element-wise operators, as PyTorch's torch.utils.flop_counter does. Results differ from
// PyTorch's for the weight gradient of a grouped convolution: PyTorch counts all input channels for each
// output channel. Attention on a CPU and fused recurrent layers are counted here, but not by PyTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/accumulate.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace looptorch::detail {

using OperatorInputs = c10::ArrayRef<const c10::IValue>;
using FlopFormula = std::int64_t (*)(OperatorInputs);

/// True if an operator's input is a tensor that has a shape: nested ones have none.
inline bool has_shape(OperatorInputs inputs, std::size_t i) {
  return i < inputs.size() && inputs[i].isTensor() && inputs[i].toTensor().defined() &&
         !inputs[i].toTensor().is_nested();
}
inline c10::IntArrayRef shape(OperatorInputs inputs, std::size_t i) { return inputs[i].toTensor().sizes(); }

/// Input A is `[..., M, K]`, input A + 1 `[..., K, N]`.
template <std::size_t A>
std::int64_t matmul_flops(OperatorInputs inputs) {
  if (!has_shape(inputs, A) || !has_shape(inputs, A + 1)) return 0;
  const auto& a = inputs[A].toTensor();
  const auto& b = inputs[A + 1].toTensor();
  return b.dim() < 2 ? 0 : 2 * a.numel() * b.size(-1);
}

/// Input 0 is `[..., K]`, input 1 a weight `[N, K]`.
inline std::int64_t linear_flops(OperatorInputs inputs) {
  if (!has_shape(inputs, 0) || !has_shape(inputs, 1)) return 0;
  return 2 * inputs[0].toTensor().numel() * shape(inputs, 1).front();
}

/// Each position of a convolution multiplies all of the weight, in forward and for either gradient. `places`
/// are the sizes of the output, or of a transposed convolution's input. `x` is `[N, C, ...]`.
inline std::int64_t at_places(const at::Tensor& x, c10::IntArrayRef places, const at::Tensor& weight) {
  return 2 * x.size(0) * c10::multiply_integers(places) * weight.numel();
}

/// Inputs: input, weight, bias, stride, padding, dilation, transposed, and others that do not matter.
inline std::int64_t convolution_flops(OperatorInputs inputs) {
  if (!has_shape(inputs, 0) || !has_shape(inputs, 1)) return 0;
  const auto& x = inputs[0].toTensor();
  const auto& weight = inputs[1].toTensor();
  auto places = x.sizes().slice(2).vec();
  if (!inputs[6].toBool()) {
    const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(),
               dilation = inputs[5].toIntVector();
    const auto at = [](const auto& list, std::size_t i) { return list[list.size() == 1 ? 0 : i]; };
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int64_t reach = at(dilation, i) * (weight.sizes()[i + 2] - 1) + 1;
      places[i] = (places[i] + 2 * at(padding, i) - reach) / at(stride, i) + 1;
    }
  }
  return at_places(x, places, weight);
}

/// Inputs: gradient of the output, input, weight, bias's sizes, stride, padding, dilation, transposed, output
/// padding, groups, and which gradients are computed: of the input, the weight, the bias.
inline std::int64_t convolution_backward_flops(OperatorInputs inputs) {
  if (!has_shape(inputs, 0) || !has_shape(inputs, 1) || !has_shape(inputs, 2)) return 0;
  const bool transposed = inputs[7].toBool();
  const auto wanted = inputs[10].toBoolList();
  const std::int64_t gradients = std::int64_t{wanted.get(0)} + std::int64_t{wanted.get(1)};
  return gradients *
         at_places(inputs[1].toTensor(), shape(inputs, transposed ? 1 : 0).slice(2), inputs[2].toTensor());
}

/// Inputs from Q on: queries `[B, H, T, d]`, keys `[.., S, d]`, values `[.., S, e]`. Each pair of a query and
/// a key takes `OfKeys` products over d and `OfValues` over e. Masks, even causal ones, reduce nothing here.
template <std::size_t Q, std::int64_t OfKeys, std::int64_t OfValues>
std::int64_t attention_flops(OperatorInputs inputs) {
  if (!has_shape(inputs, Q) || !has_shape(inputs, Q + 1) || !has_shape(inputs, Q + 2)) return 0;
  const auto& queries = inputs[Q].toTensor();
  if (queries.dim() < 2 || queries.size(-1) == 0) return 0;
  const std::int64_t pairs = queries.numel() / queries.size(-1) *
                             shape(inputs, Q + 1).slice(static_cast<std::size_t>(queries.dim() - 2)).front();
  return 2 * pairs * (OfKeys * queries.size(-1) + OfValues * shape(inputs, Q + 2).back());
}

/// A recurrent layer multiplies each matrix of its weights with each of the `[T, B]` inputs, or of the `[T]`
/// packed ones; backward does so twice.
template <std::int64_t Times>
std::int64_t recurrent_flops(OperatorInputs inputs) {
  if (!has_shape(inputs, 0) || shape(inputs, 0).back() == 0) return 0;
  std::int64_t weights = 0;
  const auto add = [&](const at::Tensor& weight) {
    if (weight.defined() && weight.dim() == 2) weights += weight.numel();
  };
  if (inputs[1].isTensorList())
    for (const at::Tensor& weight : inputs[1].toTensorVector()) add(weight);
  else
    for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
      if (has_shape(inputs, i)) add(inputs[i].toTensor());
  return Times * 2 * (inputs[0].toTensor().numel() / shape(inputs, 0).back()) * weights;
}

/// Returns the formula of an operator; null if its FLOPs do not count.
inline FlopFormula flop_formula(std::string_view name) {
  static const std::unordered_map<std::string_view, FlopFormula> formulas = {
      {"aten::mm", &matmul_flops<0>},
      {"aten::bmm", &matmul_flops<0>},
      {"aten::_scaled_mm", &matmul_flops<0>},
      {"aten::addmm", &matmul_flops<1>},
      {"aten::addmm_", &matmul_flops<1>},
      {"aten::_addmm_activation", &matmul_flops<1>},
      {"aten::baddbmm", &matmul_flops<1>},
      {"aten::baddbmm_", &matmul_flops<1>},
      {"aten::addbmm", &matmul_flops<1>},
      {"aten::addbmm_", &matmul_flops<1>},
      {"mkldnn::_linear_pointwise", &linear_flops},
      {"aten::mkldnn_linear", &linear_flops},
      {"aten::convolution", &convolution_flops},
      {"aten::_convolution", &convolution_flops},
      {"aten::convolution_overrideable", &convolution_flops},
      {"aten::convolution_backward", &convolution_backward_flops},
      {"aten::_scaled_dot_product_flash_attention", &attention_flops<0, 1, 1>},
      {"aten::_scaled_dot_product_efficient_attention", &attention_flops<0, 1, 1>},
      {"aten::_scaled_dot_product_cudnn_attention", &attention_flops<0, 1, 1>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention_flops<0, 1, 1>},
      {"aten::_scaled_dot_product_fused_attention_overrideable", &attention_flops<0, 1, 1>},
      {"aten::_scaled_dot_product_flash_attention_backward", &attention_flops<1, 3, 2>},
      {"aten::_scaled_dot_product_efficient_attention_backward", &attention_flops<1, 3, 2>},
      {"aten::_scaled_dot_product_cudnn_attention_backward", &attention_flops<1, 3, 2>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", &attention_flops<1, 3, 2>},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward", &attention_flops<1, 3, 2>},
      {"aten::_cudnn_rnn", &recurrent_flops<1>},
      {"aten::_cudnn_rnn_backward", &recurrent_flops<2>},
      {"aten::mkldnn_rnn_layer", &recurrent_flops<1>},
      {"aten::mkldnn_rnn_layer_backward", &recurrent_flops<2>},
  };
  const auto found = formulas.find(name);
  return found == formulas.end() ? nullptr : found->second;
}

}  // namespace looptorch::detail
