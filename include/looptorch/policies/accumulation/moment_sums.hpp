// SPDX-License-Identifier: MIT
// Adds gradients to the optimizer's moments as they arrive, for UpdateInBackward<SumsInMoments> (AdamA, Zhang
// et al. 2023, arXiv:2305.19982), so that a window's gradients need no memory. The first moment is Adam's.
// The second adds up squares of the micro-batches' gradients instead of squaring their sum. Each gradient is
// multiplied by its micro-batch's share of the window's loss weight. The window's weight is known only at its
// end. Until then the mean weight of earlier windows stands in for it; at the end both moments are corrected.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/optim/gradients/gradients.hpp>
#include <looptorch/optim/kernels/rounded_sum_kernels.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>
#include <looptorch/optim/state/moment_accumulator.hpp>
#include <looptorch/policies/accumulation/backward_hooks.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The mean weight of the windows so far, 0-dim fp64; undefined before the first.
struct WindowMean {
  at::Tensor weight;
  std::int64_t windows = 0;

  void add(const at::Tensor& total) {
    ++windows;
    weight =
        weight.defined() ? weight.to(total.device()) + (total - weight.to(total.device())) / windows : total;
  }
  void save(StateDict& out) const {
    out.set("windows", windows);
    if (weight.defined()) out.set("weight", weight.clone());
  }
  void load(const StateDict& in) {
    windows = in.get<std::int64_t>("windows");
    weight = windows > 0 ? in.get<at::Tensor>("weight").to(at::kDouble).clone() : at::Tensor();
  }
};

/// Adds `change` to a moment. The rounding in bf16 follows from `seed`.
inline void add_to_moment(const at::Tensor& moment, const at::Tensor& change, std::uint64_t seed) {
  if (moment.scalar_type() == at::kBFloat16)
    add_rounded(moment, change, seed);
  else
    moment.add_(change);
}

/// Multiplies a moment, unless `found_inf` (0-dim or undefined) is not zero.
inline void multiply_moment(const at::Tensor& moment, at::Tensor factor, const at::Tensor& found_inf,
                            std::uint64_t seed) {
  if (found_inf.defined()) factor = at::where(on_device_of(moment, found_inf).ne(0), 1.0, factor);
  if (moment.scalar_type() == at::kBFloat16)
    add_rounded(moment, moment.to(at::kFloat) * (factor - 1), seed);
  else
    moment.mul_(factor);
}

/// Returns the factor on a moment as its window ends. It replaces the expected weight, by which gradients
/// were added, by the window's own; the moment's coefficients then add up to 1 - beta^steps, as Adam's do.
/// The following update multiplies by beta.
[[nodiscard]] inline at::Tensor moment_correction(double beta, const at::Tensor& steps_before,
                                                  const at::Tensor& ratio) {
  const at::Tensor before = at::pow(beta, steps_before.to(at::kDouble));
  return ratio * at::rsub(before * beta, 1) / (ratio * at::rsub(before, 1) * beta + (1 - beta));
}

