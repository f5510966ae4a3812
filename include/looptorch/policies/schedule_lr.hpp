// SPDX-License-Identifier: MIT
// Sets learning rates by step or by metric: a linear warm-up, then one of several decays. The rates are those
// of transformers' schedules and of PyTorch's StepLR, OneCycleLR and others; with a warm-up, the first step
// has rate 0. Costs a few host operations a step.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/visit_held.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/policies/schedule/decay_options.hpp>
#include <looptorch/policies/schedule/groups_by_pattern.hpp>
#include <looptorch/policies/schedule/lr_cycles.hpp>
#include <looptorch/policies/schedule/lr_decay.hpp>
#include <looptorch/policies/schedule/plateau_decay.hpp>
#include <looptorch/policies/schedule/rate_jump.hpp>
#include <looptorch/policies/schedule/rates_in_force.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch {

/// Sets learning rates as shares of the full ones (`UpdateView::full_rates`) before each update, so later
/// phases see the current rate. A skipped update does not count: the next repeats its rate. Several may be
/// listed, each for its own updates or groups. A group that joins the optimizer within a fit is scheduled
/// from its first update on, if it matches.
///
/// A decay that ends with the fit follows `Progress::total_steps` when an epoch of fewer steps than planned
/// corrects it. If it is corrected back to more steps, the rate does not rise: it stays until the longer
/// decay has fallen to it, unless it is less than half of the longer decay's. Within an epoch of more steps
/// than planned the end stays one step ahead.
///
/// Restores the full rates when the fit ends, for the optimizer's next user; with `step`, in `finish` or when
/// the Trainer is destroyed. Leaves a rate that something else has set by then.
struct ScheduleLr {
  using Decay = std::variant<LinearDecay, ConstantLr, CosineDecay, PolynomialDecay, StepDecay, PlateauDecay,
                             InverseSqrtDecay, CosineRestarts, OneCycle, FunctionDecay>;

  Decay decay = LinearDecay{};
  std::int64_t warmup_steps = 0;  ///< Steps over which the rate rises from 0 to its full value.
  std::string update = {};        ///< The name of the update whose rate is set; empty: all updates.
  /// Patterns of full names, as in `parameter_groups`: the groups whose parameters all match one. Empty: all
  /// groups.
  std::vector<std::string> groups = {};

  static constexpr Phase phase = Phase::prepare;
  static constexpr bool repeatable = true;
  static constexpr bool ignores_gradients = true;
  static constexpr bool veto_is_rank_invariant = true;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;

  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  struct State {
    std::vector<std::vector<std::size_t>> groups;  ///< By update: the groups whose rates this sets.
    std::int64_t total_steps = 0;                  ///< Last step of the decay; 0 for one without end.
    double ratio = 1.0;            ///< Current share of the full rate, of the first update that it sets.
    detail::PlateauState plateau;  ///< For a PlateauDecay.
    double at_most = kNoLimit;     ///< Upper limit of the ratio since the end last moved later.
    std::string jump;              ///< The warning that a fit of another length changes the rate abruptly.
    bool warned_of_jump = false;   ///< The warning was printed.
    detail::RatesInForce in_force;

    std::vector<std::int64_t> seen;  // by update: the version of its groups
    std::set<std::string> claimed;   // the claimed rates
  };

  /// Returns the share of the full rate in the step with index `step`, from 0, of `total`, without a
  /// PlateauDecay's drops.
  [[nodiscard]] double ratio_at(std::int64_t step, std::int64_t total) const {
    if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    const detail::DecayPlace place{step - warmup_steps, total - warmup_steps, warmup_steps};
    return detail::visit_held([&](const auto& shape) { return detail::share_at(shape, place); }, decay);
  }

  /// Throws UsageError for impossible options, a rate that cannot be set or that another ScheduleLr sets, a
  /// decay with an unknown end, a pattern that matches nothing, and a group that matches in part.
  void on_fit_begin(FitContext& fit, State& state) const {
    check();
    const std::int64_t end = end_of_decay(fit.run.progress());
    const std::int64_t end_before = std::exchange(state.total_steps, end);
    check_update(fit.run);
    select_groups(fit.run, state);
    take_over(fit.run, state);
    state.jump.clear();
    if (end_before != end) {  // another fit
      state.jump = jump_after(fit.run, end_before, state);
      state.at_most = kNoLimit;
    }
    if (const auto* plateau = std::get_if<PlateauDecay>(&decay))
      state.plateau.reader.begin_fit(fit.run, plateau->metric, "ScheduleLr");
    read_metric(fit.run, state);
  }

