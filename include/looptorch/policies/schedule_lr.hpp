// SPDX-License-Identifier: MIT
// Learning rate by step: a linear warm-up, then linear or cosine decay, or none. The numbers are those of
// transformers' get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup, first step at rate 0
// included. Costs a few host operations a step.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace looptorch {

/// How the learning rate falls after the warm-up.
enum class Decay {
  constant,  ///< not at all
  linear,    ///< straight to `final_ratio`
  cosine,    ///< along half a cosine to `final_ratio`
};

/// Sets the learning rate of every parameter group of every update, as a share of the rate it has when the
/// run begins.
struct ScheduleLr {
  Decay decay = Decay::linear;
  std::int64_t warmup_steps = 0;  ///< Steps over which the rate rises from 0 to its full value.
  std::int64_t total_steps =
      0;  ///< Where the decay ends; 0: the fit's `max_steps`, or its epochs of a sized range.
  double final_ratio = 0.0;  ///< Share of the full rate at `total_steps` and after.

  static constexpr Phase phase = Phase::schedule;

  struct State {
    std::vector<std::vector<double>> full_rates;  ///< By update and parameter group.
    std::int64_t total_steps = 0;
    double ratio = 1.0;  ///< Share of the full rate in force, of the first update.
  };

  /// The share of the full rate in the step with index `step`, from 0, of `total`.
  [[nodiscard]] double ratio_at(std::int64_t step, std::int64_t total) const {
    if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    if (decay == Decay::constant) return 1.0;
    const auto decay_steps = static_cast<double>(std::max<std::int64_t>(1, total - warmup_steps));
    const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / decay_steps);
    const double left = decay == Decay::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    return final_ratio + (1.0 - final_ratio) * left;
  }

  /// Throws UsageError for impossible options, and where the decay's end is not known.
  void on_fit_begin(FitContext& fit, State& state) const {
    check();
    state.total_steps = total_steps > 0 ? total_steps : fit.run.progress().total_steps.value_or(0);
    if (decay != Decay::constant && state.total_steps == 0)
      throw UsageError(
          "ScheduleLr cannot know where its decay ends: give fit max_steps, or epochs of a range whose size "
          "is "
          "known, or set ScheduleLr::total_steps");
    if (state.full_rates.empty()) remember_rates(fit.run, state);
    set_rates(fit.run, state);
  }

  void on_window_end(WindowContext& window, State& state) const { set_rates(window.run, state); }

 private:
  void check() const {
    if (warmup_steps < 0 || total_steps < 0)
      throw UsageError(detail::message("ScheduleLr counts steps from 0, got warmup_steps ", warmup_steps,
                                       " and total_steps ", total_steps));
    if (!(final_ratio >= 0.0 && final_ratio <= 1.0))
      throw UsageError(detail::message("ScheduleLr's final_ratio is a share of the full rate in [0, 1], got ",
                                       final_ratio));
  }

  static void remember_rates(Run& run, State& state) {
    for (UpdateView& update : run.updates()) {
      auto& rates = state.full_rates.emplace_back();
      for (auto& group : update.optimizer->param_groups()) rates.push_back(group.options().get_lr());
    }
  }

  /// Each update counts the steps that it did not have to skip: a skipped one repeats its rate.
  void set_rates(Run& run, State& state) const {
    for (std::size_t i = run.updates().size(); i-- > 0;) {
      state.ratio = ratio_at(run.progress().step - run.updates()[i].skipped, state.total_steps);
      auto& groups = run.updates()[i].optimizer->param_groups();
      for (std::size_t j = 0; j < groups.size(); ++j) {
        if (j == state.full_rates[i].size()) state.full_rates[i].push_back(groups[j].options().get_lr());
        groups[j].options().set_lr(state.full_rates[i][j] * state.ratio);
      }
    }
  }
};

}  // namespace looptorch
