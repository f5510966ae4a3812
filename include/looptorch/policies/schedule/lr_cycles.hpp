// SPDX-License-Identifier: MIT
// Defines schedules in which the learning rate rises as well as falls: OneCycle and CosineRestarts, two
// options of `ScheduleLr::decay`.
#pragma once

#include <looptorch/policies/schedule/lr_decay.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace looptorch {

/// Rises to the full rate and falls again once: torch.optim.lr_scheduler.OneCycleLR without its momentum. It
/// has its own warm-up, so leave `warmup_steps` at 0.
struct OneCycle {
  double rising = 0.3;           ///< Share of the steps in which the rate rises, above 0 and below 1.
  double initial_ratio = 0.04;   ///< Share of the full rate in the first step, 1 / div_factor.
  double final_ratio = 4e-6;     ///< Share in the last step, 1 / (div_factor * final_div_factor).
  bool linear = false;           ///< Along straight lines in place of half cosines.
  bool three_phases = false;     ///< Falls as it rose, then to the final ratio; `rising` is below 0.5.
  std::int64_t total_steps = 0;  ///< The end; 0: the fit's `max_steps`, or its epochs of a sized range.
};

/// Falls along half a cosine, repeatedly, without end: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.
/// With `growth` 1, it equals transformers' get_cosine_with_hard_restarts_schedule_with_warmup up to the end.
struct CosineRestarts {
  std::int64_t first = 0;    ///< Steps of the first cycle, at least 1.
  std::int64_t growth = 1;   ///< Length of each cycle relative to the one before, at least 1.
  double final_ratio = 0.0;  ///< Share of the full rate that a cycle falls towards.
};

namespace detail {

inline void check(const OneCycle& cycle) {
  require_between("OneCycle's rising", cycle.rising, 0.0, cycle.three_phases ? 0.5 : 1.0);
  require_share("OneCycle's initial_ratio", cycle.initial_ratio);
  require_share("OneCycle's final_ratio", cycle.final_ratio);
  require_at_least("OneCycle's total_steps", cycle.total_steps, 0);
}
inline void check(const CosineRestarts& restarts) {
  require_at_least("CosineRestarts's first", restarts.first, 1);
  require_at_least("CosineRestarts's growth", restarts.growth, 1);
  require_share("CosineRestarts's final_ratio", restarts.final_ratio);
}

/// A part of a cycle: the rate goes to `share`, which it reaches at `end`, at a step or between two.
struct CyclePhase {
  double end;
  double share;
};

inline double share_at(const OneCycle& cycle, const DecayPlace& at) {
  const auto total = static_cast<double>(at.length);
  const double top = cycle.rising * total - 1.0;
  const CyclePhase rise{top, 1.0}, fall{total - 1.0, cycle.final_ratio};
  const CyclePhase back{2.0 * top, cycle.initial_ratio};
  const std::array<CyclePhase, 3> phases{rise, cycle.three_phases ? back : fall, fall};
  const auto step = static_cast<double>(at.steps);
  CyclePhase from{0.0, cycle.initial_ratio};
  for (const CyclePhase& to : phases) {
    if (step <= to.end || &to == &phases.back()) {
      const double length = to.end - from.end;
      const double done = length > 0.0 ? std::fmin(1.0, (step - from.end) / length) : 1.0;
      const double left = cycle.linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
      return to.share + (from.share - to.share) * left;
    }
    from = to;
  }
  return cycle.final_ratio;
}

inline double share_at(const CosineRestarts& restarts, const DecayPlace& at) {
  std::int64_t step = at.steps, length = restarts.first;
  if (restarts.growth == 1) step %= length;
  while (step >= length) {
    step -= length;
    if (length > std::numeric_limits<std::int64_t>::max() / restarts.growth) break;
    length *= restarts.growth;
  }
  const double done = static_cast<double>(step) / static_cast<double>(length);
  return restarts.final_ratio + (1.0 - restarts.final_ratio) * left(CosineDecay{}, done);
}

}  // namespace detail
}  // namespace looptorch
