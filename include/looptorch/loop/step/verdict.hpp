// SPDX-License-Identifier: MIT
// The outcome of an update: whether it was made, and whether its losses and gradients were finite. It may be
// known on the device alone: it is requested as the window ends and read before the next update. An outcome
// that the host knows takes the same path, so that hooks see the same on every device.
#pragma once

#include <looptorch/base/device/readback.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/non_finite.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

namespace looptorch::detail {

class Verdict {
 public:
  /// Requests whether an update was made. `found`, a number or a 0-dim tensor, is not zero if it was not.
  /// `now` is the progress that `after_update` is to see.
  template <class Found>
  void await_update(const Found& found, const Progress& now) {
    then_ = now;
    skipped_.start(found);
    loss_.drop();
    gradient_.drop();
  }

  /// Requests whether the losses of the window from `origin` were finite. `non_finite`, a number or a 0-dim
  /// tensor, is not zero if one was not.
  template <class Found>
  void await_losses(const Found& non_finite, const WindowOrigin& origin) {
    origin_ = origin;
    loss_.start(non_finite);
  }
  /// Requests the same for the window's gradients.
  template <class Found>
  void await_gradients(const Found& non_finite, const WindowOrigin& origin) {
    if (!loss_.under_way()) origin_ = origin;
    gradient_.start(non_finite);
  }

  /// Calls `conclude(made, progress)` if an update is awaited; waits for the device.
  template <class Conclude>
  void read_update(Conclude&& conclude) {
    if (skipped_.under_way()) conclude(skipped_.take() == 0, then_);
  }

  /// Drops what is still to be read of losses and gradients that may not be finite.
  void drop_trouble() { loss_.drop(), gradient_.drop(); }

  /// True if the host knows without waiting that a loss or a gradient was not finite.
  [[nodiscard]] bool knows_trouble() const { return is_trouble(loss_) || is_trouble(gradient_); }

  /// Returns the index of the window whose losses and gradients these are.
  [[nodiscard]] std::int64_t step() const { return then_.step; }

  /// Returns, once, the error of `update` if losses or gradients were not finite; otherwise null. Waits for
  /// the device. Calls `parameters_finite()` only for an error of a loss.
  template <class Ask>
  std::exception_ptr read_trouble(const std::string& update, Ask&& parameters_finite) {
    const bool loss = loss_.under_way() && loss_.take() != 0;
    const bool gradient = gradient_.under_way() && gradient_.take() != 0;
    if (!loss && !gradient) return nullptr;
    if (!loss)
      return std::make_exception_ptr(origin_.error<NonFiniteGradient>(
          subject_of_gradients(update),
          "Look for a square root, logarithm or division whose derivative is infinite there, or leave such "
          "windows out by ClipGradNorm{.on_non_finite = OnNonFinite::skip}"));
    return std::make_exception_ptr(origin_.error<NonFiniteLoss>(
        subject_of_loss(update),
        parameters_finite()
            ? "Look at these samples, lower the learning rate or clip gradients"
            : "Parameters are NaN or infinite too: an earlier gradient was not finite, and these samples are not "
              "at fault. List ClipGradNorm, which refuses such gradients"));
  }

 private:
  static bool is_trouble(const Readback& number) { return number.is_known() && number.known() != 0; }

  Readback skipped_;
  Readback loss_;
  Readback gradient_;
  Progress then_;
  WindowOrigin origin_;
};

}  // namespace looptorch::detail
