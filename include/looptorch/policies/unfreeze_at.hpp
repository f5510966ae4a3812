// SPDX-License-Identifier: MIT
// Gradual unfreezing: freezes each parameter until the epoch that its rule names. A frozen parameter gets no
// gradient, so backward is shorter and optimizers skip the parameter, but keep its moments. Costs nothing per
// step. Use it to fine-tune a pretrained model from its head down.
//
//   UnfreezeAt{{.epoch = 1, .patterns = {"encoder.blocks.3.*"}, .lr = 1e-5},
//              {.epoch = 2, .patterns = {"encoder.*"}}}
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/optim/parameter_groups.hpp>
#include <looptorch/policies/weights/parameter_owners.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

class Freeze;
struct ScheduleLr;

/// Names parameters, and the first epoch that trains them.
struct UnfreezeRule {
  std::int64_t epoch = 0;  ///< The index, from 0, of the first epoch in which they are trained.
  std::vector<std::string> patterns = {};  ///< Patterns of full names, as in `parameter_groups`.
  /// Their full learning rate from then on; they must be whole parameter groups. Empty: the rate stays.
  std::optional<double> lr = {};
};

/// Freezes the parameters that match a rule until the rule's epoch; of several rules, the earliest epoch
/// counts. Leaves all other parameters alone. Flags change as a fit or an epoch begins, and stay after the
/// fit. A run resumed in a later epoch unfreezes the right ones at once.
class UnfreezeAt {
 public:
  UnfreezeAt(std::initializer_list<UnfreezeRule> rules) : UnfreezeAt(std::vector<UnfreezeRule>(rules)) {}

  /// Throws UsageError if there are no rules, or one without patterns or with an option out of range.
  explicit UnfreezeAt(std::vector<UnfreezeRule> rules) : rules_(std::move(rules)) {
    if (rules_.empty()) throw UsageError("UnfreezeAt needs at least one rule");
    for (const UnfreezeRule& rule : rules_) check(rule);
  }

  static constexpr Phase phase = Phase::prepare;
  using runs_after = After<ScheduleLr, Freeze>;  // it sets full rates when those were taken

  struct State {
    std::vector<detail::OwnedParameters> rules;  ///< The parameters of each rule, in the order of the rules.
    std::vector<bool> unfrozen;                  ///< By rule: true once its epoch has come.
    bool warned_of_end = false;                  ///< The warning of rules beyond the fit's end was printed.
  };

  /// Throws UsageError for a pattern that matches nothing, a rule left empty by earlier ones, and a rate for
  /// parameters that are not whole groups.
  void on_fit_begin(FitContext& fit, State& state) const {
    state.rules = find_parameters(fit.run);
    for (const NamedParameter& parameter : fit.run.named_parameters())
      if (rule_of(parameter)) detail::claim_flag(fit.run, parameter, "UnfreezeAt");
    state.unfrozen.resize(rules_.size());
    apply(fit.run, state);
  }

  /// Warns once of a rule whose epoch comes after the fit's end, where that is known. A rehearsal is shorter
  /// on purpose.
  void on_fit_ready(FitContext& fit, State& state) const {
    if (fit.run.batch_limit() || state.warned_of_end) return;
    const std::string warning = beyond_end(fit.run.progress());
    state.warned_of_end = !warning.empty();
    if (state.warned_of_end) TORCH_WARN("looptorch: ", warning);
  }

  void on_epoch_begin(EpochContext& epoch, State& state) const { apply(epoch.run, state); }

  void forecast_memory(MemoryForecast& forecast, State&) const {
    for (const NamedParameter& parameter : forecast.run.named_parameters())
      if (rule_of(parameter)) forecast.trained_later.insert(parameter.tensor.unsafeGetTensorImpl());
  }

