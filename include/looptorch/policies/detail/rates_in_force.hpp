// SPDX-License-Identifier: MIT
// The learning rates that a schedule has put in force, and the way back to the full ones: an optimizer's
// options have no place for a second rate, as PyTorch's `initial_lr` is.
#pragma once

#include <looptorch/loop/update.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Sets rates and puts the full ones back, at the latest when it is destroyed; the optimizers must live until
/// then. A rate that something else has set meanwhile stays.
class RatesInForce {
 public:
  RatesInForce() = default;
  RatesInForce(RatesInForce&& other) noexcept : updates_(std::exchange(other.updates_, {})) {}
  RatesInForce& operator=(RatesInForce&& other) noexcept {
    if (this != &other) put_back(), updates_ = std::exchange(other.updates_, {});
    return *this;
  }
  ~RatesInForce() { put_back(); }

  /// Sets the rate of one group of the update with this index to `rate`, where the full one is `full`.
  void set(torch::optim::Optimizer& optimizer, std::size_t update, std::size_t group, double full,
           double rate) {
    optimizer.param_groups()[group].options().set_lr(rate);
    if (updates_.size() <= update) updates_.resize(update + 1);
    OfUpdate& of = updates_[update];
    if (of.groups.size() <= group) of.groups.resize(group + 1);
    of.optimizer = &optimizer;
    of.groups[group] = {.full = full, .in_force = rate};
  }

  void put_back() noexcept {
    for (const OfUpdate& of : updates_) {
      if (!of.optimizer) continue;
      auto& groups = of.optimizer->param_groups();
      for (std::size_t i = 0; i < std::min(groups.size(), of.groups.size()); ++i)
        if (rate_of(groups[i]) == of.groups[i].in_force) groups[i].options().set_lr(of.groups[i].full);
    }
    updates_.clear();
  }

 private:
  struct Rate {
    double full = std::numeric_limits<double>::quiet_NaN();
    double in_force = std::numeric_limits<double>::quiet_NaN();  // of a group that was never set
  };
  struct OfUpdate {
    torch::optim::Optimizer* optimizer = nullptr;
    std::vector<Rate> groups;
  };
  std::vector<OfUpdate> updates_;
};

}  // namespace looptorch::detail
