// SPDX-License-Identifier: MIT
// Weights the micro-batches of a window by their numbers of items, so that the window's gradient is that of
// one large batch. Computes the value to differentiate for each micro-batch, and the factor on the summed
// gradients.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <cstdint>
#include <utility>

namespace looptorch::detail {

/// Turns the losses of a window's micro-batches into values to differentiate, such that the gradients' sum
/// times `scale()` is the gradient of the mean over everything in the window.
///
/// Differentiates value x weight / unit, and the window's end multiplies by unit / total. The unit is a
/// number near the weights, which the run keeps from window to window: the differentiated values then stay
/// near the size of the losses, which fp16 gradients need. It begins as the first weight that is not 0. When
/// a weight exceeds two units, the unit is doubled until that weight is at most one. Powers of two change no
/// bit of the result.
class WindowWeight {
 public:
  /// Returns the value to differentiate; undefined for a micro-batch without weight, which contributes no
  /// gradient.
  at::Tensor weigh(const Loss& loss) {
    if (loss.weight.is_known() && loss.weight.number() == 0) return {};
    const bool all_known = loss.weight.is_known() && !unread_unit_.defined();
    return all_known ? weigh_known(loss) : weigh_unread(loss);
  }

  /// Returns the value to differentiate for a window that is this one micro-batch.
  at::Tensor weigh_alone(const Loss& loss) {
    if (!loss.weight.is_known()) unread_total_ = as_tensor(loss.weight, loss_tensor(loss).device());
    total_ = loss.weight.number();
    if (is_empty()) return {};
    if (loss.value.defined()) return loss.value;
    return loss.weight.is_known() ? loss.sum / total_ : loss.sum / nonzero(unread_total_);
  }

  /// Counts a loss of known weight, as `weigh` does. Returns the derivative of `weigh`'s result by the loss's
  /// value or sum; 0 for a micro-batch without weight.
  [[nodiscard]] double slope(const Loss& loss) {
    const double weight = loss.weight.number();
    if (weight == 0) return 0;
    count(weight);
    return (loss.sum.defined() ? 1 : weight) / unit_;
  }
  /// Returns the slope of a loss that is weighed by `weigh_alone`.
  [[nodiscard]] double slope_alone(const Loss& loss) {
    total_ = loss.weight.number();
    if (is_empty()) return 0;
    return loss.sum.defined() ? 1 / total_ : 1;
  }
  /// True if weights are counted on a device.
  [[nodiscard]] bool is_unread() const { return unread_unit_.defined() || unread_total_.defined(); }

  /// Returns the factor, a power of two, by which the gradients of the window's earlier micro-batches must be
  /// multiplied before the next backward. A second call returns 1.
  [[nodiscard]] double take_correction() { return std::exchange(correction_, 1.0); }

  /// Returns the factor that turns the sum of gradients into the window's gradient.
  [[nodiscard]] GradientScale scale() const {
    GradientScale scale;
    if (unread_total_.defined())
      scale.multiply(nonzero(unread_unit()) / nonzero(unread_total_ + total_));
    else
      scale.multiply(unit_ / total_);
    return scale;
  }

  /// Returns the window's weight so far, unread where weights are.
  [[nodiscard]] Quantity total_so_far() const {
    return unread_total_.defined() ? Quantity::unread(unread_total_ + total_) : Quantity(total_);
  }

  /// True if nothing has weight, as far as is known without waiting.
  [[nodiscard]] bool is_empty() const { return total_ == 0 && !unread_total_.defined(); }
  /// Returns the unit and the known total.
  [[nodiscard]] double unit() const { return unit_; }
  [[nodiscard]] double total() const { return total_; }

  // Several ranks count in one unit: `join` takes what they agreed on, `leave` goes back to the process's own
  // unit, and `fix_unit` makes it 1.

  /// Takes what the ranks reduced: the unit and the total weight of their summed gradients, and the unit of
  /// later windows.
  void join(double unit, double total, double next_unit) {
    unit_ = unit;
    total_ = total;
    joined_unit_ = next_unit;
  }
  /// Returns the unit that all ranks have agreed on, or 0 before they have.
  [[nodiscard]] double joined_unit() const { return joined_unit_; }
  /// Forgets the agreed unit, as a fit on several ranks begins. Reads a unit that only the device knows.
  void leave() {
    joined_unit_ = 0;
    fixed_ = false;
    if (unread_unit_.defined()) unit_ = unread_unit_.item<double>();
    unread_unit_ = at::Tensor();
  }

