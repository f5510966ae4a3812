// SPDX-License-Identifier: MIT
// Computes several linear layers of one input as one matmul, such as the queries, keys and values of
// attention. Layers keep their names and parameters. On a small model or a GPU this saves a quarter of
// attention's host time, and half under autocast. It costs copies of the weights in forward (in fp32 also in
// backward), and a copy of the outputs' gradients. If the layers have more than 2^16 weights together on a
// CPU, or 2^23 on an accelerator, each layer has its own matmul, since copying would take longer than the
// saved calls. The gradients of the weights share one storage. The weights must not change in place between
// forward and backward.
//
// Shapes: K inputs of each layer, N outputs of all layers.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/layers/linear_node.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace looptorch {

/// Returns `[B, T, H d]` as `[B, H, T, d]`.
[[nodiscard]] inline at::Tensor split_heads(const at::Tensor& x_BTD, std::int64_t heads) {
  return x_BTD.unflatten(-1, {heads, x_BTD.size(-1) / heads}).transpose(1, 2);
}

namespace detail {

/// True if one matmul can replace the layers' own and is faster: copying a large weight takes longer than
/// the calls that it saves. On an accelerator, the attention weights of every Whisper are below the limit.
[[nodiscard]] inline bool are_joined(const at::Tensor& input, at::TensorList weights, at::TensorList biases,
                                     bool input_learns) {
  constexpr std::int64_t kMaxOnCpu = 1 << 16, kMaxOnAccelerator = 1 << 23;
  if (!takes_node(input) || input.dim() < 2 || input.numel() == 0 || has_tangent(input)) return false;
  const at::Tensor& first = weights[0];
  const auto type = matmul_type(input), from = first.scalar_type();
  if (!first.is_floating_point() || (type == input.scalar_type() ? from != type : from == at::kDouble))
    return false;
  std::int64_t elements = 0;
  bool requires_grad = input_learns;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor &weight = weights[i], &bias = biases[i];
    if (weight.device() != input.device() || weight.scalar_type() != from ||
        weight.requires_grad() != first.requires_grad() || weight.size(1) != input.size(-1) ||
        weight.numel() == 0 || has_tangent(weight))
      return false;
    if (bias.defined() &&
        (bias.device() != weight.device() || bias.scalar_type() != from || has_tangent(bias)))
      return false;
    elements += weight.numel();
    requires_grad |= weight.requires_grad() || (bias.defined() && bias.requires_grad());
  }
  return requires_grad && elements <= (computes_on_cpu(input) ? kMaxOnCpu : kMaxOnAccelerator);
}

/// Gives layers without a bias a zero one, unless none has a bias.
inline void complete(std::vector<at::Tensor>& biases, at::TensorList weights) {
  if (std::ranges::none_of(biases, [](const at::Tensor& bias) { return bias.defined(); }))
    return biases.clear();
  for (std::size_t i = 0; i < biases.size(); ++i)
    if (!biases[i].defined()) biases[i] = at::zeros({weights[i].size(0)}, weights[i].options());
}

template <class Layer>
[[nodiscard]] bool has_no_adapter(const Layer& layer) {
  if constexpr (requires { layer->has_adapter(), layer->is_int8(); })
    return !layer->has_adapter() && !layer->is_int8();
  return true;
}

/// Returns each layer's output by one matmul; none if that is not possible or is slower. `biases` has an
/// undefined tensor for a layer without a bias.
[[nodiscard]] inline std::vector<at::Tensor> joint_outputs(const at::Tensor& input,
                                                           const std::vector<at::Tensor>& weights,
                                                           std::vector<at::Tensor> biases,
                                                           std::int64_t heads = 0) {
  if (!are_joined(input, weights, biases, input.requires_grad())) return {};
  complete(biases, weights);
  return LinearBackward::outputs(input, weights, biases, {.split = heads}, matmul_type(input));
}

/// Returns a layer's output by heads.
template <class Layer>
[[nodiscard]] at::Tensor heads_of(const at::Tensor& input, std::int64_t heads, Layer& layer) {
  at::Tensor output;
  if (has_no_adapter(layer)) output = try_linear_node(input, layer->weight, layer->bias, {.split = heads});
  return output.defined() ? output : split_heads(layer->forward(input), heads);
}

}  // namespace detail

/// Returns each linear layer's output for `input`, `[..., K]`, by one matmul in forward and one for each
/// gradient in backward. Outputs have the bits of the layers' own matmuls or, as with a few rows, differ by
/// rounding; the gradient of the input is summed within the matmul.
///
/// Calls the layers one by one if gradients are off, if only some weights are frozen, for layers with
/// adapters, and for large weights. Layers are holders of torch::nn::Linear or of modules derived
/// from it that compute the same.
template <class... Layers>
[[nodiscard]] std::array<at::Tensor, sizeof...(Layers)> joint_linear(const at::Tensor& input,
                                                                     Layers... layers) {
  if (!(detail::has_no_adapter(layers) && ...)) return {layers->forward(input)...};
  const auto outputs = detail::joint_outputs(input, {layers->weight...}, {layers->bias...});
  if (outputs.empty()) return {layers->forward(input)...};
  std::array<at::Tensor, sizeof...(Layers)> result;
  std::ranges::copy(outputs, result.begin());
  return result;
}

/// Returns each layer's output for `input`, `[B, T, K]`, by heads: `[B, H, T, d]`, as attention takes it. The
/// numbers are those of `joint_linear`. `heads`, which is H, divides the outputs of each layer.
template <class... Layers>
[[nodiscard]] std::array<at::Tensor, sizeof...(Layers)> joint_heads(const at::Tensor& input,
                                                                    std::int64_t heads, Layers... layers) {
  std::vector<at::Tensor> outputs;
  const std::array rows{layers->weight.size(0)...};
  const bool are_alike =
      std::ranges::count(rows, rows[0]) == std::ssize(rows) && heads > 0 && rows[0] % heads == 0;
  if (rows.size() > 1 && are_alike && input.dim() == 3 && (detail::has_no_adapter(layers) && ...))
    outputs = detail::joint_outputs(input, {layers->weight...}, {layers->bias...}, heads);
  if (outputs.empty()) return {detail::heads_of(input, heads, layers)...};
  std::array<at::Tensor, sizeof...(Layers)> result;
  std::ranges::copy(outputs, result.begin());
  return result;
}

/// Returns a linear layer's output, `[B, T, N]`, for attention's result by heads, `[B, H, T, d]`; plus
/// `residual_BTN` if that is given.
template <class Layer>
[[nodiscard]] at::Tensor merge_heads(const at::Tensor& x_BHTd, Layer layer,
                                     const at::Tensor& residual_BTN = {}) {
  at::Tensor output;
  if (detail::has_no_adapter(layer))
    output = detail::try_linear_node(x_BHTd, layer->weight, layer->bias,
                                     {.is_merged = true, .residual = residual_BTN});
  if (output.defined()) return output;
  output = layer->forward(x_BHTd.transpose(1, 2).flatten(2));
  return residual_BTN.defined() ? residual_BTN + output : output;
}

}  // namespace looptorch
