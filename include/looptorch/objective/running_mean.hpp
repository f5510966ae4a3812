// SPDX-License-Identifier: MIT
// Accumulates the weighted mean of losses or of a metric, over a window or an epoch. The mean stays on the
// losses' device until it is read. Adding never waits: it costs one small kernel on a device, and two
// additions on a CPU.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/objective/loss.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <map>
#include <string>

namespace looptorch {

/// A sum and its weight, read back from the device.
struct WeightedSum {
  double sum = 0.0;
  double weight = 0.0;

  /// Returns the mean; NaN while nothing has any weight.
  [[nodiscard]] double mean() const {
    return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
  }
};

/// A sum and its weight. Each is a number that the host knows plus an unread tensor: the part that is still
/// on the device. Tensors are replaced, not written in place, so copies stay valid; a sum that a graph owns
/// is the exception (RunningMean's "Sums of graphs").
struct UnreadSum {
  at::Tensor sum = {};  ///< 0-dim fp64; undefined: none
  at::Tensor weight = {};
  double known_sum = 0.0;
  double known_weight = 0.0;
};

/// Accumulates `value` times `weight` in double precision. Values on a device accumulate on that device.
class RunningMean {
 public:
  RunningMean() = default;
  RunningMean(RunningMean&&) = default;
  RunningMean& operator=(RunningMean&&) = default;
  /// Copies values, so the copy stays when a graph adds to the original's sum.
  RunningMean(const RunningMean& other) { *this = other; }
  RunningMean& operator=(const RunningMean& other) {
    now_ = other.now_, before_ = other.before_, skipped_ = other.skipped_, zero_ = other.zero_;
    windows_ = other.windows_, holds_last_ = other.holds_last_;
    sum_is_borrowed_ = false;
    if (other.sum_is_borrowed_)
      for (at::Tensor* const tensor : {&now_.sum, &before_.sum, &skipped_})
        if (tensor->defined()) *tensor = tensor->clone();
    return *this;
  }

  /// Adds a 0-dim mean over `weight` items. A known weight of 0 adds nothing, NaN or not.
  void add(const at::Tensor& value, const Quantity& weight) {
    if (weight.is_known() && weight.number() == 0) return;
    if (weight.is_known() && computes_on_cpu(value))
      return add_known(detail::cpu_number(value) * weight.number(), weight.number());
    at::NoGradGuard no_grad;
    if (!weight.is_known()) {
      const at::Tensor on_its_device = weight.tensor().to(value.device());
      return add_unread(scalar(value).to(at::kDouble) * on_its_device, weight);
    }
    now_.sum = at::add(total(value.device()), scalar(value), weight.number());
    now_.known_weight += weight.number();
  }

  /// Adds a 0-dim sum over `weight` items. A known weight of 0 adds nothing, NaN or not.
  void add_sum(const at::Tensor& sum, const Quantity& weight) {
    if (weight.is_known() && weight.number() == 0) return;
    if (weight.is_known() && computes_on_cpu(sum)) return add_known(detail::cpu_number(sum), weight.number());
    at::NoGradGuard no_grad;
    if (!weight.is_known()) return add_unread(scalar(sum), weight);
    now_.sum = at::add(total(sum.device()), scalar(sum));
    now_.known_weight += weight.number();
  }

  void add(const Loss& loss) {
    loss.value.defined() ? add(loss.value, loss.weight) : add_sum(loss.sum, loss.weight);
  }

  void add(const Quantity& value, const Quantity& weight) {
    if (!value.is_known()) return add(value.tensor(), weight);
    if (!weight.is_known()) return add_sum(weight.tensor() * value.number(), weight);
    if (weight.number() != 0) add_known(value.number() * weight.number(), weight.number());
  }

  /// Adds all of `window`. The window does not count if `skipped` (0-dim; undefined: no) is not zero: this is
  /// checked when the mean is read, unless `resolve` decides first.
  void add_window(const RunningMean& window, const at::Tensor& skipped) {
    at::NoGradGuard no_grad;
    begin_window(skipped);
    const bool reused = window.sum_is_borrowed_ && !now_.sum.defined();
    now_.sum = reused ? window.now_.sum.clone() : joined(now_.sum, window.now_.sum);
    now_.weight = joined(now_.weight, window.now_.weight);
    now_.known_sum += window.now_.known_sum;
    now_.known_weight += window.now_.known_weight;
  }
  /// Decides whether the last added window counts.
  void resolve(bool counts) {
    if (!skipped_.defined()) return;
    holds_last_ = counts;
    if (!counts) now_ = before_;
    skipped_ = at::Tensor();
  }

  /// Returns sum and weight; waits for the device.
  [[nodiscard]] WeightedSum totals() const {
    const UnreadSum& totals = skipped_.defined() && skipped_.item<bool>() ? before_ : now_;
    return {totals.known_sum + read(totals.sum), totals.known_weight + read(totals.weight)};
  }

  /// Returns the part of the sum on a device, 0-dim; undefined if there is none.
  [[nodiscard]] const at::Tensor& device_sum() const { return now_.sum; }

