// SPDX-License-Identifier: MIT
// An optimizer whose moments take the micro-batches of a window one by one, so that no sum of gradients is
// held (AdamA, Zhang et al. 2023, arXiv:2305.19982): FusedAdam, FusedAdamW and AdamWBf16. The first moment is
// Adam's. The second takes the sum of the micro-batches' squares in place of the square of their sum.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/optim/gradients.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cstddef>
#include <cstdint>

namespace looptorch {

/// A window in three parts: its micro-batches' gradients are added, each times its share of a window's
/// expected weight; then `conclude` corrects what was expected, and updates the parameter.
class MomentAccumulator {
 public:
  /// Adds the parameter's gradient to its moments. Does nothing for a parameter that has none, or is not the
  /// optimizer's. Moments in bf16 are rounded stochastically by bits that follow from `seed`. Throws
  /// UsageError if a beta is 0, which keeps nothing of a moment.
  virtual void accumulate(const at::Tensor& parameter, std::uint64_t seed) = 0;

  /// Updates the parameter by its moments, to which shares of the weight `ratio` x the window's own were
  /// added (0-dim fp64). The window then counts in the running means by its weight. `found_inf`, 0-dim or
  /// undefined: if it is not zero, nothing changes.
  virtual void conclude(const at::Tensor& parameter, const at::Tensor& ratio, const at::Tensor& found_inf,
                        std::uint64_t seed) = 0;

 protected:
  ~MomentAccumulator() = default;
};

namespace detail {

/// Adds `change` to a moment.
inline void add_to_moment(const at::Tensor& moment, const at::Tensor& change, std::uint64_t seed) {
  if (moment.scalar_type() == at::kBFloat16)
    add_rounded(moment, change, seed);
  else
    moment.add_(change);
}

/// Returns by what a moment is multiplied as its window ends: what was added for an expected weight then
/// counts as the window does, and the moment's coefficients add up to 1 - beta^steps, as Adam's do. The
/// update that follows multiplies by beta.
[[nodiscard]] inline at::Tensor moment_correction(double beta, const at::Tensor& steps_before,
                                                  const at::Tensor& ratio) {
  const at::Tensor before = at::pow(beta, steps_before.to(at::kDouble));
  return ratio * at::rsub(before * beta, 1) / (ratio * at::rsub(before, 1) * beta + (1 - beta));
}

/// Makes `Base`, a fused optimizer with Adam's moments, a MomentAccumulator.
template <class Base>
class AccumulatesMoments : public Base, public MomentAccumulator {
 public:
  using Base::Base;

  void accumulate(const at::Tensor& parameter, std::uint64_t seed) override {
    if (!parameter.grad().defined()) return;
    this->with_moments(parameter, [&](const auto& options, const auto& moments, std::size_t i) {
      const auto [beta1, beta2] = options.betas;
      if (beta1 == 0 || beta2 == 0)
        throw UsageError(
            message("moments accumulate a window's gradients only with betas above 0, and they are ", beta1,
                    " and ", beta2, ": sum in bf16"));
      const at::Tensor gradient = parameter.grad().to(wide_type(parameter));
      add_to_moment(moments.first[i], gradient * ((1 - beta1) / beta1), derive_seed(seed, 0));
      add_to_moment(moments.second[i], gradient.square().mul_((1 - beta2) / beta2), derive_seed(seed, 1));
    });
  }

  /// The update sees a gradient of zeros: what is left of Adam's rule then is the decay of its moments, the
  /// step, and the weight's decay.
  void conclude(const at::Tensor& parameter, const at::Tensor& ratio, const at::Tensor& found_inf,
                std::uint64_t seed) override {
    this->with_moments(parameter, [&](const auto& options, const auto& moments, std::size_t i) {
      const at::Tensor here = beside(parameter, ratio);
      if (here.is_cpu() && cpu_number(here) == 1) return;
      const auto [beta1, beta2] = options.betas;
      multiply(moments.first[i], moment_correction(beta1, moments.steps[i], here), found_inf,
               derive_seed(seed, 2));
      multiply(moments.second[i], moment_correction(beta2, moments.steps[i], here.square()), found_inf,
               derive_seed(seed, 3));
    });
    if (parameter.grad().defined())
      parameter.mutable_grad().zero_();
    else
      parameter.mutable_grad() = at::zeros_like(parameter);
    this->update(parameter, found_inf);
  }

 private:
  static at::ScalarType wide_type(const at::Tensor& parameter) {
    return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  static double cpu_number(const at::Tensor& number) { return *number.const_data_ptr<double>(); }

  static void multiply(const at::Tensor& moment, at::Tensor factor, const at::Tensor& found_inf,
                       std::uint64_t seed) {
    if (found_inf.defined()) factor = at::where(beside(moment, found_inf).ne(0), 1.0, factor);
    if (moment.scalar_type() == at::kBFloat16)
      add_rounded(moment, moment.to(at::kFloat) * (factor - 1), seed);
    else
      moment.mul_(factor);
  }
};

}  // namespace detail
}  // namespace looptorch
