// SPDX-License-Identifier: MIT
// MomentAccumulator, the interface of optimizers that can add gradients to their moments as they arrive, so
// that no sum of gradients is stored. FusedAdam, FusedAdamW and AdamWBf16 implement it.
// UpdateInBackward<SumsInMoments> uses it (policies/accumulation/moment_sums.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>

namespace looptorch {

/// The moments of one parameter, handles to write to, and their decay rates.
struct ParameterMoments {
  at::Tensor first, second;  ///< Of the parameter's shape.
  at::Tensor steps;          ///< 0-dim: the updates so far.
  double beta1, beta2;
};

/// An optimizer that lends a parameter's moments, for a caller that adds gradients to them as they arrive and
/// then calls `update`. Not for deletion through this interface.
class MomentAccumulator {
 public:
  /// Returns the parameter's moments, and makes them if there are none. Returns nothing for another
  /// optimizer's parameter. Throws UsageError for a parameter that cannot be updated.
  virtual std::optional<ParameterMoments> moments_for(const at::Tensor& parameter) = 0;

  /// Updates the parameter by its gradient. `found_inf`, 0-dim or undefined: if it is not zero, nothing
  /// changes.
  virtual void update(const at::Tensor& parameter, const at::Tensor& found_inf) = 0;

 protected:
  ~MomentAccumulator() = default;
};

namespace detail {

/// Makes `Base`, a fused optimizer with Adam's moments, a MomentAccumulator.
template <class Base>
class AccumulatesMoments : public Base, public MomentAccumulator {
 public:
  using Base::Base;

  std::optional<ParameterMoments> moments_for(const at::Tensor& parameter) override {
    std::optional<ParameterMoments> found;
    this->with_moments(parameter, [&](const auto& options, const auto& moments, std::size_t i) {
      found = {moments.first[i], moments.second[i], moments.steps[i], options.betas[0], options.betas[1]};
    });
    return found;
  }

  void update(const at::Tensor& parameter, const at::Tensor& found_inf) override {
    Base::update(parameter, found_inf);
  }
};

}  // namespace detail
}  // namespace looptorch
