// SPDX-License-Identifier: MIT
// The types that FusedOptimizer passes to its rule (optimizer_rule.hpp). FusedCall has the arguments of one
// kernel call. FusedFactors has the step's overflow flag, and the factor by which its gradients must still be
// multiplied.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/where.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A step's pending factor and overflow flag in the form that kernels take, made once a device.
class FusedFactors {
 public:
  FusedFactors(GradientScale scale, at::Tensor flag)
      : scale_(std::move(scale)), found_inf_(std::move(flag)) {}

  void move_to(at::Device device) {
    if (device_ == device) return;
    device_ = device;
    if (!scale_.is_one()) divisor = scale_.reciprocal(device);
    if (found_inf_.defined())
      found_inf = as_zero_or_one(found_inf_).to(device, /*non_blocking=*/!device.is_cpu());
  }

  // ---- For rules without a kernel of LibTorch's ----

  /// Returns the divisor of a call on the CPU.
  [[nodiscard]] double divisor_on_host() const { return divisor ? *divisor->const_data_ptr<float>() : 1.0; }
  /// True if a call on the CPU must change nothing.
  [[nodiscard]] bool overflowed_on_host() const {
    return found_inf && *found_inf->const_data_ptr<float>() != 0;
  }
  /// Returns the gradient times the pending factor.
  [[nodiscard]] at::Tensor applied_to(const at::Tensor& gradient) const {
    return divisor ? gradient / *divisor : gradient;
  }
  /// Returns `value`, or `former` if the device finds the overflow flag set.
  [[nodiscard]] at::Tensor chosen(const at::Tensor& former, const at::Tensor& value) const {
    return found_inf ? at::where(found_inf->ne(0), former, value.to(former.scalar_type())) : value;
  }
  /// Copies `value` to `target`, unless the device finds the overflow flag set.
  void replace(const at::Tensor& target, const at::Tensor& value) const {
    target.copy_(chosen(target, value));
  }

  std::optional<at::Tensor> divisor;    ///< fp32; empty if the factor is 1.
  std::optional<at::Tensor> found_inf;  ///< fp32 0 or 1; empty if no flag was given.

 private:
  static at::Tensor as_zero_or_one(const at::Tensor& flag) {
    at::Tensor result = at::empty(flag.sizes(), flag.options().dtype(at::kFloat));
    return at::ne_out(result, flag, 0);
  }

  GradientScale scale_;
  at::Tensor found_inf_;
  std::optional<at::Device> device_;
};

/// A step that a graph has begun: its results, at the graph's addresses.
struct BegunStep {
  FusedFactors factors;
  std::vector<at::Tensor> counts;  ///< The step counts that the graph advances.
};

/// The arguments of one kernel call: lists of one device and dtype, as LibTorch's CUDA kernels require.
template <class Moments>
struct FusedCall {
  at::TensorList parameters, gradients;
  const Moments& moments;
  bool first;  ///< True in these parameters' first update, if the rule treats it differently.
  const FusedFactors& factors;
  at::Tensor rate;  ///< 0-dim fp64 on the parameters' device; undefined: the options' `lr`.

  /// Calls `use` with the rate, a number or a tensor, and returns the result.
  template <class Use>
  decltype(auto) with_rate(double lr, Use&& use) const {
    return rate.defined() ? use(rate) : use(lr);
  }
};

/// Calls `use` with the call's rate for LibTorch's fused kernels, which read a rate on a device in fp32.
template <class Moments, class Use>
void with_fused_rate(const FusedCall<Moments>& call, double lr, Use&& use) {
  if (call.rate.defined() && !call.rate.is_cpu()) return use(call.rate.to(at::kFloat));
  use(lr);
}

/// Options as LibTorch's parameter groups hold them; `get_lr` and `set_lr` serve schedules.
template <class Options>
struct FusedGroupOptions : torch::optim::OptimizerCloneableOptions<FusedGroupOptions<Options>> {
  explicit FusedGroupOptions(Options options) : values(options) {}
  double get_lr() const override { return values.lr; }
  void set_lr(const double lr) override { values.lr = lr; }
  Options values;
};

/// The properties that parameters must share to be updated by one call.
struct FusedKind {
  at::Device device;
  at::ScalarType type;
  bool first;
  bool operator==(const FusedKind&) const = default;
};

/// The lists of a step, kept between steps for their capacity. Those of a call are cleared after it, so that
/// no gradient outlives it.
template <class Rule>
struct FusedLists {
  std::vector<std::vector<std::size_t>> due;      ///< by group: indices of parameters not updated yet
  std::vector<std::size_t> alike;                 ///< those in the current call
  std::vector<at::Tensor> parameters, gradients;  ///< of the call
  typename Rule::Moments moments;                 ///< of the call

  void clear_call() {
    parameters.clear(), gradients.clear();
    for (const auto& field : Rule::kFields) (moments.*field.list).clear();
  }
};

/// True for a weight in 16 bits.
[[nodiscard]] inline bool is_narrow(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kBFloat16 || parameter.scalar_type() == at::kHalf;
}

/// Throws UsageError for an fp16 weight under an option that keeps the bits which bf16 cuts off fp32.
inline void require_no_fp16(const at::Tensor& parameter, const char* name, const char* option) {
  if (parameter.scalar_type() == at::kHalf)
    throw UsageError(message(name, "'s .", option,
                             " keeps the bits that a bf16 weight lacks of fp32, and a parameter of shape ",
                             parameter.sizes(), " is in fp16: leave .", option,
                             " off, which rounds fp16 weights stochastically, or keep the weights in bf16"));
}

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

/// Throws UsageError for a parameter that is in two groups, or that the kernels cannot update.
inline void require_listed_once(const at::Tensor& parameter, bool is_new, const char* name) {
  if (!is_new)
    throw UsageError(
        message(name, " was given a parameter of shape ", parameter.sizes(), " in two parameter groups"));
  require_updatable(parameter, name);
}

/// Throws UsageError for a gradient of another shape, such as one from before the parameter's was changed.
/// The kernels do not check, and would read past its end.
inline void require_same_shape(const at::Tensor& gradient, const at::Tensor& parameter, const char* name) {
  if (gradient.sizes() != parameter.sizes())
    throw UsageError(message(name, " was given a gradient of shape ", gradient.sizes(),
                             " for a parameter of shape ", parameter.sizes()));
}

/// Returns the gradient as the kernels read it: on the parameter's device, in its dtype and memory layout.
/// Copies only a gradient that differs, as after `Module::to`, which leaves gradients behind, and with
/// `grad_dtype`.
inline at::Tensor fused_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  const bool is_alike = gradient.strides() == parameter.strides() &&
                        gradient.scalar_type() == parameter.scalar_type() &&
                        gradient.device() == parameter.device();
  return is_alike ? gradient : at::empty_like(parameter).copy_(gradient);
}

}  // namespace looptorch::detail
