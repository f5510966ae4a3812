// SPDX-License-Identifier: MIT
// An update: an optimizer, by that the parameters it trains, and the objective that they follow. A Trainer
// has one, or several that share each window, as adversarial players do.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/loop/gradients.hpp>
#include <looptorch/loop/loss.hpp>
#include <looptorch/loop/run.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {

template <class T>
concept OptimizerLike = std::derived_from<T, torch::optim::Optimizer>;

/// An optimizer that folds the gradients' pending factor and the overflow flag into its kernel.
template <class T>
concept FoldingOptimizer = OptimizerLike<T> &&
    requires(T& optimizer, const GradientScale& scale, const at::Tensor& found) {
  { optimizer.can_fold(scale) } -> std::same_as<bool>;
  optimizer.step(scale, found);
};

/// How one of several updates takes part.
struct UpdateOptions {
  std::string name = {};   ///< In reports and metrics; "update 1", "update 2", ... by default.
  std::int64_t every = 1;  ///< Takes part in the first of every `every` steps.
  std::function<bool(const Run&)> when =
      {};  ///< Asked as each window begins in which `every` says yes; empty: always.
};

/// Pairs an optimizer with an objective. The optimizer is held by reference (it must outlive the Trainer) or
/// by shared pointer; the objective by value.
template <OptimizerLike Optimizer, class Objective>
struct Update {
  /// Throws UsageError for an `every` below 1.
  Update(Optimizer& by, Objective loss, UpdateOptions how = {})
      : Update(std::shared_ptr<Optimizer>(std::shared_ptr<void>(), &by), std::move(loss), std::move(how)) {}

  /// Throws UsageError for an empty pointer too.
  Update(std::shared_ptr<Optimizer> by, Objective loss, UpdateOptions how = {})
      : optimizer(std::move(by)), objective(std::move(loss)), options(std::move(how)) {
    if (!optimizer) throw UsageError("an update was given an empty shared pointer in place of an optimizer");
    if (options.every < 1)
      throw UsageError(detail::message("an update's `every` must be at least 1, got ", options.every));
  }

  /// A temporary optimizer would be gone before the first step: name it first, or pass a shared pointer.
  Update(Optimizer&&, Objective, UpdateOptions = {}) = delete;

  std::shared_ptr<Optimizer> optimizer;
  Objective objective;
  UpdateOptions options;
};

template <class Optimizer, class Objective>
Update(Optimizer&, Objective) -> Update<Optimizer, Objective>;
template <class Optimizer, class Objective>
Update(Optimizer&, Objective, UpdateOptions) -> Update<Optimizer, Objective>;
template <class Optimizer, class Objective>
Update(std::shared_ptr<Optimizer>, Objective) -> Update<Optimizer, Objective>;
template <class Optimizer, class Objective>
Update(std::shared_ptr<Optimizer>, Objective, UpdateOptions) -> Update<Optimizer, Objective>;

namespace detail {

template <class T>
inline constexpr bool is_update = false;
template <class Optimizer, class Objective>
inline constexpr bool is_update<Update<Optimizer, Objective>> = true;

/// What an optimizer trains, all groups in order; a parameter that is listed twice, as a tied weight is,
/// once.
inline std::vector<at::Tensor> all_parameters(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  return distinct(parameters);
}

/// Turns the losses of a window's micro-batches into what has to be differentiated, so that the gradients'
/// sum times `scale()` is the gradient of the mean over everything in the window.
///
/// Each mean is differentiated as value x weight / unit, where unit is the run's first weight that is not 0:
/// the products stay near the size of the values, which fp16 gradients need; the window's end multiplies by
/// unit / total.
class WindowWeight {
 public:
  /// What to differentiate; undefined where the micro-batch has no weight and nothing is to be learnt from
  /// it.
  at::Tensor weigh(const Loss& loss) {
    const bool all_known = loss.weight.is_known() && !unread_unit_.defined();
    return all_known ? weigh_known(loss) : weigh_unread(loss);
  }

  /// The same for a window that is this one micro-batch.
  at::Tensor weigh_alone(const Loss& loss) {
    if (!loss.weight.is_known()) unread_total_ = loss.weight.tensor();
    total_ = loss.weight.number();
    if (is_empty()) return {};
    if (loss.value.defined()) return loss.value;
    return loss.weight.is_known() ? loss.sum / total_ : loss.sum / nonzero(unread_total_);
  }

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

  /// Begins the next window; the unit stays.
  void next_window() {
    total_ = 0;
    unread_total_ = at::Tensor();
  }

 private:
  at::Tensor weigh_known(const Loss& loss) {
    const double weight = loss.weight.number();
    if (weight == 0) return {};
    if (unit_ == 0) unit_ = weight;
    total_ += weight;
    if (loss.sum.defined()) return unit_ == 1 ? loss.sum : loss.sum / unit_;
    return weight == unit_ ? loss.value : loss.value * (weight / unit_);
  }

  at::Tensor weigh_unread(const Loss& loss) {
    const at::Tensor weight = as_tensor(loss.weight, loss_tensor(loss).device());
    unread_total_ = unread_total_.defined() ? unread_total_ + weight : weight;
    if (unit_ == 0)
      unread_unit_ = unread_unit_.defined() ? at::where(unread_unit_.eq(0), weight, unread_unit_) : weight;
    const at::Tensor unit = nonzero(unread_unit());
    return loss.sum.defined() ? loss.sum / unit : loss.value * (weight / unit);
  }

  at::Tensor unread_unit() const { return unit_ != 0 ? at::full_like(unread_total_, unit_) : unread_unit_; }

  static at::Tensor as_tensor(const Quantity& weight, at::Device device) {
    if (!weight.is_known()) return weight.tensor().to(at::kDouble);
    return at::scalar_tensor(weight.number(), at::TensorOptions(at::kDouble).device(device));
  }
  static at::Tensor nonzero(const at::Tensor& weight) {
    return at::where(weight.eq(0), at::ones_like(weight), weight);
  }

  double unit_ = 0;         // the run's first weight that is not 0, ...
  at::Tensor unread_unit_;  // ... or its unread form, if an unread weight came first
  double total_ = 0;
  at::Tensor unread_total_;
};

}  // namespace detail
}  // namespace looptorch
