// SPDX-License-Identifier: MIT
// A weighted mean that stays on its device until somebody looks. Adding never waits: it costs one small
// kernel on a device, two additions on a CPU.
#pragma once

#include <looptorch/loop/loss.hpp>
#include <looptorch/state/state_dict.hpp>

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

  /// NaN while nothing has any weight.
  [[nodiscard]] double mean() const {
    return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
  }
};

/// Accumulates `value` times `weight` in double precision, what a device holds on that device.
class RunningMean {
 public:
  /// Adds a 0-dim mean over `weight` things. A known weight of 0 adds nothing, NaN or not.
  void add(const at::Tensor& value, const Quantity& weight) {
    if (weight.is_known() && weight.number() == 0) return;
    if (weight.is_known() && value.is_cpu())
      return add_known(detail::cpu_number(value) * weight.number(), weight.number());
    at::NoGradGuard no_grad;
    if (!weight.is_known()) {
      const at::Tensor on_its_device = weight.tensor().to(value.device());
      return add_unread(scalar(value).to(at::kDouble) * on_its_device, weight);
    }
    sum_ = at::add(total(value.device()), scalar(value), weight.number());
    known_weight_ += weight.number();
  }

  /// Adds a 0-dim sum over `weight` things. A known weight of 0 adds nothing, NaN or not.
  void add_sum(const at::Tensor& sum, const Quantity& weight) {
    if (weight.is_known() && weight.number() == 0) return;
    if (weight.is_known() && sum.is_cpu()) return add_known(detail::cpu_number(sum), weight.number());
    at::NoGradGuard no_grad;
    if (!weight.is_known()) return add_unread(scalar(sum), weight);
    sum_ = at::add(total(sum.device()), scalar(sum));
    known_weight_ += weight.number();
  }

  void add(const Loss& loss) {
    loss.value.defined() ? add(loss.value, loss.weight) : add_sum(loss.sum, loss.weight);
  }

  void add(const Quantity& value, const Quantity& weight) {
    if (!value.is_known()) return add(value.tensor(), weight);
    if (!weight.is_known()) return add_sum(weight.tensor() * value.number(), weight);
    if (weight.number() != 0) add_known(value.number() * weight.number(), weight.number());
  }

  /// Reads sum and weight back: waits for the device.
  [[nodiscard]] WeightedSum totals() const {
    return {known_sum_ + read(sum_), known_weight_ + read(weight_)};
  }

  /// The part of the sum that lies on a device, 0-dim; undefined while there is none.
  [[nodiscard]] const at::Tensor& device_sum() const { return sum_; }

  /// Reads the mean back: waits for the device.
  [[nodiscard]] double mean() const { return totals().mean(); }

  void reset() { *this = RunningMean{}; }

  /// Exactly what has been added so far, so that adding goes on to the same bits.
  void save(StateDict& out) const {
    if (sum_.defined()) out.set("sum", sum_);
    if (weight_.defined()) out.set("weight", weight_);
    out.set("known_sum", known_sum_);
    out.set("known_weight", known_weight_);
  }
  void load(const StateDict& in) {
    sum_ = in.contains("sum") ? in.get<at::Tensor>("sum") : at::Tensor();
    weight_ = in.contains("weight") ? in.get<at::Tensor>("weight") : at::Tensor();
    known_sum_ = in.get<double>("known_sum");
    known_weight_ = in.get<double>("known_weight");
  }

 private:
  static double read(const at::Tensor& tensor) { return tensor.defined() ? tensor.item<double>() : 0.0; }

  /// The sum so far, where the next value is; never changed in place, so that a copy of this object stays as
  /// it is.
  [[nodiscard]] at::Tensor total(at::Device device) const {
    if (!sum_.defined()) return at::zeros({}, at::TensorOptions(at::kDouble).device(device));
    return sum_.to(device);
  }

  /// Without a view of it where it is 0-dim already: that would cost more than adding.
  static at::Tensor scalar(const at::Tensor& tensor) {
    return tensor.dim() == 0 ? tensor : tensor.reshape({});
  }

  void add_known(double sum, double weight) {
    known_sum_ += sum;
    known_weight_ += weight;
  }
  void add_unread(const at::Tensor& sum, const Quantity& weight) {
    sum_ = at::add(total(sum.device()), sum);
    const at::Tensor more = weight.tensor().to(sum.device(), at::kDouble, /*non_blocking=*/!sum.is_cpu(),
                                               /*copy=*/true);  // the caller's may be refilled
    weight_ = weight_.defined() ? weight_.to(more.device()) + more : more;
  }

  at::Tensor sum_;
  at::Tensor weight_;
  double known_sum_ = 0.0;
  double known_weight_ = 0.0;
};

/// Running means by name.
using RunningMeans = std::map<std::string, RunningMean>;

namespace detail {

/// Adds a loss to `mean`, and the metrics that it carries to theirs.
inline void record(const Loss& loss, RunningMean& mean, RunningMeans& metrics) {
  mean.add(loss);
  for (const Metric& metric : loss.metrics) metrics[metric.name].add(metric.value, loss.weight);
}

}  // namespace detail
}  // namespace looptorch
