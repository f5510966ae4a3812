// SPDX-License-Identifier: MIT
// Adam by one kernel per parameter group (at::_fused_adam_), with the results of torch.optim.Adam. For weight
// decay prefer FusedAdamW: Adam adds the decay to the gradient and so divides it by the root of the second
// moment. Speed, memory and skipped steps are as described in fused_adamw.hpp.
#pragma once

#include <looptorch/optim/fused/adam_rule.hpp>
#include <looptorch/optim/fused/fused_optimizer.hpp>
#include <looptorch/optim/state/moment_accumulator.hpp>

#include <ATen/ops/_fused_adam.h>

#include <array>

namespace looptorch {

/// Hyper-parameters of Adam (Kingma and Ba, 2015), with PyTorch's defaults.
struct FusedAdamOptions {
  double lr = 1e-3;                            ///< At least 0.
  std::array<double, 2> betas = {0.9, 0.999};  ///< Decay rates of the first and second moment, in [0, 1).
  double eps = 1e-8;                           ///< Added to the root of the second moment; at least 0.
  double weight_decay = 0.0;                   ///< L2: weight_decay x parameter is added to the gradient.
  bool amsgrad = false;                        ///< Divide by the largest second moment seen.
};

namespace detail {

/// The kernel and the name by which AdamRule becomes FusedAdam.
struct AdamKernel {
  static constexpr const char* kName = "FusedAdam";
  template <class... Arguments>
  static void run(const Arguments&... arguments) {
    at::_fused_adam_(arguments...);
  }
};

}  // namespace detail

/// Adam. optim/fused/fused_optimizer.hpp has its members.
class FusedAdam : public detail::AccumulatesMoments<
                      detail::FusedOptimizer<detail::AdamRule<FusedAdamOptions, detail::AdamKernel>>> {
 public:
  using AccumulatesMoments::AccumulatesMoments;
};

}  // namespace looptorch