/// Adds the parameter's gradient, already times its share of the window's expected weight, to its moments.
/// Does nothing without a gradient, or for another optimizer's parameter. Throws UsageError if a beta is 0:
/// the moment would keep nothing.
inline void accumulate_gradient(MomentAccumulator& optimizer, const at::Tensor& parameter,
                                std::uint64_t seed) {
  if (!parameter.grad().defined()) return;
  at::NoGradGuard no_gradients;
  const auto moments = optimizer.moments_for(parameter);
  if (!moments) return;
  const auto [first, second, steps, beta1, beta2] = *moments;
  if (beta1 == 0 || beta2 == 0)
    throw UsageError(message("moments accumulate a window's gradients only with betas above 0, and they are ",
                             beta1, " and ", beta2, ": sum in bf16"));
  const at::Tensor gradient =
      parameter.grad().to(parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  add_to_moment(first, gradient * ((1 - beta1) / beta1), derive_seed(seed, 0));
  add_to_moment(second, gradient.square().mul_((1 - beta2) / beta2), derive_seed(seed, 1));
}

/// Updates the parameter by its moments, which hold the window's gradients as shares of an expected weight.
/// First corrects them by `ratio`, 0-dim fp64: the expected weight divided by the window's own. The update
/// sees zero gradients, which leaves of Adam's rule the decay of moments, the step and the weight decay.
inline void finish_moments(MomentAccumulator& optimizer, const at::Tensor& parameter, const at::Tensor& ratio,
                           const at::Tensor& found_inf, std::uint64_t seed) {
  at::NoGradGuard no_gradients;
  if (const auto moments = optimizer.moments_for(parameter)) {
    const at::Tensor here = on_device_of(parameter, ratio);
    if (!computes_on_cpu(here) || cpu_number(here) != 1) {
      const auto [first, second, steps, beta1, beta2] = *moments;
      multiply_moment(first, moment_correction(beta1, steps, here), found_inf, derive_seed(seed, 2));
      multiply_moment(second, moment_correction(beta2, steps, here.square()), found_inf,
                      derive_seed(seed, 3));
    }
  }
  if (parameter.grad().defined())
    parameter.mutable_grad().zero_();
  else
    parameter.mutable_grad() = at::zeros_like(parameter);
  optimizer.update(parameter, found_inf);
}

/// The sink that adds gradients to the optimizer's moments, and updates each parameter in the window's last
/// backward.
class MomentSums : public GradientSink {
 public:
  MomentSums(MomentAccumulator& optimizer, std::vector<at::Tensor> parameters, std::uint64_t seed,
             WindowMean& mean)
      : optimizer_(&optimizer),
        parameters_(std::move(parameters)),
        pending_(parameters_.size()),
        seed_(seed),
        mean_(&mean) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) index_[parameters_[i].unsafeGetTensorImpl()] = i;
    prepare_rounded_sums(parameters_);
  }

  void begin(const BackwardContext& backward) {
    if (backward.number == 0) begin_window(backward);
    const auto step = static_cast<std::uint64_t>(backward.run.progress().step);
    rounding_seed_ = derive_seed(derive_seed(seed_, step), static_cast<std::uint64_t>(backward.number));
    found_ = backward.found_inf;
    share_ = GradientScale{};
    share_.multiply(backward.scale);
    multiply(share_, total_of(backward) / expected_);
    last_ = backward.last;
    if (last_) begin_updates(backward);
  }

  /// Updates parameters that the last backward did not reach, or whose window was short.
  void finish(const BackwardContext& backward) {
    at::NoGradGuard no_gradients;
    if (!backward.vetoed) {
      begin_updates(backward);
      found_ = backward.found_inf;
      for (std::size_t i = 0; i < pending_.size(); ++i) {
        if (!pending_[i]) continue;
        finish_parameter(i);
        parameters_[i].mutable_grad() = at::Tensor();
      }
      if (expected_.defined()) mean_->add(total_of(backward));
    }
    pending_.assign(pending_.size(), false);
  }

 protected:
  void consume_gradient(const at::Tensor& parameter) override {
    const std::size_t index = index_.at(parameter.unsafeGetTensorImpl());
    std::vector<at::Tensor> gradient{parameter.grad()};
    require_dense(gradient.front(), "UpdateInBackward");
    GradientScale share = share_;
    share.flush(gradient);
    if (found_.defined()) gradient.front().masked_fill_(on_device_of(parameter, found_).ne(0), 0);
    accumulate_gradient(*optimizer_, parameter, derive_seed(rounding_seed_, index));
    pending_[index] = true;
    if (last_) finish_parameter(index);
  }

 private:
  void begin_window(const BackwardContext& backward) {
    pending_.assign(pending_.size(), false);
    const at::Tensor total = total_of(backward);
    expected_ = mean_->weight.defined() ? mean_->weight.to(total.device())
                                        : total * static_cast<double>(backward.length);
    expected_ = at::where(expected_.eq(0), at::ones_like(expected_), expected_);
  }

  void begin_updates(const BackwardContext& backward) {
    if (!backward.factor.is_one())
      throw UsageError(
          "a policy multiplies gradients (UpdateContext::scale_gradients) that "
          "UpdateInBackward<SumsInMoments> has added to the moments: use SumsInBf16");
    const at::Tensor total = total_of(backward);
    ratio_ = at::where(total.eq(0), at::ones_like(total), expected_ / total);
  }

  void finish_parameter(std::size_t index) {
    finish_moments(*optimizer_, parameters_[index], ratio_, found_, derive_seed(rounding_seed_, index));
    pending_[index] = false;
  }

  [[nodiscard]] static at::Tensor total_of(const BackwardContext& backward) {
    return backward.total.is_known() ? at::scalar_tensor(backward.total.number(), at::kDouble)
                                     : backward.total.tensor().to(at::kDouble);
  }
  /// Multiplies by a number if known.
  static void multiply(GradientScale& scale, const at::Tensor& factor) {
    factor.is_cpu() ? scale.multiply(cpu_number(factor)) : scale.multiply(factor);
  }

  MomentAccumulator* optimizer_;
  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, std::size_t> index_;
  std::vector<bool> pending_;  // parameters whose moments hold gradients of the window
  std::uint64_t seed_, rounding_seed_ = 0;
  WindowMean* mean_;
  at::Tensor expected_, ratio_, found_;
  GradientScale share_;
  bool last_ = false;
};

}  // namespace looptorch::detail
