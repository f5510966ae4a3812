// SPDX-License-Identifier: MIT
// Early stopping: ends the fit when a metric no longer improves. Costs a comparison of counters per step. Use
// it against overfitting; list a `Validate` that publishes the metric.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/metrics/best_few.hpp>
#include <looptorch/policies/metrics/metric_reader.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace looptorch {

/// Stops the fit once `metric` has been published `patience` times in a row without becoming better than its
/// best by more than `min_delta`. NaN is never better. Several may be listed; the first whose patience ends
/// stops the fit. A later fit grants the metric `patience` more publications; the best stays.
struct StopEarly {
  std::string metric = "validation.loss";
  std::int64_t patience = 3;  ///< At least 1.
  double min_delta = 0.0;     ///< In the metric's unit, at least 0.
  Better better = Better::lower;

  static constexpr Phase phase = Phase::schedule;  // after Validate, before snapshots
  static constexpr bool repeatable = true;

  struct State {
    BestFew best;             ///< The best value, with the step at which it was published.
    std::int64_t waited = 0;  ///< Publications since the best value.
    detail::MetricReader reader;
  };

  /// Throws UsageError for options out of range.
  void on_fit_begin(FitContext& fit, State& state) const {
    check();
    state.reader.begin_fit(fit.run, metric, "StopEarly");
  }

  /// Throws UsageError if no policy publishes the metric.
  void on_epoch_begin(EpochContext& epoch, State& state) const {
    state.reader.begin_epoch(epoch.run, metric, "StopEarly");
  }

  /// Counts a value from before the first step. A run resumed where it had stopped ends again.
  void on_fit_ready(FitContext& fit, State& state) const {
    if (state.waited >= patience && !fit.run.stop_reason()) state.waited = 0;
    judge(fit.run, state.reader.next_at_begin(fit.run, metric), state);
  }

  void on_window_end(WindowContext& window, State& state) const {
    judge(window.run, state.reader.next(window.run, metric), state);
  }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    judge(epoch.run, state.reader.next(epoch.run, metric), state);
  }
  void on_fit_end(FitContext& fit, State& state) const { state.reader.end_fit(fit.run, metric); }

  void state_dict(StateDict& out, State& state) const {
    StateDict best;
    state.best.save(best);
    out.set("of", describe());
    out.set("best", best);
    out.set("waited", state.waited);
    state.reader.save(out);
  }
  /// Throws StateError for the state of another StopEarly.
  void load_state_dict(const StateDict& in, State& state) const {
    detail::require_state_of(describe(), in);
    state.best.load(in.under("best"));
    state.waited = in.get<std::int64_t>("waited");
    state.reader.load(in);
  }

 private:
  void check() const {
    if (metric.empty()) throw UsageError("StopEarly needs the name of a metric");
    if (patience < 1) throw UsageError(message("StopEarly's patience must be at least 1, got ", patience));
    if (!(min_delta >= 0.0 && std::isfinite(min_delta)))
      throw UsageError(message("StopEarly's min_delta must be at least 0, got ", min_delta));
  }

  [[nodiscard]] std::string describe() const { return message("a StopEarly for '", metric, "'"); }

  void judge(Run& run, const std::optional<double>& value, State& state) const {
    if (!value) return;
    const bool improved = state.best.offer(*value, run.progress().step, better, /*count=*/1, min_delta);
    state.waited = improved ? 0 : state.waited + 1;
    if (state.waited >= patience) run.stop(reason(state));
  }

  [[nodiscard]] std::string reason(const State& state) const {
    const char* evaluations = patience == 1 ? " evaluation" : " evaluations";
    if (!state.best.value())
      return message(metric, " has had no value to improve on for ", patience, evaluations);
    return message(metric, " has not improved on ", *state.best.value(), " for ", patience, evaluations);
  }
};

}  // namespace looptorch
