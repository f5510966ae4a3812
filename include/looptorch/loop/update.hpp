// SPDX-License-Identifier: MIT
// Defines an update: an optimizer, the parameters that it trains, and the objective that it minimises. A
// Trainer has one update, or several in each window, as for a GAN's generator and discriminator.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/tensor_list.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/optim/gradients/gradients.hpp>

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Any optimizer of LibTorch or looptorch, or one that a program derives from LibTorch's.
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
  /// Called as each window begins that `every` selects; false leaves this update out. Empty: always.
  std::function<bool(const Run&)> when = {};
  /// Train bf16 weights even by an optimizer that rounds to the nearest, and so loses most small updates.
  bool lossy_weights = false;
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
      throw UsageError(message("an update's `every` must be at least 1, got ", options.every));
  }

  /// Refuses a temporary optimizer, which would be gone before the first step: name it first, or pass a
  /// shared pointer.
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

/// Returns what an optimizer trains, all groups in order. A parameter that is listed twice, as a tied weight
/// is, appears once.
inline std::vector<at::Tensor> all_parameters(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  return distinct(parameters);
}

inline double rate_of(const torch::optim::OptimizerParamGroup& group) {
  try {
    return group.options().get_lr();
  } catch (const c10::Error&) {  // the base class's, for options without a rate
    return std::numeric_limits<double>::quiet_NaN();
  }
}

/// Updates the rates of all groups. A group that was there before, at the index in `former`, keeps its rates.
/// A new group gets its options' rate, NaN where the optimizer reports none.
inline void remember_rates(UpdateView& view, const std::vector<std::optional<std::size_t>>& former) {
  const auto& groups = view.optimizer->param_groups();
  const auto follow = [&](std::vector<double>& rates) {
    std::vector<double> now;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const bool known = former[i] && *former[i] < rates.size();
      now.push_back(known ? rates[*former[i]] : rate_of(groups[i]));
    }
    rates = std::move(now);
  };
  follow(view.full_rates);
  follow(view.given_rates);
}

}  // namespace detail
}  // namespace looptorch
