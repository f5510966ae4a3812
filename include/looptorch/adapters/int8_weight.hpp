// SPDX-License-Identifier: MIT
// Stores a linear layer's frozen weight in 8 bits, and multiplies by it forward and backward. Each row
// becomes integers from -127 to 127 and one scale. An element's error is at most 1/254 of its row's largest
// absolute value; that largest value has a rounding error only.
//
// Shapes: K inputs, N outputs.
#pragma once

#include <looptorch/layers/linear_node.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <optional>

namespace looptorch::detail {

struct Int8Weight {
  at::Tensor rows_NK;  ///< int8
  at::Tensor scale_N;  ///< fp32
};

/// Returns the largest absolute value of each row, in fp32; not finite for a row that holds NaN or infinity.
[[nodiscard]] inline at::Tensor largest_of_rows(const at::Tensor& weight_NK) {
  const at::NoGradGuard no_gradients;
  constexpr double kOfLargest = std::numeric_limits<double>::infinity();
  const auto type = weight_NK.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;  // narrows no weight
  return at::linalg_vector_norm(weight_NK, kOfLargest, at::IntArrayRef{1}, /*keepdim=*/false, type)
      .to(at::kFloat);
}

/// Returns the nearest 8-bit rows of a finite weight, given the largest_of_rows.
[[nodiscard]] inline Int8Weight to_int8(const at::Tensor& weight_NK, const at::Tensor& largest_N) {
  constexpr double kLargest = 127;
  const at::NoGradGuard no_gradients;
  const at::Tensor scale_N = largest_N / kLargest;
  const at::Tensor divisor_N1 = scale_N.masked_fill(scale_N.eq(0), 1).unsqueeze(1);
  return {weight_NK.to(at::kFloat).div(divisor_N1).round_().clamp_(-kLargest, kLargest).to(at::kChar),
          scale_N};
}

/// Returns the dequantised weight in `type`. Multiplies in fp32 and rounds once.
[[nodiscard]] inline at::Tensor widened(const Int8Weight& weight, at::ScalarType type) {
  return at::mul(weight.rows_NK, weight.scale_N.unsqueeze(1)).to(type);
}

/// y = W x + b. Saves the 8-bit rows for backward, but not the input, since the weight gets no gradient.
struct Int8Product : torch::autograd::Function<Int8Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& rows_NK, const at::Tensor& scale_N,
                            const std::optional<at::Tensor>& bias_N) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    context->save_for_backward({rows_NK, scale_N});
    const auto bias = bias_N ? std::optional(bias_N->to(x.scalar_type())) : std::nullopt;
    return at::linear(x, widened({rows_NK, scale_N}, x.scalar_type()), bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor& gradient = gradients[0];
    return {at::matmul(gradient, widened({saved[0], saved[1]}, gradient.scalar_type())), {}, {}, {}};
  }
};

/// Maps `x`, `[..., K]`, to `[..., N]` in its type, or autocast's under autocast. The bias may be undefined,
/// and may be trained, unlike the weight.
[[nodiscard]] inline at::Tensor int8_linear(const at::Tensor& x, const Int8Weight& weight,
                                            const at::Tensor& bias_N) {
  const auto type = matmul_type(x);
  const bool trains_bias = bias_N.defined() && bias_N.requires_grad();
  const at::Tensor y =
      Int8Product::apply(x.to(type), weight.rows_NK, weight.scale_N,
                         bias_N.defined() && !trains_bias ? std::optional(bias_N) : std::nullopt);
  return trains_bias ? y + bias_N.to(type) : y;
}

}  // namespace looptorch::detail
