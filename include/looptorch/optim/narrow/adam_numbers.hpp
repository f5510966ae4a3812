// SPDX-License-Identifier: MIT
// Defines AdamNumbers, the fp32 coefficients of one AdamW update, and AdamW's rule for one element. The
// coefficients are computed in fp64, once for each parameter. CPU loops and CUDA kernels share them.
#pragma once

#include <cmath>

namespace looptorch::detail {

/// The coefficients of one parameter's update, and the update of one element: torch.optim.AdamW's.
struct AdamNumbers {
  float gradient_factor;  ///< Multiplies the gradient: averaging, unscaling and clipping.
  float first_share;      ///< 1 - beta1
  float second_kept;      ///< beta2
  float second_share;     ///< 1 - beta2
  float weight_kept;      ///< 1 - lr x weight_decay
  float rate;             ///< lr / (1 - beta1^step)
  float root_factor;      ///< 1 / root(1 - beta2^step)
  float eps;

  template <class Options>
  static AdamNumbers of(const Options& options, double step, double divisor) {
    const auto [beta1, beta2] = options.betas;
    return {.gradient_factor = static_cast<float>(1 / divisor),
            .first_share = static_cast<float>(1 - beta1),
            .second_kept = static_cast<float>(beta2),
            .second_share = static_cast<float>(1 - beta2),
            .weight_kept = static_cast<float>(1 - options.lr * options.weight_decay),
            .rate = static_cast<float>(options.lr / (1 - std::pow(beta1, step))),
            .root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, step))),
            .eps = static_cast<float>(options.eps)};
  }

  [[nodiscard, gnu::always_inline]] float first(float before, float gradient) const {
    return before + (gradient - before) * first_share;
  }
  [[nodiscard, gnu::always_inline]] float second(float before, float gradient) const {
    return before * second_kept + gradient * gradient * second_share;
  }
  [[nodiscard, gnu::always_inline]] float weight(float before, float first, float root) const {
    return before * weight_kept - rate * first / (root * root_factor + eps);
  }
};

}  // namespace looptorch::detail
