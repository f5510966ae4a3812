// SPDX-License-Identifier: MIT
// Reduces weighted means over ranks, for the losses and metrics of windows and of evaluations. Adds sums and
// weights, so the result is the mean over the items of all ranks, and not a mean of the ranks' means. Waits
// if the sums are on a device.
#pragma once

#include <looptorch/base/rank_reduction.hpp>
#include <looptorch/objective/running_mean.hpp>

#include <ATen/ops/scalar_tensor.h>

#include <map>
#include <string>

namespace looptorch::detail {

/// A loss and its metrics during the reduction. Lives until `take`.
class AgreedMeans {
 public:
  /// Adds sums and weights to `reduction`, by names that begin with `of`.
  void add(RankReduction& reduction, const std::string& of, const RunningMean& loss,
           const RunningMeans& metrics) {
    totals_[""] = loss.totals();
    for (const auto& [name, mean] : metrics)
      if (mean.has_any()) totals_[name] = mean.totals();
    for (auto& [name, total] : totals_) {
      reduction.sum(of + "sum " + name, total.sum);
      reduction.sum(of + "weight " + name, total.weight);
    }
  }

  /// Sets the means to those of all ranks, metrics that this rank lacks included.
  void take(const RankReduction& reduction, const std::string& of, RunningMean& loss, RunningMeans& metrics) {
    totals_.clear();
    for (const auto& [name, total] : totals_of(reduction, of))
      set(name.empty() ? loss : metrics[name], total);
  }

  /// Returns the reduced sums and weights by name; the loss has no name.
  [[nodiscard]] static std::map<std::string, WeightedSum> totals_of(const RankReduction& reduction,
                                                                    const std::string& of) {
    std::map<std::string, WeightedSum> totals;
    reduction.each_number(of + "sum ", [&](const std::string& name, double sum) { totals[name].sum = sum; });
    reduction.each_number(of + "weight ",
                          [&](const std::string& name, double weight) { totals[name].weight = weight; });
    return totals;
  }

  static void set(RunningMean& mean, const WeightedSum& total) {
    mean.reset();
    mean.add_sum(at::scalar_tensor(total.sum, at::kDouble), total.weight);
  }

 private:
  std::map<std::string, WeightedSum> totals_;  // the loss has no name
};

}  // namespace looptorch::detail
