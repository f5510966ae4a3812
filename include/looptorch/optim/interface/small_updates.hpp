// SPDX-License-Identifier: MIT
// KeepsSmallUpdates, the base of optimizers that do not lose updates too small for a 16-bit weight: they
// round stochastically, or store what rounding cuts off. A fit refuses bf16 weights with any other optimizer,
// unless UpdateOptions::lossy_weights allows it.
#pragma once

namespace looptorch {

/// A tag. Derive an optimizer from it if it keeps small updates of bf16 weights. A fit with such weights
/// refuses optimizers without the tag.
class KeepsSmallUpdates {
 protected:
  ~KeepsSmallUpdates() = default;
};

}  // namespace looptorch
