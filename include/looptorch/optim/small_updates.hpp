// SPDX-License-Identifier: MIT
// Marks optimizers that keep updates smaller than half a step of a 16-bit weight: they round stochastically,
// or keep what rounding cuts off.
#pragma once

namespace looptorch {

/// A base of optimizers that keep small updates of bf16 weights. Others are refused as a fit with such
/// weights begins; derive your own from it if it does.
class KeepsSmallUpdates {
 protected:
  ~KeepsSmallUpdates() = default;
};

}  // namespace looptorch
