// SPDX-License-Identifier: MIT
// Defines an objective's result, Loss. Its value is a mean over `weight` items (tokens, frames, examples).
// The weights make micro-batches of unequal size add up to exactly the gradient of one large batch.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

/// Returns the number in a one-element CPU tensor; reads fp32 and fp64 in place.
inline double cpu_number(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return *tensor.const_data_ptr<float>();
  if (tensor.scalar_type() == at::kDouble) return *tensor.const_data_ptr<double>();
  return tensor.item<double>();
}

}  // namespace detail

/// A number, or an unread 0-dim tensor: one on a device, whose number the host has not waited for. A CPU
/// tensor is read at once, which costs no wait.
class Quantity {
 public:
  // clang-format off
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Quantity(Number number) : number_(static_cast<double>(number)) {}
  // clang-format on

  /// Throws UsageError unless `tensor` holds exactly one element.
  Quantity(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.numel() != 1) throw UsageError(shape_message(tensor));
    computes_on_cpu(tensor) ? static_cast<void>(number_ = detail::cpu_number(tensor)) : keep(tensor);
  }

  /// Keeps `tensor` unread even on the CPU, so that tests can take the deferred path.
  [[nodiscard]] static Quantity unread(const at::Tensor& tensor) {
    Quantity quantity = 0.0;
    quantity.keep(tensor);
    return quantity;
  }

  /// True when the value is known without waiting for a device.
  [[nodiscard]] bool is_known() const { return !tensor_.defined(); }
  /// Returns the known number; 0 if the value is on a device.
  [[nodiscard]] double number() const { return number_; }
  /// Returns the unread 0-dim tensor, detached; undefined if the value is known.
  [[nodiscard]] const at::Tensor& tensor() const { return tensor_; }

 private:
  static std::string shape_message(const at::Tensor& tensor) {
    const std::string expected =
        "a metric's value or a weight must be a number or a tensor of one element, got ";
    return tensor.defined()
               ? message(expected, "shape ", tensor.sizes(), "; reduce it, for example by mean()")
               : expected + "an undefined tensor";
  }
  void keep(const at::Tensor& tensor) { tensor_ = tensor.detach().reshape({}); }

  double number_ = 0.0;
  at::Tensor tensor_;
};

/// A named value reported with the loss: a mean over the loss's items, averaged as the loss is.
struct Metric {
  std::string name;
  Quantity value;
  /// The number of items, if `value` is a mean over other items than the loss's.
  std::optional<Quantity> weight = {};
};
using Metrics = std::vector<Metric>;

/// An objective's result: `value`, the mean over `weight` items, or `sum`, their sum. Use `sum` for a weight
/// that is on the device and may be zero (a mean over nothing would be NaN).
struct Loss {
  at::Tensor value = {};  ///< 0-dim; the mean over `weight` items.
  Quantity weight = 1.0;  ///< Number of items; 0: nothing is learnt from this micro-batch.
  Metrics metrics = {};   ///< Reported, never differentiated; each has another name, and none "loss".
  at::Tensor sum = {};    ///< 0-dim; `value` times `weight`, given in place of `value`.
};

namespace detail {

/// A result that an objective may return.
template <class T>
concept LossLike =
    std::same_as<std::remove_cvref_t<T>, Loss> || std::same_as<std::remove_cvref_t<T>, at::Tensor>;

inline const at::Tensor& loss_tensor(const Loss& loss) {
  return loss.value.defined() ? loss.value : loss.sum;
}

/// Throws UsageError for a metric called "loss", and for two of one name, whose values would be averaged.
inline void check_names(const Metrics& metrics) {
  for (auto metric = metrics.begin(); metric != metrics.end(); ++metric) {
    if (metric->name == "loss")
      throw UsageError(
          "a metric of the objective is called 'loss', as the loss itself is where both are reported; "
          "give it another name, such as 'plain_loss'");
    if (std::any_of(metrics.begin(), metric, [&](const Metric& other) { return other.name == metric->name; }))
      throw UsageError(message("the objective reports two metrics called '", metric->name,
                               "': give each a name of its own"));
  }
}

/// Returns the loss after checking it. A bare tensor becomes a loss of weight 1. Throws UsageError for a
/// wrong shape or weight, for both forms or none, and for metrics without names of their own.
inline Loss as_loss(Loss loss) {
  const at::Tensor& tensor = loss_tensor(loss);
  if (loss.value.defined() == loss.sum.defined())
    throw UsageError("the objective must return a Loss with either `value` or `sum`; this one has " +
                     std::string(tensor.defined() ? "both" : "none"));
  if (tensor.numel() != 1)
    throw UsageError(message("the objective must return a 0-dim loss, got shape ", tensor.sizes(),
                             "; reduce it, for example by mean()"));
  const double weight = loss.weight.number();
  if (!(std::isfinite(weight) && weight >= 0))
    throw UsageError(message("a loss's weight must be finite and at least 0, got ", weight));
  check_names(loss.metrics);
  return loss;
}

inline Loss as_loss(at::Tensor value) { return as_loss(Loss{.value = std::move(value)}); }

}  // namespace detail
}  // namespace looptorch
