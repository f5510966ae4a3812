// SPDX-License-Identifier: MIT
// Evaluates within fit and publishes the results as named metrics, which schedules, early stopping, snapshots
// and progress lines then use. Costs what one pass over its batches costs.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/loop/batches.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/evaluation.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/detail/metric_reader.hpp>
#include <looptorch/state/state_dict.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace looptorch {

/// When `Validate` evaluates, and under which name it publishes.
struct ValidateOptions {
  std::int64_t every = 0;           ///< Steps between evaluations; 0: at the end of each epoch.
  std::string name = "validation";  ///< Publishes `<name>.loss` and `<name>.<metric>`.
};

/// Stands for "the Trainer's own objective".
struct OwnObjective {};

/// Evaluates `measure` on `batches`: a range that can be gone through again, held by reference if it is an
/// lvalue (it must outlive the Trainer) and moved in otherwise. Without a measure it is the Trainer's
/// objective. Several may be listed; give them different names.
///
///   Validate{batches}
///   Validate{batches, {.every = 100}}
///   Validate{batches, word_errors, {.name = "test"}}
template <class Batches, class Measure = OwnObjective>
class Validate {
 public:
  Validate(Batches&& batches, ValidateOptions options = {})
      : Validate(std::forward<Batches>(batches), {}, std::move(options)) {}

  /// Throws UsageError for a negative `every`.
  Validate(Batches&& batches, Measure measure, ValidateOptions options = {})
      : batches_(hold(std::forward<Batches>(batches))),
        measure_(std::move(measure)),
        options_(std::move(options)) {
    if (options_.every < 0)
      throw UsageError(
          detail::message("Validate's `every` counts steps from 0 (each epoch), got ", options_.every));
  }

  static constexpr Phase phase = Phase::update;  // before whatever consumes the metrics
  static constexpr bool repeatable = true;
  static constexpr bool takes_trainer = true;

  struct State {
    std::optional<Evaluation> last;  ///< Empty before the first.
    std::int64_t at_step = -1;       ///< The step count when it was made.
  };

  void on_fit_begin(FitContext& fit, State&) const { fit.run.metrics().announce(options_.name + "."); }

  template <class Trainer>
  void with_trainer(Trainer& trainer, WindowContext& window, State& state) const {
    if (options_.every > 0 && window.run.progress().step % options_.every == 0)
      evaluate(trainer, window.run, state);
  }
  template <class Trainer>
  void with_trainer(Trainer& trainer, EpochContext& epoch, State& state) const {
    if (options_.every == 0) evaluate(trainer, epoch.run, state);
  }

  void state_dict(StateDict& out, State& state) const {
    out.set("of", describe());
    out.set("at_step", state.at_step);
    if (!state.last) return;
    StateDict last;
    detail::save(*state.last, last);
    out.set("last", last);
  }
  /// Throws StateError for the state of another of several.
  void load_state_dict(const StateDict& in, State& state) const {
    detail::require_state_of(describe(), in);
    state.at_step = in.get<std::int64_t>("at_step");
    if (const StateDict last = in.under("last"); !last.empty()) state.last = detail::load_evaluation(last);
  }

 private:
  using Held = std::remove_reference_t<Batches>;
  static_assert(detail::kRepeatable<Held>,
                "looptorch: Validate needs batches that can be gone through again, such as a std::vector "
                "or a loader. See docs/errors.md#validate");

  static std::shared_ptr<Held> hold(Batches&& batches) {
    if constexpr (std::is_lvalue_reference_v<Batches>)
      return std::shared_ptr<Held>(std::shared_ptr<void>(), &batches);
    else
      return std::make_shared<Held>(std::move(batches));
  }

  [[nodiscard]] std::string describe() const { return "a Validate named " + options_.name; }

  template <class Trainer>
  void evaluate(Trainer& trainer, Run& run, State& state) const {
    if constexpr (detail::EpochRange<Held>) batches_->begin_epoch(0);  // the same order each time
    if constexpr (std::is_same_v<Measure, OwnObjective>)
      state.last = trainer.evaluate(*batches_);
    else
      state.last = trainer.evaluate(*batches_, measure_);
    if (state.last->batches == 0)
      throw UsageError("Validate has nothing to evaluate: its range of batches, " + options_.name +
                       ", is empty");
    state.at_step = run.progress().step;
    run.metrics().publish(options_.name + ".loss", state.last->loss);
    for (const auto& [name, value] : state.last->metrics)
      run.metrics().publish(options_.name + "." + name, value);
  }

  std::shared_ptr<Held> batches_;
  mutable Measure measure_;
  ValidateOptions options_;
};

template <class Batches>
Validate(Batches&&) -> Validate<Batches>;
template <class Batches>
Validate(Batches&&, ValidateOptions) -> Validate<Batches>;
template <class Batches, class Measure>
Validate(Batches&&, Measure) -> Validate<Batches, Measure>;
template <class Batches, class Measure>
Validate(Batches&&, Measure, ValidateOptions) -> Validate<Batches, Measure>;

}  // namespace looptorch
