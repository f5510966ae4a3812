// SPDX-License-Identifier: MIT
// Stores an update's outcome until it is read: whether the update was applied, and whether its losses and
// gradients were finite. On a device the outcome is requested at the window's end and read before the next
// update. The same code runs for a CPU, so hooks are called in the same order on every device.
#pragma once

#include <looptorch/base/device/readback.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/step/non_finite.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace looptorch::detail {

/// The outcome of an update's last window, which each UpdateWork has. Only `read_update` and `take_error`
/// wait for the device.
class Verdict {
 public:
  /// Requests whether an update was applied. `found`, a number or a 0-dim tensor, is zero if it was.
  /// `after_update` will see `now` as its progress.
  template <class Found>
  void await_update(const Found& found, const Progress& now) {
    then_ = now;
    skipped_.start(found);
    drop_errors();
  }

  /// Keeps what is known about the losses of the window from `origin`, until its outcome is read.
  void await_losses(NonFiniteFlag flag, const WindowOrigin& origin) {
    origin_ = origin;
    loss_ = std::move(flag);
  }
  /// Keeps what is known about the gradients of the window from `origin`. Also requests whether a policy had
  /// vetoed the update before, so that `take_error` need not wait for that flag.
  void await_gradients(NonFiniteFlag flag, const WindowOrigin& origin) {
    if (!loss_.is_possible()) origin_ = origin;
    gradient_ = std::move(flag);
    const at::Tensor& before = gradient_.vetoed_before;
    if (before.defined() && !before.is_same(loss_.non_finite)) vetoed_before_.start(before);
  }

  /// Calls `resolve(applied, progress)` if an update is awaited; waits for the device.
  template <class Resolve>
  void read_update(Resolve&& resolve) {
    if (!skipped_.under_way()) return;
    applied_ = skipped_.take() == 0;
    resolve(applied_, then_);
  }

  /// Drops the unread flags of losses and gradients.
  void drop_errors() { loss_ = gradient_ = {}, vetoed_before_.drop(); }

  /// True if the host knows, without waiting, of a loss or gradient that was not finite.
  [[nodiscard]] bool knows_error() const { return loss_.known || gradient_.known; }

  /// Returns the index of the window whose losses and gradients these are.
  [[nodiscard]] std::int64_t step() const { return then_.step; }

  /// Returns, once, the error of `update` if losses or gradients were not finite; otherwise null. Waits for
  /// the device. Calls `parameters_finite()` only for an error of a loss.
  template <class Ask>
  std::exception_ptr take_error(const std::string& update, Ask&& parameters_finite) {
    const NonFiniteFlag of_loss = std::exchange(loss_, {}), of_gradient = std::exchange(gradient_, {});
    const bool vetoed = vetoed_before_.under_way() && vetoed_before_.take() != 0;
    const bool loss = is_there(of_loss), gradient = !vetoed && is_there(of_gradient);
    if (!loss && !gradient) return nullptr;
    if (!loss)
      return std::make_exception_ptr(origin_.error<NonFiniteGradient>(
          subject_of_gradients(update),
          "Look for a square root, logarithm or division whose derivative is infinite there, or skip such "
          "windows by ClipGradNorm{.on_non_finite = OnNonFinite::skip}"));
    return std::make_exception_ptr(origin_.error<NonFiniteLoss>(
        subject_of_loss(update),
        parameters_finite()
            ? "Look at these samples, lower the learning rate or clip gradients"
            : "Parameters are NaN or infinite too: an earlier gradient was not finite, and these samples are not "
              "at fault. List ClipGradNorm, which refuses such gradients"));
  }

 private:
  /// True if values were NaN or infinite, which vetoed the update: an applied update had none.
  [[nodiscard]] bool is_there(const NonFiniteFlag& flag) const {
    return flag.known || (!applied_ && flag.read());
  }

  Readback skipped_, vetoed_before_;
  bool applied_ = true;
  NonFiniteFlag loss_, gradient_;
  Progress then_;
  WindowOrigin origin_;
};

}  // namespace looptorch::detail