  /// Warns once of a rate that jumps. A preflight's dry steps do not call this: their length is not that of
  /// a fit.
  void on_fit_ready(FitContext&, State& state) const {
    if (state.jump.empty() || std::exchange(state.warned_of_jump, true)) return;
    TORCH_WARN("looptorch: ", state.jump);
  }

  /// Throws UsageError if no policy publishes the metric that a PlateauDecay waits for.
  void on_epoch_begin(EpochContext& epoch, State& state) const {
    if (const auto* plateau = std::get_if<PlateauDecay>(&decay))
      state.plateau.reader.begin_epoch(epoch.run, plateau->metric, "ScheduleLr");
    read_metric(epoch.run, state);
  }

  void before_update(UpdateContext& context, State& state) const {
    const std::size_t index = context.index();
    if (state.seen[index] != context.view().groups_version)
      select_groups(index, detail::GroupsByPattern(context.run, groups), context.run, state);
    if (state.groups[index].empty()) return;
    read_metric(context.run, state);
    state.total_steps = std::max(state.total_steps, end_of_decay(context.run.progress()));
    const UpdateView& view = context.view();
    const std::int64_t step = context.run.progress().step - view.skipped;
    const double ratio = std::min(ratio_at(step, state.total_steps), state.at_most) * state.plateau.ratio;
    for (const std::size_t group : state.groups[index]) {
      const double full = view.full_rates[group];
      state.in_force.set(*view.optimizer, index, group, full, full * ratio);
    }
    if (index == first_update(state)) state.ratio = ratio;
  }

  // A value that Validate publishes as a window ends is read before the next update. The value of an epoch's
  // last window must be read here, before Validate publishes at the epoch's end.
  void on_epoch_end(EpochContext& epoch, State& state) const {
    read_metric(epoch.run, state);
    follow_end(epoch.run, state);
  }
  void on_fit_end(FitContext& fit, State& state) const {
    read_metric(fit.run, state);
    state.in_force.restore();
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("of", describe());
    out.set("schedule", describe_schedule());
    out.set("share", state.ratio);
    out.set("end", state.total_steps);
    out.set("at_most", state.at_most);
    if (std::holds_alternative<PlateauDecay>(decay)) state.plateau.save(out);
  }
  /// Throws StateError for the state of another ScheduleLr, and SettingDiffers for other options.
  void load_state_dict(const StateDict& in, State& state) const {
    detail::require_state_of(describe(), in);
    detail::require_same(in, "schedule", "the schedule", describe_schedule());
    state.ratio = in.get<double>("share");
    if (in.contains("end")) {  // not in snapshots of earlier versions
      state.total_steps = in.get<std::int64_t>("end");
      state.at_most = in.get<double>("at_most");
    }
    if (std::holds_alternative<PlateauDecay>(decay)) state.plateau.load(in);
  }

 private:
  void check() const {
    detail::require_at_least("ScheduleLr's warmup_steps", warmup_steps, 0);
    detail::visit_held([](const auto& shape) { detail::check(shape); }, decay);
    if (std::holds_alternative<OneCycle>(decay) && warmup_steps > 0)
      throw UsageError(message("ScheduleLr's warmup_steps is ", warmup_steps,
                               " beside a OneCycle, which has a warm-up of its own: set `rising`"));
  }

  [[nodiscard]] std::int64_t end_of_decay(const Progress& progress) const {
    return detail::visit_held(
        [&]<class Shape>(const Shape& shape) -> std::int64_t {
          if constexpr (detail::EndingDecay<Shape>) {
            if (shape.total_steps > 0) return shape.total_steps;
            if (progress.total_steps) return *progress.total_steps;
            throw UsageError(
                "ScheduleLr cannot know where its decay ends: give fit max_steps, or epochs of a range whose "
                "size is known, or set the decay's total_steps");
          }
          return std::is_same_v<Shape, FunctionDecay> ? progress.total_steps.value_or(0) : 0;
        },
        decay);
  }

  /// Moves the end of the decay to the run's current length.
  void follow_end(const Run& run, State& state) const {
    const std::int64_t end = end_of_decay(run.progress());
    if (end == state.total_steps) return;
    const std::int64_t step = run.progress().step - run.updates()[first_update(state)].skipped;
    const double before = std::min(ratio_at(step, state.total_steps), state.at_most);
    const bool is_later = end > std::exchange(state.total_steps, end);
    const double now = ratio_at(step, end);
    if (is_later && now > before) state.at_most = before < now / 2 ? kNoLimit : before;
  }

