// SPDX-License-Identifier: MIT
// Freezes parameters for a run, by their names. Frozen parameters get no gradient, so backward is shorter,
// and optimizers keep no moments for them. Costs nothing per step. Use it to fine-tune a part of a pretrained
// model.
//
//   Freeze{"encoder.*", "embedding.weight"}
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/optim/gradients/frozen_scope.hpp>
#include <looptorch/optim/parameter_groups.hpp>
#include <looptorch/policies/weights/parameter_owners.hpp>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// Freezes the parameters whose full names match one of the patterns, and restores their flags as the fit
/// ends, even after an exception; in a loop of `step` in `finish`, or when the Trainer is destroyed or fits.
/// Modules keep their mode: a frozen BatchNorm or dropout in training mode still updates its statistics and
/// draws numbers.
class Freeze {
 public:
  /// Patterns of full names, as in `parameter_groups`.
  Freeze(std::initializer_list<std::string> patterns) : Freeze(std::vector<std::string>(patterns)) {}
  explicit Freeze(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}

  static constexpr Phase phase = Phase::prepare;
  static constexpr ResumeRule resume_rule = ResumeRule::on_request;

  struct State {
    std::int64_t parameters = 0;  ///< Parameters that match, in this fit.
    std::int64_t elements = 0;    ///< Elements of these parameters.
    std::shared_ptr<detail::FrozenScope> frozen;
  };

  /// Throws UsageError without a pattern, for one that matches nothing, and for a parameter that UnfreezeAt
  /// is to unfreeze.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (patterns_.empty()) throw UsageError("Freeze needs at least one pattern of parameters' names");
    state = {};
    detail::check_patterns(fit.run.named_parameters(), patterns_);
    std::vector<at::Tensor> matching;
    each_match(fit.run, [&](const NamedParameter& parameter) {
      detail::claim_flag(fit.run, parameter, "Freeze");
      matching.push_back(parameter.tensor);
      ++state.parameters, state.elements += parameter.tensor.numel();
    });
    state.frozen = std::make_shared<detail::FrozenScope>(matching);
  }
  void on_fit_end(FitContext&, State& state) const { state.frozen = nullptr; }

  void forecast_memory(MemoryForecast& forecast, State&) const {
    each_match(forecast.run, [&](const NamedParameter& parameter) {
      forecast.frozen.insert(parameter.tensor.unsafeGetTensorImpl());
    });
  }

  void state_dict(StateDict& out, State&) const { out.set("patterns", text()); }
  /// Throws SettingDiffers for other patterns.
  void load_state_dict(const StateDict& in, State&) const {
    detail::require_same(in, "patterns", "what is frozen", text());
  }

 private:
  template <class Use>
  void each_match(const Run& run, Use&& use) const {
    for (const NamedParameter& parameter : run.named_parameters())
      if (detail::matches(parameter, patterns_)) use(parameter);
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const std::string& pattern : patterns_) text += (text.empty() ? "" : ", ") + pattern;
    return text;
  }

  std::vector<std::string> patterns_;
};

}  // namespace looptorch
