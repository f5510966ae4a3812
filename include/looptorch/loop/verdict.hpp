// SPDX-License-Identifier: MIT
// What a device has still to say of an update: whether it was made, and whether its losses were numbers.
// Asked for as the window ends, heard before the next update.
#pragma once

#include <looptorch/loop/non_finite.hpp>
#include <looptorch/loop/readback.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace looptorch::detail {

class Verdict {
 public:
  /// `found`, a number or a 0-dim tensor, is not zero where the update of the window with index `step` was
  /// not made.
  template <class Found>
  void await_update(const Found& found, std::int64_t step) {
    step_ = step;
    skipped_.start(found);
  }

  /// `non_finite`, 0-dim, is not zero where the losses of the window from `origin` were not all numbers.
  void await_losses(const at::Tensor& non_finite, const WindowOrigin& origin) {
    origin_ = origin;
    non_finite_.start(non_finite);
  }

  /// Calls `conclude(made, step)` if there is something to hear.
  template <class Conclude>
  void hear_update(Conclude&& conclude) {
    if (skipped_.under_way()) conclude(skipped_.take() == 0, step_);
  }

  /// True if the losses that were asked about were not all numbers; says so once.
  bool hear_non_finite() { return non_finite_.under_way() && non_finite_.take() != 0; }
  /// Index of the window that they are of.
  [[nodiscard]] std::int64_t losses_step() const { return origin_.step(); }
  [[nodiscard]] NonFiniteLoss error(const std::string& update) const { return origin_.error(update); }

 private:
  Readback skipped_;
  Readback non_finite_;
  std::int64_t step_ = 0;
  WindowOrigin origin_;
};

}  // namespace looptorch::detail
