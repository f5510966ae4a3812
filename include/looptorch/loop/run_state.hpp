// SPDX-License-Identifier: MIT
// The counters, losses and metrics of a run as a StateDict, exactly enough to go on from. Model and
// optimizers are not in it.
#pragma once

#include <looptorch/loop/run.hpp>
#include <looptorch/state/state_dict.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace looptorch::detail {

inline void save(const Progress& progress, StateDict& out) {
  out.set("epoch", progress.epoch);
  out.set("step", progress.step);
  out.set("skipped", progress.skipped);
  out.set("batch", progress.batch);
  out.set("samples", progress.samples);
}

inline void load(const StateDict& in, Progress& progress) {
  progress.epoch = in.get<std::int64_t>("epoch");
  progress.step = in.get<std::int64_t>("step");
  progress.skipped = in.get<std::int64_t>("skipped");
  progress.batch = in.get<std::int64_t>("batch");
  progress.samples = in.get<std::int64_t>("samples");
}

inline void save(const RunningMeans& means, StateDict& out) {
  std::int64_t number = 0;
  for (const auto& [name, mean] : means) {
    StateDict entry;
    entry.set("name", name);
    mean.save(entry);
    out.set(std::to_string(number++), entry);
  }
  out.set("size", number);
}

inline void load(const StateDict& in, RunningMeans& means) {
  means.clear();
  for (std::int64_t number = in.get<std::int64_t>("size"); number-- > 0;) {
    const StateDict entry = in.under(std::to_string(number));
    means[entry.get<std::string>("name")].load(entry);
  }
}

inline void save(const UpdateView& view, StateDict& out) {
  StateDict loss, metrics;
  view.loss.save(loss);
  save(view.metrics, metrics);
  out.set("loss", loss);
  out.set("metrics", metrics);
  out.set("applied", view.applied);
  out.set("skipped", view.skipped);
  out.set("groups", view.full_rates.size());
  for (std::size_t i = 0; i < view.full_rates.size(); ++i)
    out.set("full_rate." + std::to_string(i), view.full_rates[i]);
}

inline void load(const StateDict& in, UpdateView& view) {
  view.loss.load(in.under("loss"));
  load(in.under("metrics"), view.metrics);
  view.applied = in.get<std::int64_t>("applied");
  view.skipped = in.get<std::int64_t>("skipped");
  view.full_rates.clear();
  for (std::int64_t i = 0; i < in.get<std::int64_t>("groups"); ++i)
    view.full_rates.push_back(in.get<double>("full_rate." + std::to_string(i)));
}

/// Throws StateError for a state of another number of updates, or of more parameter groups than here.
inline void require_same_updates(const StateDict& in, const Run& run) {
  const std::size_t here = run.updates().size();
  if (const auto updates = in.get<std::int64_t>("updates"); updates != static_cast<std::int64_t>(here))
    throw StateError(message("the state is of ", updates, " updates, the Trainer has ", here));
  for (std::size_t i = 0; i < here; ++i) {
    const UpdateView& update = run.updates()[i];
    const auto groups = in.get<std::int64_t>(message("update.", i, ".groups"));
    const std::size_t of_optimizer = update.optimizer->param_groups().size();
    if (groups > static_cast<std::int64_t>(of_optimizer))
      throw StateError(message("the state has ", groups, " parameter groups for ", update.name,
                               ", whose optimizer has ", of_optimizer));
  }
}

/// `weights` has each update's window weight, `stack` the policies.
template <class Weights, class Stack>
[[nodiscard]] StateDict save_run(Run& run, const Weights& weights, Stack& stack) {
  StateDict out, progress, metrics, policies;
  save(run.progress(), progress);
  run.metrics().save(metrics);
  stack.save(policies);
  out.set("progress", progress);
  out.set("metrics", metrics);
  out.set("policies", policies);
  out.set("updates", run.updates().size());
  for (std::size_t i = 0; i < run.updates().size(); ++i) {
    StateDict update, weight;
    save(run.updates()[i], update);
    weights[i].save(weight);
    update.set("window", weight);
    out.set("update." + std::to_string(i), update);
  }
  return out;
}

/// Throws StateError, before anything is touched, for a state of other policies.
template <class Weights, class Stack>
void load_run(const StateDict& in, Run& run, Progress& progress, Weights& weights, Stack& stack) {
  stack.load(in.under("policies"));
  load(in.under("progress"), progress);
  run.metrics().load(in.under("metrics"));
  for (std::size_t i = 0; i < run.updates().size(); ++i) {
    const StateDict update = in.under("update." + std::to_string(i));
    load(update, run.updates()[i]);
    weights[i].load(update.under("window"));
  }
}

}  // namespace looptorch::detail
