// SPDX-License-Identifier: MIT
// The arithmetic of accumulation: what is differentiated of each micro-batch, and what the window's gradients
// are multiplied by, so that they are those of one large batch whatever the weights.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/loss.hpp>
#include <looptorch/optim/gradients.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <cstdint>
#include <utility>

namespace looptorch::detail {

/// Turns the losses of a window's micro-batches into what has to be differentiated, so that the gradients'
/// sum times `scale()` is the gradient of the mean over everything in the window.
///
/// Each mean is differentiated as value x weight / unit, where unit is one number a run, so that the products
/// stay near the size of the values, which fp16 gradients need; the window's end multiplies by unit / total.
/// The unit begins as the first weight that is not 0, and is doubled as often as it takes where a weight is
/// more than twice as large. Powers of two change no bit of the result.
class WindowWeight {
 public:
  /// What to differentiate; undefined where the micro-batch has no weight and nothing is to be learnt from
  /// it.
  at::Tensor weigh(const Loss& loss) {
    if (loss.weight.is_known() && loss.weight.number() == 0) return {};
    const bool all_known = loss.weight.is_known() && !unread_unit_.defined();
    return all_known ? weigh_known(loss) : weigh_unread(loss);
  }

  /// The same for a window that is this one micro-batch.
  at::Tensor weigh_alone(const Loss& loss) {
    if (!loss.weight.is_known()) unread_total_ = as_tensor(loss.weight, loss_tensor(loss).device());
    total_ = loss.weight.number();
    if (is_empty()) return {};
    if (loss.value.defined()) return loss.value;
    return loss.weight.is_known() ? loss.sum / total_ : loss.sum / nonzero(unread_total_);
  }

  /// What the gradients of the window's earlier micro-batches have to be multiplied by before the next
  /// backward, a power of two; 1 when it is asked again.
  [[nodiscard]] double take_correction() { return std::exchange(correction_, 1.0); }

  /// The factor that makes the window's gradient of the sum of gradients that `weigh` led to.
  [[nodiscard]] GradientScale scale() const {
    GradientScale scale;
    if (unread_total_.defined())
      scale.multiply(nonzero(unread_unit()) / nonzero(unread_total_ + total_));
    else
      scale.multiply(unit_ / total_);
    return scale;
  }

  /// True when nothing has weight, as far as is known without waiting.
  [[nodiscard]] bool is_empty() const { return total_ == 0 && !unread_total_.defined(); }
  /// 0-dim bool: nothing has weight. Undefined where that is known.
  [[nodiscard]] at::Tensor unread_empty() const {
    return unread_total_.defined() ? (unread_total_ + total_).eq(0) : at::Tensor();
  }

  /// The unit, on which the gradients' rounding depends.
  void save(StateDict& out) const {
    out.set("unit", unit_);
    if (unread_unit_.defined()) out.set("unread_unit", unread_unit_.clone());
  }
  void load(const StateDict& in, at::Device device) {
    unit_ = in.get<double>("unit");
    unread_unit_ = at::Tensor();
    if (in.contains("unread_unit"))
      unread_unit_ = in.get<at::Tensor>("unread_unit").to(device, /*non_blocking=*/false, /*copy=*/true);
  }

  /// Begins the next window; the unit stays.
  void next_window() {
    grow_unread();
    correction_ = 1;
    unread_count_ = 0;
    total_ = 0;
    unread_total_ = at::Tensor();
  }

 private:
  at::Tensor weigh_known(const Loss& loss) {
    const double weight = loss.weight.number();
    if (weight == 0) return {};
    if (unit_ == 0) unit_ = weight;
    if (weight > 2 * unit_) grow(weight);
    total_ += weight;
    if (loss.sum.defined()) return unit_ == 1 ? loss.sum : loss.sum / unit_;
    return weight == unit_ ? loss.value : loss.value * (weight / unit_);
  }

  void grow(double weight) {
    const double factor = std::exp2(std::ceil(std::log2(weight / unit_)));
    unit_ *= factor;
    correction_ /= factor;
  }

  /// A unit that is not read grows between windows, by the mean weight of the last one.
  void grow_unread() {
    if (!unread_unit_.defined() || !unread_total_.defined() || unread_count_ == 0) return;
    const at::Tensor ratio = (unread_total_ + total_) / (nonzero(unread_unit_) * unread_count_);
    unread_unit_ = at::where(ratio.gt(2), unread_unit_ * ratio.log2().ceil().exp2(), unread_unit_);
  }

  at::Tensor weigh_unread(const Loss& loss) {
    const at::Tensor weight = as_tensor(loss.weight, loss_tensor(loss).device());
    follow(weight.device());
    ++unread_count_;
    unread_total_ = unread_total_.defined() ? unread_total_ + weight : weight;
    if (unit_ == 0)
      unread_unit_ = unread_unit_.defined() ? at::where(unread_unit_.eq(0), weight, unread_unit_) : weight;
    const at::Tensor unit = nonzero(unread_unit());
    return loss.sum.defined() ? loss.sum / unit : loss.value * (weight / unit);
  }

  at::Tensor unread_unit() const { return unit_ != 0 ? at::full_like(unread_total_, unit_) : unread_unit_; }

  /// The losses' device may change, as that of a model between two windows.
  void follow(at::Device device) {
    if (unread_unit_.defined()) unread_unit_ = unread_unit_.to(device);
    if (unread_total_.defined()) unread_total_ = unread_total_.to(device);
  }

  /// A tensor of its own: the caller's may be refilled for the next micro-batch.
  static at::Tensor as_tensor(const Quantity& weight, at::Device device) {
    if (!weight.is_known())
      return weight.tensor().to(device, at::kDouble, /*non_blocking=*/!device.is_cpu(), /*copy=*/true);
    return at::scalar_tensor(weight.number(), at::TensorOptions(at::kDouble).device(device));
  }
  static at::Tensor nonzero(const at::Tensor& weight) {
    return at::where(weight.eq(0), at::ones_like(weight), weight);
  }

  double unit_ = 0;         // what the first weight that is not 0 has led to, ...
  at::Tensor unread_unit_;  // ... or its unread form, if an unread weight came first
  double correction_ = 1;
  std::int64_t unread_count_ = 0;  // micro-batches of the window that an unread unit was used for
  double total_ = 0;
  at::Tensor unread_total_;
};

}  // namespace looptorch::detail