  /// Returns all that was added, including a last window that may not count.
  [[nodiscard]] const UnreadSum& unread() const { return now_; }
  /// Returns what preceded the last window.
  [[nodiscard]] const UnreadSum& before_last_window() const { return before_; }
  /// False if the last window does not count, as far as the host knows.
  [[nodiscard]] bool holds_last_window() const { return holds_last_; }
  /// Returns how many windows were added, with those that do not count.
  [[nodiscard]] std::int64_t windows() const { return windows_; }

  /// Returns the mean; waits for the device.
  [[nodiscard]] double mean() const { return totals().mean(); }

  /// False while nothing with a weight has been added.
  [[nodiscard]] bool has_any() const {
    return now_.known_weight != 0 || now_.sum.defined() || now_.weight.defined();
  }

  void reset() {
    now_ = before_ = UnreadSum{}, skipped_ = at::Tensor(), sum_is_borrowed_ = false;
    windows_ = 0, holds_last_ = true;
  }

  /// Saves exactly what has been added so far, so that later additions lead to the same bits.
  void save(StateDict& out) const {
    if (now_.sum.defined()) out.set("sum", now_.sum);
    if (now_.weight.defined()) out.set("weight", now_.weight);
    out.set("known_sum", now_.known_sum);
    out.set("known_weight", now_.known_weight);
  }
  void load(const StateDict& in) {
    reset();
    if (in.contains("sum")) now_.sum = in.get<at::Tensor>("sum");
    if (in.contains("weight")) now_.weight = in.get<at::Tensor>("weight");
    now_.known_sum = in.get<double>("known_sum");
    now_.known_weight = in.get<double>("known_weight");
  }

  // ---- Sums of graphs, which write to the same memory in each window ----

  /// Starts with a 0-dim fp64 sum on a device, whose memory its owner will reuse. A weight of 0 adds nothing.
  void borrow_sum(const at::Tensor& sum, double weight) {
    if (weight == 0) return;
    now_.sum = sum;
    now_.known_weight += weight;
    sum_is_borrowed_ = true;
  }

  /// Moves the part of the sum on a device, or 0, to `place`, 0-dim fp64, which a graph reads or adds to.
  void move_sum_to(const at::Tensor& place) {
    if (now_.sum.is_same(place)) return;
    at::NoGradGuard no_grad;
    now_.sum.defined() ? place.copy_(now_.sum) : place.zero_();
    now_.sum = place;
    sum_is_borrowed_ = true;
  }

  /// Does what `add_window` does, for a window whose sum a graph has already added where `move_sum_to` says.
  void count_graphed_window(const RunningMean& window, const at::Tensor& skipped) {
    begin_window(skipped);
    now_.known_sum += window.now_.known_sum;
    now_.known_weight += window.now_.known_weight;
  }

 private:
  void begin_window(const at::Tensor& skipped) {
    before_ = now_, skipped_ = skipped, holds_last_ = true;
    ++windows_;
  }

  static double read(const at::Tensor& tensor) { return tensor.defined() ? tensor.item<double>() : 0.0; }

  static at::Tensor joined(const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined() || !b.defined()) return a.defined() ? a : b;
    return a.to(b.device()) + b;
  }

  /// Returns the sum so far, on the device of the next value.
  [[nodiscard]] at::Tensor total(at::Device device) {
    if (now_.sum.defined()) return now_.sum.to(device);
    if (!zero_.defined() || zero_.device() != device)
      zero_ = at::zeros({}, at::TensorOptions(at::kDouble).device(device));
    return zero_;
  }

  /// Returns a 0-dim tensor. Makes no view of a tensor that is 0-dim: that would cost more than adding.
  static at::Tensor scalar(const at::Tensor& tensor) {
    return tensor.dim() == 0 ? tensor : tensor.reshape({});
  }

  void add_known(double sum, double weight) {
    now_.known_sum += sum;
    now_.known_weight += weight;
  }
  void add_unread(const at::Tensor& sum, const Quantity& weight) {
    now_.sum = at::add(total(sum.device()), sum);
    const at::Tensor more = weight.tensor().to(sum.device(), at::kDouble, /*non_blocking=*/!sum.is_cpu(),
                                               /*copy=*/true);  // the caller's may be refilled
    now_.weight = joined(now_.weight, more);
  }

  UnreadSum now_;
  UnreadSum before_;              // now_ without the last window
  at::Tensor skipped_;            // not zero if it does not count; undefined: known
  bool sum_is_borrowed_ = false;  // a graph owns the sum's memory
  bool holds_last_ = true;        // false once the last window is known not to count
  std::int64_t windows_ = 0;      // added so far
  at::Tensor zero_;               // kept by `reset`, so that a window costs no kernel for it
};

/// Running means by name.
using RunningMeans = std::map<std::string, RunningMean>;

namespace detail {

/// Adds a loss to `mean`, and the metrics that it carries to `metrics`.
inline void record_metrics(const Loss& loss, RunningMeans& metrics) {
  for (const Metric& metric : loss.metrics)
    metrics[metric.name].add(metric.value, metric.weight ? *metric.weight : loss.weight);
}
inline void record(const Loss& loss, RunningMean& mean, RunningMeans& metrics) {
  mean.add(loss);
  record_metrics(loss, metrics);
}

}  // namespace detail
}  // namespace looptorch
