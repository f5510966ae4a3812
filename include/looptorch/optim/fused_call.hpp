// SPDX-License-Identifier: MIT
// The vocabulary of the fused optimizers' rules: the tensors kept for each parameter, and the arguments of
// one kernel call.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <optional>
#include <vector>

namespace looptorch::detail {

/// A step's pending factor and overflow flag in the form that kernels take, made once a device.
class FusedFactors {
 public:
  FusedFactors(const GradientScale& scale, const at::Tensor& flag) : scale_(scale), found_inf_(flag) {}

  void move_to(at::Device device) {
    if (device_ == device) return;
    device_ = device;
    if (!scale_.is_one()) divisor = scale_.reciprocal(device);
    if (found_inf_.defined())
      found_inf = found_inf_.ne(0).to(at::TensorOptions(at::kFloat).device(device),
                                      /*non_blocking=*/!device.is_cpu());
  }

  std::optional<at::Tensor> divisor;    ///< fp32; empty if the factor is 1.
  std::optional<at::Tensor> found_inf;  ///< fp32 0 or 1; empty if no flag was given.

 private:
  const GradientScale& scale_;
  const at::Tensor& found_inf_;
  std::optional<at::Device> device_;
};

/// The arguments of one kernel call: lists of one device and dtype, as LibTorch's CUDA kernels require.
template <class Moments>
struct FusedCall {
  at::TensorList parameters, gradients;
  const Moments& moments;
  bool first;  ///< True in these parameters' first update, if the rule treats it differently.
  const FusedFactors& factors;
};

/// Throws UsageError for a parameter that the kernels cannot update, or would misread.
inline void require_updatable(const at::Tensor& parameter, const char* name) {
  const at::ScalarType type = parameter.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kHalf && type != at::kBFloat16)
    throw UsageError(message(name, " updates parameters in fp64, fp32, fp16 and bf16; one of shape ",
                             parameter.sizes(), " is ", type));
  if (!parameter.is_non_overlapping_and_dense())
    throw UsageError(message(name, " needs parameters without gaps in memory; one of shape ",
                             parameter.sizes(), " has strides ", parameter.strides()));
}

/// Returns the gradient in the parameter's memory layout, which the kernels assume. Copies only if the
/// layouts differ; autograd's own gradients have the parameter's.
inline at::Tensor fused_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (gradient.strides() == parameter.strides()) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

}  // namespace looptorch::detail
