// SPDX-License-Identifier: MIT
// AdamW whose moments lie in pinned host memory: an accelerator holds weights and gradients only, 8 bytes a
// parameter less (fp32). The update is computed on the CPU with FusedAdamW's kernel, while copies of the next
// part arrive and those of the last one leave: 12 bytes a parameter cross the bus a step. A step waits for
// the device. On a CPU it is FusedAdamW. Use it where moments do not fit, and windows are long enough to hide
// it.
#pragma once

#include <looptorch/optim/adam_rule.hpp>
#include <looptorch/optim/fused_optimizer.hpp>
#include <looptorch/optim/host_pipeline.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace looptorch {

/// Hyper-parameters of OffloadedAdamW: AdamW's.
struct OffloadedAdamWOptions {
  double lr = 1e-3;                            ///< At least 0.
  std::array<double, 2> betas = {0.9, 0.999};  ///< Decay rates of the first and second moment, in [0, 1).
  double eps = 1e-8;                           ///< Added to the root of the second moment; at least 0.
  double weight_decay = 1e-2;                  ///< Decoupled: parameters shrink by lr x weight_decay a step.
  std::int64_t part = std::int64_t{1} << 22;   ///< Elements that are copied and updated at once; at least 1.
};

namespace detail {

struct OffloadedAdamWRule {
  using Options = OffloadedAdamWOptions;
  using Moments = AdamMoments;  // max_second stays empty
  static constexpr const char* kName = "OffloadedAdamW";
  static constexpr std::array<MomentField<Moments, Options>, 3> kFields{{
      {.key = "exp_avg", .list = &Moments::first, .on_host = true},
      {.key = "exp_avg_sq", .list = &Moments::second, .on_host = true},
      {.key = "step", .list = &Moments::steps, .counter = true, .on_host = true},
  }};

  static void check(const Options& options) {
    check_adam_options(kName, options);
    if (options.part < 1)
      throw UsageError(message("OffloadedAdamW's part is at least 1, and is ", options.part));
  }

  static constexpr bool first_differs(const Options&) { return false; }

  static void advance(Moments& moments, const std::vector<std::size_t>& due, const FusedFactors& factors) {
    advance_counts(moments.steps, due, on_host(factors.found_inf));
  }

  static void apply(const Options& options, const FusedCall<Moments>& call) {
    const std::optional<at::Tensor> divisor = on_host(call.factors.divisor),
                                    found_inf = on_host(call.factors.found_inf);
    if (found_inf && *found_inf->const_data_ptr<float>() != 0) return;
    const Moments& moments = call.moments;
    const auto update = [&](at::TensorList weights, at::TensorList gradients, at::TensorList first,
                            at::TensorList second, at::TensorList steps) {
      at::_fused_adamw_(weights, gradients, first, second, {}, steps, options.lr, options.betas[0],
                        options.betas[1], options.weight_decay, options.eps, /*amsgrad=*/false,
                        /*maximize=*/false, divisor, std::nullopt);
    };
    if (call.parameters.front().is_cpu())
      return update(call.parameters, call.gradients, moments.first, moments.second, moments.steps);
    HostPipeline(call.parameters.front().device())
        .run(parts_of(options, call.parameters), call.parameters.vec(), call.gradients.vec(),
             [&](const HostPipeline::Part& part, const at::Tensor& weight, const at::Tensor& gradient) {
               const std::size_t i = part.parameter;
               update({weight}, {gradient}, {part.of(moments.first[i])}, {part.of(moments.second[i])},
                      {moments.steps[i]});
             });
  }

 private:
  static std::vector<HostPipeline::Part> parts_of(const Options& options, at::TensorList parameters) {
    std::vector<HostPipeline::Part> parts;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      for (std::int64_t begin = 0; begin < parameters[i].numel(); begin += options.part)
        parts.push_back({i, begin, std::min(options.part, parameters[i].numel() - begin)});
    return parts;
  }

  /// Returns a number on the host; waits for a device.
  static std::optional<at::Tensor> on_host(const std::optional<at::Tensor>& number) {
    return number ? std::optional(number->cpu()) : std::nullopt;
  }
};

}  // namespace detail

/// AdamW with moments in host memory. See optim/fused_optimizer.hpp for its members: `group`, `step`,
/// `can_fold`, `moments`, `state_of`, `load_state_of`. A step waits for the gradients, and for `found_inf`.
class OffloadedAdamW : public detail::FusedOptimizer<detail::OffloadedAdamWRule> {
 public:
  using FusedOptimizer::FusedOptimizer;
};

}  // namespace looptorch
