// SPDX-License-Identifier: MIT
// Ends the fit with the weights that had the best value of a metric, instead of the last ones. Copies the
// weights to the host whenever the metric improves: costs as much host memory as the weights take, and no
// device memory. Use it if the program continues with the best model; SnapshotEvery keeps best models on
// disk.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/policies/metrics/best_few.hpp>
#include <looptorch/policies/metrics/metric_reader.hpp>
#include <looptorch/policies/weights/host_weights.hpp>
#include <looptorch/policies/weights/weight_averages.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>

namespace looptorch {

/// Copies the model's parameters and buffers, as evaluated, whenever `metric` is published with a new best
/// value. Copies the best into the model as a fit ends, even if StopEarly ended it, but not after an
/// exception or an interruption, since a resumed fit continues from the last weights. The averages of
/// AverageWeights become the best ones too. Optimizers, snapshots and ranks other than 0 keep the last.
///
/// A template so that this header does not include torch/nn; write `RestoreBest`.
template <class Module>
struct BasicRestoreBest {
  std::string metric = "validation.loss";
  Better better = Better::lower;
  std::FILE* out = stderr;  ///< Gets a line that names the step whose weights are restored; null: none.

  static constexpr bool leader_only = true;
  static constexpr Phase phase = Phase::finish;  // the last snapshot has the last weights

  struct State {
    BestFew best;                 ///< The best value, with the step at which it was published.
    detail::HostWeights weights;  ///< Weights of the best value: `by_name()`; empty before the first.
    bool restored = false;        ///< The last fit ended with the best weights.
    detail::MetricReader reader;
  };

  /// Throws UsageError for an empty name.
  void on_fit_begin(FitContext& fit, State& state) const {
    if (metric.empty()) throw UsageError("RestoreBest needs the name of a metric");
    state.restored = false;
    state.reader.begin_fit(fit.run, metric, "RestoreBest");
  }

  /// Throws UsageError if no policy publishes the metric.
  void on_epoch_begin(EpochContext& epoch, State& state) const {
    state.reader.begin_epoch(epoch.run, metric, "RestoreBest");
  }

  void on_fit_ready(FitContext& fit, State& state) const { judge(fit.run, state); }
  void on_window_end(WindowContext& window, State& state) const { judge(window.run, state); }
  void on_epoch_end(EpochContext& epoch, State& state) const { judge(epoch.run, state); }

  /// Throws StateError for a model whose weights have other names or shapes by now.
  void on_fit_end(FitContext& fit, State& state) const {
    if (fit.status == FitStatus::failed || fit.status == FitStatus::interrupted || state.weights.empty())
      return;
    if (fit.began_beyond) return;  // a later fit, in which the run resumes, has weights of its own
    copy_into(model_of(fit.run), state);
    fit.run.with_evaluated_weights([&] { copy_into(model_of(fit.run), state); });  // averages, if any
    state.restored = true;
    if (out)
      std::fprintf(out, "keeps the weights of step %lld (%s %g)\n", static_cast<long long>(state.best.step()),
                   metric.c_str(), *state.best.value());
  }

  void forecast_memory(MemoryForecast& forecast, State& state) const {
    if (!state.weights.empty()) return;
    for (const auto& [name, weight] : detail::weights_by_name(model_of(forecast.run)))
      if (weight.is_cpu()) forecast.copies += static_cast<std::int64_t>(weight.nbytes());
  }

  void state_dict(StateDict& into, State& state) const {
    StateDict best, weights;
    state.best.save(best);
    for (const auto& [name, weight] : state.weights.by_name()) weights.set(name, weight);
    into.set("best", best);
    into.set("weights", weights);
    state.reader.save(into);
  }
  void load_state_dict(const StateDict& in, State& state) const {
    state.best.load(in.under("best"));
    state.reader.load(in);
    const StateDict weights = in.under("weights");
    std::map<std::string, at::Tensor> copies;
    for (const auto& item : weights.values())
      copies.emplace(item.first,
                     weights.get<at::Tensor>(item.first).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    state.weights.take(std::move(copies));
  }

 private:
  static const Module& model_of(const Run& run) { return run.model(); }

  void judge(Run& run, State& state) const {
    const auto value = state.reader.next(run, metric);
    if (value && state.best.offer(*value, run.progress().step, better))
      run.with_evaluated_weights([&] { state.weights.keep(detail::weights_by_name(model_of(run))); });
  }

  static void copy_into(const Module& model, const State& state) {
    at::NoGradGuard no_gradients;
    auto weights = detail::weights_by_name(model);
    for (const auto& [name, kept] : state.weights.by_name()) {
      const auto weight = weights.find(name);
      if (weight == weights.end() || weight->second.sizes() != kept.sizes())
        throw StateError(message("RestoreBest has kept '", name, "' of shape ", kept.sizes(),
                                 ", which the model does not have in this shape any more"));
      weight->second.copy_(kept, /*non_blocking=*/true);  // from pinned memory, which is kept
    }
  }
};

using RestoreBest = BasicRestoreBest<torch::nn::Module>;

}  // namespace looptorch
