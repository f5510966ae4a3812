// SPDX-License-Identifier: MIT
// An update's losses as they stood when earlier windows ended, so that a window which an exception ends, or
// one whose losses a device found to be no numbers, leaves nothing in the means. Costs a few handles a
// window.
#pragma once

#include <looptorch/loop/run.hpp>
#include <looptorch/loop/running_mean.hpp>

#include <map>

namespace looptorch::detail {

class LossHistory {
 public:
  /// Begins anew with what the update has now.
  void restart(const UpdateView& view) {
    commit(view);
    before_last_ = last_;
  }

  /// A window has ended well, as far as the host knows.
  void commit(const UpdateView& view) {
    copy(last_.loss, last_.metrics, before_last_);
    copy(view.loss, view.metrics, last_);
  }

  /// Takes back what came since the last commit.
  void forget_window(UpdateView& view) const {
    view.loss = last_.loss;
    view.metrics = last_.metrics;
  }

  /// Takes back what came in the window that was committed last, and since.
  void forget_last(UpdateView& view) {
    last_ = before_last_;
    forget_window(view);
  }

 private:
  struct Means {
    RunningMean loss;
    RunningMeans metrics;
  };

  /// Allocates for metrics that are new only.
  static void copy(const RunningMean& loss, const RunningMeans& metrics, Means& to) {
    to.loss = loss;
    if (to.metrics.size() > metrics.size()) to.metrics.clear();
    for (const auto& [name, mean] : metrics) to.metrics[name] = mean;
  }

  Means last_;
  Means before_last_;
};

}  // namespace looptorch::detail
