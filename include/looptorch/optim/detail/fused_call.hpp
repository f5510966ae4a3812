// SPDX-License-Identifier: MIT
// What the fused optimizers' rules are written in: the tensors kept for each parameter, and what one call of
// a kernel works on.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/loop/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <optional>
#include <vector>

namespace looptorch::detail {

/// A step's pending factor and overflow flag in the form that kernels take, made once a device.
class FusedFactors {
 public:
  FusedFactors(const GradientScale& scale, const at::Tensor& found_inf)
      : scale_(scale), found_inf_(found_inf) {}

  void move_to(at::Device device) {
    if (device_ == device) return;
    device_ = device;
    if (!scale_.is_one()) divisor = scale_.reciprocal(device);
    if (found_inf_.defined())
      found_inf = found_inf_.ne(0).to(at::TensorOptions(at::kFloat).device(device),
                                      /*non_blocking=*/!device.is_cpu());
  }

  std::optional<at::Tensor> divisor;    ///< fp32; none where the factor is 1.
  std::optional<at::Tensor> found_inf;  ///< fp32 0 or 1; none where no flag was given.

 private:
  const GradientScale& scale_;
  const at::Tensor& found_inf_;
  std::optional<at::Device> device_;
};

/// Lists of one device and dtype, as LibTorch's CUDA kernels require.
template <class Moments>
struct FusedCall {
  at::TensorList parameters, gradients;
  const Moments& moments;
  bool first;  ///< These parameters' first update, where the rule tells it from others.
  const FusedFactors& factors;
};

/// The gradient in the parameter's memory layout, which the kernels take for granted. Costs a copy where the
/// layouts differ: autograd's own gradients have the parameter's.
inline at::Tensor fused_gradient(const at::Tensor& parameter, const at::Tensor& gradient, const char* name) {
  if (gradient.layout() != at::kStrided)
    throw UsageError(message(name, " takes dense gradients only; that of a parameter of shape ",
                             parameter.sizes(), " is ", gradient.layout()));
  if (gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

}  // namespace looptorch::detail