  /// Returns a warning if a fit of another length, resumed or not, changes the rate abruptly; else an empty
  /// text.
  [[nodiscard]] std::string jump_after(const Run& run, std::int64_t end_before, const State& state) const {
    const std::size_t index = first_update(state);
    const UpdateView& view = run.updates()[index];
    const std::int64_t step = run.progress().step - view.skipped;
    if (end_before == 0 || step == 0 || state.total_steps <= step || state.groups[index].empty()) return {};
    const detail::RateJump jump{.last = state.ratio,
                                .planned = std::min(ratio_at(step, end_before), state.at_most),
                                .now = ratio_at(step, state.total_steps)};
    if (!jump.is_jump()) return {};
    return jump.sentence(view.full_rates[state.groups[index].front()], step, end_before, state.total_steps);
  }

  [[nodiscard]] bool is_for(const UpdateView& view) const { return update.empty() || update == view.name; }

  /// Selects and claims the groups of all updates.
  void select_groups(Run& run, State& state) const {
    const detail::GroupsByPattern selected(run, groups);
    std::vector<const UpdateView*> updates;
    for (const UpdateView& view : run.updates())
      if (is_for(view)) updates.push_back(&view);
    selected.require_matches(updates);
    state.groups.assign(run.updates().size(), {});
    state.seen.assign(run.updates().size(), 0);
    state.claimed.clear();
    for (std::size_t index = 0; index < run.updates().size(); ++index)
      select_groups(index, selected, run, state);
  }

  /// Selects and claims the groups of one update.
  void select_groups(std::size_t index, const detail::GroupsByPattern& selected, Run& run,
                     State& state) const {
    const UpdateView& view = run.updates()[index];
    state.seen[index] = view.groups_version;
    if (!is_for(view)) return;
    state.groups[index] = selected.of(view);
    for (const std::size_t group : state.groups[index]) {
      if (std::isnan(view.full_rates[group]))
        throw UsageError(message("ScheduleLr cannot set the learning rate of update '", view.name,
                                 "': its optimizer's options have none"));
      const std::string leader = selected.leader(view, group);
      const std::string rate = message("the learning rate of update '", view.name, "' for '", leader, "'");
      if (!leader.empty() && state.claimed.insert(rate).second) run.claim(rate, describe());
    }
  }

  void check_update(const Run& run) const {
    std::string names;
    for (const UpdateView& view : run.updates()) {
      if (is_for(view)) return;
      names += message(names.empty() ? "'" : ", '", view.name, "'");
    }
    throw UsageError(message("ScheduleLr is for update '", update, "'; there is ", names));
  }

  /// Adopts the rates in a snapshot that this schedule set in another process.
  static void take_over(const Run& run, State& state) {
    for (std::size_t index = 0; index < state.groups.size(); ++index) {
      const UpdateView& view = run.updates()[index];
      for (const std::size_t group : state.groups[index])
        state.in_force.set(*view.optimizer, index, group, view.full_rates[group],
                           detail::rate_of(view.optimizer->param_groups()[group]));
    }
  }

  [[nodiscard]] std::string describe() const {
    std::string patterns;
    for (const std::string& pattern : groups) patterns += (patterns.empty() ? "" : ", ") + pattern;
    return message("a ScheduleLr for ", update.empty() ? "all updates" : "update '" + update + "'",
                   groups.empty() ? "" : ", groups {" + patterns + "}");
  }

  /// Returns "LinearDecay {0, 0}, warm-up 100": the options, but not an end that follows from the fit's.
  /// Functions cannot be compared.
  [[nodiscard]] std::string describe_schedule() const {
    detail::OptionTexts options;
    std::string_view name;
    detail::visit_held(
        [&]<class Shape>(const Shape& shape) {
          detail::visit_fields(shape, options);
          name = detail::type_name<Shape>();
        },
        decay);
    return message(detail::short_name(name), " {", options.text, "}, warm-up ", warmup_steps);
  }

  [[nodiscard]] static std::size_t first_update(const State& state) {
    std::size_t first = 0;
    while (first + 1 < state.groups.size() && state.groups[first].empty()) ++first;
    return first;
  }

  void read_metric(const Run& run, State& state) const {
    const auto* plateau = std::get_if<PlateauDecay>(&decay);
    if (!plateau) return;
    if (const auto value = state.plateau.reader.next(run, plateau->metric))
      state.plateau.judge(*plateau, *value, run.progress().step);
  }
};

}  // namespace looptorch
