// SPDX-License-Identifier: MIT
// Lowers a learning rate when a metric stops improving, as torch.optim.lr_scheduler.ReduceLROnPlateau does.
// PlateauDecay is an option of `ScheduleLr::decay`.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/policies/metrics/best_few.hpp>
#include <looptorch/policies/metrics/metric_reader.hpp>
#include <looptorch/policies/schedule/lr_decay.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace looptorch {

/// The unit of `PlateauDecay::threshold`.
enum class ThresholdMode {
  relative,  ///< shares of the best value
  absolute,  ///< the metric's own unit
};

/// Drops by a factor whenever `metric` has been published more than `patience` times in a row without
/// becoming better. Publications during the warm-up count like any others. A relative threshold is a share of
/// the best value's magnitude; ReduceLROnPlateau takes it with the other sign if that value is negative, and
/// then counts a slightly worse one as better.
struct PlateauDecay {
  std::string metric = "validation.loss";
  Better better = Better::lower;
  double factor = 0.1;  ///< Above 0, below 1.
  std::int64_t patience = 10;
  double threshold = 1e-4;  ///< A value is better if it passes the best by more than this.
  ThresholdMode threshold_mode = ThresholdMode::relative;
  std::int64_t cooldown = 0;  ///< Publications after a drop that do not count against `patience`.
  double min_ratio = 0.0;     ///< Lowest share of the full rate.
};

namespace detail {

inline void check(const PlateauDecay& decay) {
  if (decay.metric.empty()) throw UsageError("PlateauDecay needs the name of a metric");
  require_between("PlateauDecay's factor", decay.factor, 0.0, 1.0);
  require_at_least("PlateauDecay's patience", decay.patience, 0);
  require_at_least("PlateauDecay's cooldown", decay.cooldown, 0);
  if (!(decay.threshold >= 0.0 && std::isfinite(decay.threshold)))
    throw UsageError(message("PlateauDecay's threshold must be at least 0, got ", decay.threshold));
  require_share("PlateauDecay's min_ratio", decay.min_ratio);
}

inline double share_at(const PlateauDecay&, const DecayPlace&) { return 1.0; }

/// The state of a plateau schedule.
struct PlateauState {
  double ratio = 1.0;  ///< The current share of the full rate.
  BestFew best;
  std::int64_t waited = 0;         ///< Publications in a row that were not better.
  std::int64_t cooldown_left = 0;  ///< Publications left in the cooldown.
  MetricReader reader;

  /// Counts one publication, and lowers the rate after too many.
  void judge(const PlateauDecay& decay, double value, std::int64_t step) {
    waited = best.offer(value, step, decay.better, /*count=*/1, margin(decay)) ? 0 : waited + 1;
    if (cooldown_left > 0) {
      --cooldown_left;
      waited = 0;
    }
    if (waited <= decay.patience) return;
    ratio = std::max(ratio * decay.factor, decay.min_ratio);
    cooldown_left = decay.cooldown;
    waited = 0;
  }

  void save(StateDict& out) const {
    out.set("ratio", ratio);
    out.set("waited", waited);
    out.set("cooldown_left", cooldown_left);
    StateDict nested;
    best.save(nested);
    out.set("best", nested);
    reader.save(out);
  }
  void load(const StateDict& in) {
    ratio = in.get<double>("ratio");
    waited = in.get<std::int64_t>("waited");
    cooldown_left = in.get<std::int64_t>("cooldown_left");
    best.load(in.under("best"));
    reader.load(in);
  }

 private:
  [[nodiscard]] double margin(const PlateauDecay& decay) const {
    if (decay.threshold_mode == ThresholdMode::absolute) return decay.threshold;
    return decay.threshold * std::abs(best.value().value_or(0.0));
  }
};

}  // namespace detail
}  // namespace looptorch
