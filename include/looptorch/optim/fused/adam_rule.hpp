// SPDX-License-Identifier: MIT
// The OptimizerRule of FusedAdam and FusedAdamW: their moments, the check of their options, and the call of
// their kernel. AdamW8bit, AdamWBf16 and Muon reuse the check of the options, and adamw_weight, which is
// AdamW's update written in tensor operations.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/optim/fused/fused_call.hpp>
#include <looptorch/optim/fused/optimizer_rule.hpp>
#include <looptorch/optim/state/moment_fields.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/pow.h>

#include <array>
#include <tuple>
#include <vector>

namespace looptorch {

/// The moments that Adam and AdamW keep for the parameters of one group, each list in their order; undefined
/// before a parameter's first gradient.
struct AdamMoments {
  std::vector<at::Tensor> first;       ///< Like the parameters.
  std::vector<at::Tensor> second;      ///< Like the parameters.
  std::vector<at::Tensor> max_second;  ///< Like the parameters with `amsgrad`, else empty.
  std::vector<at::Tensor> steps;  ///< 0-dim fp32; shared by parameters that were always updated together.
};

namespace detail {

/// Throws UsageError, in the optimizer's name, for hyper-parameters out of range.
template <class Options>
void check_adam_options(const char* name, const Options& options) {
  const auto [beta1, beta2] = options.betas;
  const bool valid = options.lr >= 0 && options.eps >= 0 && options.weight_decay >= 0 && beta1 >= 0 &&
                     beta1 < 1 && beta2 >= 0 && beta2 < 1;
  if (!valid)
    throw UsageError(message(
        name, " needs lr, eps and weight_decay of at least 0 and betas in [0, 1); got lr ", options.lr,
        ", betas ", beta1, " and ", beta2, ", eps ", options.eps, ", weight_decay ", options.weight_decay));
}

/// Returns a fp32 weight after AdamW's update, by tensor operations. `root` is that of the second
/// moment; `rate` is a number or a 0-dim tensor.
template <class Options, class Rate>
[[nodiscard]] at::Tensor adamw_weight(const Options& options, const Rate& rate, const at::Tensor& weight,
                                      const at::Tensor& first, const at::Tensor& root,
                                      const at::Tensor& step) {
  const at::Tensor first_correction = 1 - at::pow(options.betas[0], step);
  const at::Tensor second_correction = (1 - at::pow(options.betas[1], step)).sqrt_();
  const at::Tensor change = first / first_correction / (root / second_correction + options.eps);
  return weight * (1 - rate * options.weight_decay) - change * rate;
}

template <class OptionsType, class Kernel>
struct AdamRule {
  using Options = OptionsType;
  using Moments = AdamMoments;
  static constexpr const char* kName = Kernel::kName;
  static constexpr bool by_element = true;
  static constexpr std::tuple kOptions{RuleOption{"betas", &Options::betas}, RuleOption{"eps", &Options::eps},
                                       RuleOption{"weight_decay", &Options::weight_decay},
                                       RuleOption{"amsgrad", &Options::amsgrad}};
  static constexpr std::array<MomentField<Moments, Options>, 4> kFields{{
      {.key = "exp_avg", .list = &Moments::first},
      {.key = "exp_avg_sq", .list = &Moments::second},
      {.key = "max_exp_avg_sq",
       .list = &Moments::max_second,
       .kept = [](const Options& options, const at::Tensor&) { return options.amsgrad; }},
      {.key = "step", .list = &Moments::steps, .counter = true},
  }};

  static void check(const Options& options) { check_adam_options(kName, options); }

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    const auto max_second = options.amsgrad ? at::TensorList(call.moments.max_second) : at::TensorList();
    with_fused_rate(call, options.lr, [&](const auto& rate) {
      Kernel::run(call.parameters, call.gradients, call.moments.first, call.moments.second, max_second,
                  call.moments.steps, rate, options.betas[0], options.betas[1], options.weight_decay,
                  options.eps, options.amsgrad, /*maximize=*/false, call.factors.divisor,
                  call.factors.found_inf);
    });
  }
};

}  // namespace detail
}  // namespace looptorch
