// SPDX-License-Identifier: MIT
// Defines AdamNumbers, the coefficients of one AdamW update, and AdamW's rule for one element, for CPU loops
// and CUDA kernels alike. Coefficients are computed in fp64, once for each parameter, and stored in fp32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace looptorch::detail {

/// The coefficients of one parameter's update, and the update of one element: torch.optim.AdamW's.
struct AdamNumbers {
  float gradient_factor;  ///< Multiplies the gradient: averaging, unscaling and clipping.
  float first_share;      ///< 1 - beta1, or -beta1 if that is at least 0.5; the sign bit tells which
  float second_kept;      ///< beta2
  float second_share;     ///< 1 - beta2
  float weight_kept;      ///< 1 - lr x weight_decay
  float rate;             ///< lr / (1 - beta1^step)
  float root_factor;      ///< 1 / root(1 - beta2^step)
  float eps;

  template <class Options>
  static AdamNumbers of(const Options& options, double step, double divisor) {
    const auto [beta1, beta2] = options.betas;
    const auto share = static_cast<float>(1 - beta1);
    return {.gradient_factor = static_cast<float>(1 / divisor),
            .first_share = share < 0.5f ? share : std::copysign(1.0f - share, -1.0f),
            .second_kept = static_cast<float>(beta2),
            .second_share = static_cast<float>(1 - beta2),
            .weight_kept = static_cast<float>(1 - options.lr * options.weight_decay),
            .rate = static_cast<float>(options.lr / (1 - std::pow(beta1, step))),
            .root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, step))),
            .eps = static_cast<float>(options.eps)};
  }

  /// As at::lerp, starts from the number with the larger share, so that a beta1 of 0 returns the gradient.
  [[nodiscard, gnu::always_inline]] float first(float before, float gradient) const {
    // Masks, since GCC does not vectorise a loop with a choice that is the same for all elements.
    const auto from_gradient = std::bit_cast<std::uint32_t>(std::bit_cast<std::int32_t>(first_share) >> 31);
    const std::uint32_t start = (std::bit_cast<std::uint32_t>(gradient) & from_gradient) |
                                (std::bit_cast<std::uint32_t>(before) & ~from_gradient);
    return std::bit_cast<float>(start) + (gradient - before) * first_share;
  }
  [[nodiscard, gnu::always_inline]] float second(float before, float gradient) const {
    return before * second_kept + gradient * gradient * second_share;
  }
  [[nodiscard, gnu::always_inline]] float weight(float before, float first, float root) const {
    return before * weight_kept - rate * first / (root * root_factor + eps);
  }
};

}  // namespace looptorch::detail
