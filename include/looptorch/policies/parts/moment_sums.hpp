// SPDX-License-Identifier: MIT
// The gradients of a window, added to the optimizer's moments as they come. What a micro-batch counts for
// follows from the window's weight, which is known at its end: until then the mean of earlier windows stands
// in for it, and the end corrects it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/optim/gradients.hpp>
#include <looptorch/optim/kernels/rounded_sum_kernels.hpp>
#include <looptorch/optim/moment_accumulator.hpp>
#include <looptorch/policies/parts/backward_hooks.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

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

class MomentSums : public GradientTaker {
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
    moment_ = derive_seed(derive_seed(seed_, step), static_cast<std::uint64_t>(backward.number));
    found_ = backward.found_inf;
    share_ = GradientScale{};
    share_.multiply(backward.scale);
    multiply(share_, total_of(backward) / expected_);
    last_ = backward.last;
    if (last_) begin_updates(backward);
  }

  /// Updates the parameters that the last backward has not reached, or whose window turned out to be short.
  void finish(const BackwardContext& backward) {
    at::NoGradGuard no_gradients;
    if (!backward.vetoed) {
      begin_updates(backward);
      found_ = backward.found_inf;
      for (std::size_t i = 0; i < pending_.size(); ++i)
        if (pending_[i]) conclude(i), parameters_[i].mutable_grad() = at::Tensor();
      if (expected_.defined()) mean_->add(total_of(backward));
    }
    pending_.assign(pending_.size(), false);
  }

 protected:
  void take_gradient(const at::Tensor& parameter) override {
    const std::size_t index = index_.at(parameter.unsafeGetTensorImpl());
    std::vector<at::Tensor> gradient{parameter.grad()};
    require_dense(gradient.front(), "UpdateInBackward");
    GradientScale share = share_;
    share.flush(gradient);
    if (found_.defined()) gradient.front().masked_fill_(beside(parameter, found_).ne(0), 0);
    optimizer_->accumulate(parameter, derive_seed(moment_, index));
    pending_[index] = true;
    if (last_) conclude(index);
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

  void conclude(std::size_t index) {
    optimizer_->conclude(parameters_[index], ratio_, found_, derive_seed(moment_, index));
    pending_[index] = false;
  }

  [[nodiscard]] static at::Tensor total_of(const BackwardContext& backward) {
    return backward.total.is_known() ? at::scalar_tensor(backward.total.number(), at::kDouble)
                                     : backward.total.tensor().to(at::kDouble);
  }
  /// Multiplies by a number where it is known.
  static void multiply(GradientScale& scale, const at::Tensor& factor) {
    factor.is_cpu() ? scale.multiply(cpu_number(factor)) : scale.multiply(factor);
  }

  MomentAccumulator* optimizer_;
  std::vector<at::Tensor> parameters_;
  std::unordered_map<const void*, std::size_t> index_;
  std::vector<bool> pending_;  // parameters whose moments hold gradients of the window
  std::uint64_t seed_, moment_ = 0;
  WindowMean* mean_;
  at::Tensor expected_, ratio_, found_;
  GradientScale share_;
  bool last_ = false;
};

}  // namespace looptorch::detail
