// SPDX-License-Identifier: MIT
// KeepsSmallUpdates, the base of optimizers that keep updates smaller than half a step of a 16-bit weight: by
// stochastic rounding, or by storing what rounding cuts off. A fit refuses bf16 weights with any other
// optimizer, unless UpdateOptions::lossy_weights allows it.
#pragma once

namespace looptorch {

/// A base of optimizers that keep small updates of bf16 weights. Others are refused as a fit with such
/// weights begins; derive your own from it if it does.
class KeepsSmallUpdates {
 protected:
  ~KeepsSmallUpdates() = default;
};

}  // namespace looptorch
