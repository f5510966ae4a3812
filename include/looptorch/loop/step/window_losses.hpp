// SPDX-License-Identifier: MIT
// The losses and metrics of the window under way, apart from the epoch's means. A window that an exception
// ends, or whose update is skipped, thus leaves nothing in the means. Costs one small kernel a mean and
// window on a device.
#pragma once

#include <looptorch/loop/agreed_means.hpp>
#include <looptorch/loop/ballot.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/running_mean.hpp>

#include <string>

namespace looptorch::detail {

class WindowLosses {
 public:
  void add(const Loss& loss) { record(loss, loss_, metrics_); }

  /// Returns the part of the losses' sum that lies on a device, 0-dim; undefined while there is none.
  [[nodiscard]] const at::Tensor& device_sum() const { return loss_.device_sum(); }

  /// Adds them to the update's means. They do not count if `skipped` is not zero: see
  /// RunningMean::add_window.
  void add_to(UpdateView& view, const at::Tensor& skipped) const {
    view.loss.add_window(loss_, skipped);
    for (const auto& [name, mean] : metrics_)
      if (mean.has_any()) view.metrics[name].add_window(mean, skipped);
  }

  /// Adds them to `ballot`, by names that begin with `of`; then takes those of all ranks.
  void agree(Ballot& ballot, const std::string& of) { agreed_.add(ballot, of, loss_, metrics_); }
  void take(const Ballot& ballot, const std::string& of) { agreed_.take(ballot, of, loss_, metrics_); }

  /// Decides whether the window that was added last counts.
  static void settle(UpdateView& view, bool counts) {
    view.loss.settle(counts);
    for (auto& [name, mean] : view.metrics) mean.settle(counts);
  }

  /// Begins the next window. Keeps the metrics' names, which mostly stay the same.
  void clear() {
    loss_.reset();
    for (auto& [name, mean] : metrics_) mean.reset();
  }

 private:
  RunningMean loss_;
  RunningMeans metrics_;
  AgreedMeans agreed_;
};

}  // namespace looptorch::detail