  /// Saves which rules are unfrozen, so that a resumed run does not raise rates lowered since.
  void state_dict(StateDict& out, State& state) const {
    out.set("rules", state.unfrozen.size());
    out.set("patterns", patterns());
    for (std::size_t i = 0; i < state.unfrozen.size(); ++i)
      out.set(std::to_string(i), static_cast<std::int64_t>(state.unfrozen[i]));
  }
  /// Throws StateError for the state of another number of rules, and of rules with other patterns.
  void load_state_dict(const StateDict& in, State& state) const {
    const auto saved = in.get<std::int64_t>("rules");
    if (saved != 0 && saved != static_cast<std::int64_t>(rules_.size()))
      throw StateError(message("UnfreezeAt has ", rules_.size(), " rules here, ", saved, " in the state"));
    detail::require_same(in, "patterns", "what UnfreezeAt's rules name", patterns());
    state.unfrozen.clear();
    for (std::int64_t i = 0; i < saved; ++i)
      state.unfrozen.push_back(in.get<std::int64_t>(std::to_string(i)) != 0);
  }

 private:
  [[nodiscard]] std::string patterns() const {
    std::vector<std::string> of_rules;
    for (const UnfreezeRule& rule : rules_) of_rules.push_back(detail::joined(rule.patterns, ", "));
    return detail::joined(of_rules, "; ");
  }

  static void check(const UnfreezeRule& rule) {
    if (rule.epoch < 0) throw UsageError(message("UnfreezeAt counts epochs from 0, got ", rule.epoch));
    if (rule.patterns.empty())
      throw UsageError(message("UnfreezeAt's rule for epoch ", rule.epoch, " has no patterns"));
    if (rule.lr && !(*rule.lr > 0.0 && *rule.lr < HUGE_VAL))
      throw UsageError(message("UnfreezeAt's lr must be above 0, got ", *rule.lr));
  }

  [[nodiscard]] std::vector<detail::OwnedParameters> find_parameters(const Run& run) const {
    const auto parameters = run.named_parameters();
    for (const UnfreezeRule& rule : rules_) detail::check_patterns(parameters, rule.patterns);
    std::vector<detail::OwnedParameters> owned(rules_.size());
    for (const auto& parameter : parameters)
      if (const auto rule = rule_of(parameter)) owned[*rule].tensors.push_back(parameter.tensor);
    for (std::size_t i = 0; i < owned.size(); ++i) {
      if (owned[i].tensors.empty())
        throw UsageError(message("UnfreezeAt's rule for epoch ", rules_[i].epoch, ", '",
                                 rules_[i].patterns.front(),
                                 "', does nothing: other rules unfreeze all that it matches by then"));
      if (rules_[i].lr) owned[i].require_groups(run, rules_[i].patterns.front());
    }
    return owned;
  }

  /// Returns the matching rule with the earliest epoch, the first of several.
  [[nodiscard]] std::optional<std::size_t> rule_of(const NamedParameter& parameter) const {
    std::optional<std::size_t> earliest;
    for (std::size_t i = 0; i < rules_.size(); ++i)
      if (detail::matches(parameter, rules_[i].patterns))
        if (!earliest || rules_[i].epoch < rules_[*earliest].epoch) earliest = i;
    return earliest;
  }

  /// Returns a warning if the fit ends before a rule's epoch; else an empty text.
  [[nodiscard]] std::string beyond_end(const Progress& progress) const {
    if (!progress.total_steps || progress.steps_per_epoch.value_or(0) < 1) return {};
    const std::int64_t steps = std::max<std::int64_t>(1, *progress.total_steps - progress.epoch_begin);
    const std::int64_t last = progress.epoch + (steps - 1) / *progress.steps_per_epoch;
    for (const UnfreezeRule& rule : rules_)
      if (rule.epoch > last)
        return message("UnfreezeAt keeps '", rule.patterns.front(), "' frozen: its rule names epoch ",
                       rule.epoch, ", and the fit ends in epoch ", last, ", both counted from 0");
    return {};
  }

  void apply(Run& run, State& state) const {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      const bool due = run.progress().epoch >= rules_[i].epoch;
      state.rules[i].set_trained(due);
      if (due && !state.unfrozen[i] && rules_[i].lr) state.rules[i].set_full_rate(run, *rules_[i].lr);
      state.unfrozen[i] = due;
    }
  }

  std::vector<UnfreezeRule> rules_;
};

}  // namespace looptorch
