// SPDX-License-Identifier: MIT
// Sets a schedule's learning rates during a fit, and afterwards restores the optimizer's own rates (the full
// ones). PyTorch keeps the full rates in a group's `initial_lr`, which LibTorch's options lack.
#pragma once

#include <looptorch/loop/update.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Sets rates, and restores the full ones on destruction at the latest; the optimizers must live until then.
/// Does not restore a rate that other code has changed since.
class RatesInForce {
 public:
  RatesInForce() = default;
  RatesInForce(RatesInForce&& other) noexcept : updates_(std::exchange(other.updates_, {})) {}
  RatesInForce& operator=(RatesInForce&& other) noexcept {
    if (this != &other) {
      restore();
      updates_ = std::exchange(other.updates_, {});
    }
    return *this;
  }
  ~RatesInForce() { restore(); }

  /// Sets the rate of one group of the update with this index to `rate`; the full rate is `full`.
  void set(torch::optim::Optimizer& optimizer, std::size_t update, std::size_t group, double full,
           double rate) {
    optimizer.param_groups()[group].options().set_lr(rate);
    if (updates_.size() <= update) updates_.resize(update + 1);
    OfUpdate& of = updates_[update];
    if (of.groups.size() <= group) of.groups.resize(group + 1);
    of.optimizer = &optimizer;
    const auto& parameters = optimizer.param_groups()[group].params();
    of.groups[group] = {
        .full = full, .in_force = rate, .parameter = parameters.empty() ? at::Tensor() : parameters.front()};
  }

  void restore() noexcept {
    for (const OfUpdate& of : updates_) {
      if (!of.optimizer) continue;
      for (std::size_t i = 0; i < of.optimizer->param_groups().size(); ++i) {
        auto& group = of.optimizer->param_groups()[i];
        auto rate = std::find_if(of.groups.begin(), of.groups.end(),
                                 [&](const Rate& each) { return is_of(each, group); });
        if (group.params().empty() && i < of.groups.size() && !of.groups[i].parameter.defined())
          rate = of.groups.begin() + static_cast<std::ptrdiff_t>(i);
        if (rate != of.groups.end() && rate_of(group) == rate->in_force) group.options().set_lr(rate->full);
      }
    }
    updates_.clear();
  }

 private:
  struct Rate {
    double full = std::numeric_limits<double>::quiet_NaN();
    double in_force = std::numeric_limits<double>::quiet_NaN();  // NaN for a group that was never set
    at::Tensor parameter = {};  // identifies the group, since its index may change
  };
  static bool is_of(const Rate& rate, const torch::optim::OptimizerParamGroup& group) {
    const auto& parameters = group.params();
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const at::Tensor& each) { return each.is_same(rate.parameter); });
  }
  struct OfUpdate {
    torch::optim::Optimizer* optimizer = nullptr;
    std::vector<Rate> groups;
  };
  std::vector<OfUpdate> updates_;
};

}  // namespace looptorch::detail