  /// Counts in ones, whatever the weights, until `leave`: a unit from a rank's first weights would depend on
  /// the number of ranks.
  void fix_unit() {
    leave();
    unit_ = joined_unit_ = 1;
    fixed_ = true;
  }

  /// Returns a 0-dim bool, true if nothing has weight; undefined if that is known.
  [[nodiscard]] at::Tensor unread_empty() const {
    return unread_total_.defined() ? (unread_total_ + total_).eq(0) : at::Tensor();
  }

  /// Saves the unit, on which the gradients' rounding depends.
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
    if (joined_unit_ != 0) unit_ = joined_unit_;
    correction_ = 1;
    unread_count_ = 0;
    total_ = 0;
    unread_total_ = at::Tensor();
  }

 private:
  void count(double weight) {
    if (unit_ == 0) unit_ = weight;
    if (!fixed_ && weight > 2 * unit_) grow(weight);
    total_ += weight;
  }

  at::Tensor weigh_known(const Loss& loss) {
    const double weight = loss.weight.number();
    if (weight == 0) return {};
    count(weight);
    if (loss.sum.defined()) return unit_ == 1 ? loss.sum : loss.sum / unit_;
    return weight == unit_ ? loss.value : loss.value * (weight / unit_);
  }

  void grow(double weight) {
    const double factor = std::exp2(std::ceil(std::log2(weight / unit_)));
    unit_ *= factor;
    correction_ /= factor;
  }

  /// Grows an unread unit, between windows, by the mean weight of the last one.
  void grow_unread() {
    if (!unread_unit_.defined() || !unread_total_.defined() || unread_count_ == 0) return;
    const at::Tensor ratio = (unread_total_ + total_) / (nonzero(unread_unit_) * unread_count_);
    unread_unit_ = at::where(ratio.gt(2), unread_unit_ * ratio.log2().ceil().exp2(), unread_unit_);
  }

  at::Tensor weigh_unread(const Loss& loss) {
    const at::Tensor weight = as_tensor(loss.weight, loss_tensor(loss).device());
    move_to(weight.device());
    ++unread_count_;
    unread_total_ = unread_total_.defined() ? unread_total_ + weight : weight;
    if (unit_ == 0)
      unread_unit_ = unread_unit_.defined() ? at::where(unread_unit_.eq(0), weight, unread_unit_) : weight;
    const at::Tensor unit = nonzero(unread_unit());
    return loss.sum.defined() ? loss.sum / unit : loss.value * (weight / unit);
  }

  at::Tensor unread_unit() const { return unit_ != 0 ? at::full_like(unread_total_, unit_) : unread_unit_; }

  /// Moves to the losses' device, which may change between two windows as the model's does.
  void move_to(at::Device device) {
    if (unread_unit_.defined()) unread_unit_ = unread_unit_.to(device);
    if (unread_total_.defined()) unread_total_ = unread_total_.to(device);
  }

  /// Returns a tensor of its own: the caller may refill its tensor for the next micro-batch.
  static at::Tensor as_tensor(const Quantity& weight, at::Device device) {
    if (!weight.is_known())
      return weight.tensor().to(device, at::kDouble, /*non_blocking=*/!device.is_cpu(), /*copy=*/true);
    return at::scalar_tensor(weight.number(), at::TensorOptions(at::kDouble).device(device));
  }
  static at::Tensor nonzero(const at::Tensor& weight) {
    return at::where(weight.eq(0), at::ones_like(weight), weight);
  }

  double unit_ = 0;         // the first weight that is not 0, doubled as it had to be, ...
  at::Tensor unread_unit_;  // ... or its unread form, if an unread weight came first
  double joined_unit_ = 0;  // of all ranks; 0 without them
  bool fixed_ = false;      // at 1
  double correction_ = 1;
  std::int64_t unread_count_ = 0;  // micro-batches of the window that an unread unit was used for
  double total_ = 0;
  at::Tensor unread_total_;
};

}  // namespace looptorch::detail
