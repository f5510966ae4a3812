// SPDX-License-Identifier: MIT
// Moves weights by tensor operations, and rounds those in bf16 stochastically, so that an update smaller than
// a bf16 step is kept on average.
#pragma once

#include <looptorch/base/random.hpp>
#include <looptorch/optim/fused_call.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <cstdint>

namespace looptorch::detail {

/// Subtracts `change` from `weight`, which has no gaps in memory, unless the device finds the overflow flag
/// set. On a CPU the rounding's bits follow from the number of the update and from `salt`.
inline void subtract_rounded(const at::Tensor& weight, at::Tensor change, const FusedFactors& factors,
                             const at::Tensor& step, std::int64_t salt) {
  if (factors.found_inf) change = at::where(factors.found_inf->ne(0), 0.0, change);
  if (weight.scalar_type() != at::kBFloat16) {
    weight.copy_(weight - change);
  } else if (weight.is_cpu()) {
    const auto update = static_cast<std::uint64_t>(*step.const_data_ptr<double>());
    add_rounded(weight, change.neg_(), derive_seed(update, static_cast<std::uint64_t>(salt)));
  } else {
    add_rounded_by(weight, change.neg_(), default_generator(weight.device()));
  }
}

}  // namespace looptorch::detail
