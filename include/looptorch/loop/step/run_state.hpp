// SPDX-License-Identifier: MIT
// Saves a run's counters, losses and metrics to a StateDict, and loads them. Model and optimizers are not
// included.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/run.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace looptorch::detail {

inline void save(const Progress& progress, StateDict& out) {
  out.set("epoch", progress.epoch);
  out.set("step", progress.step);
  out.set("skipped", progress.skipped);
  out.set("batch", progress.batch);
  out.set("samples", progress.samples);
  out.set("epoch_begin", progress.epoch_begin);
  if (progress.windows_per_epoch) out.set("windows_per_epoch", *progress.windows_per_epoch);
  if (progress.steps_per_epoch) out.set("steps_per_epoch", *progress.steps_per_epoch);
}

/// Loads the counters. Snapshots of earlier versions lack `epoch_begin`, `windows_per_epoch` and
/// `steps_per_epoch`; the next fit sets them.
inline void load(const StateDict& in, Progress& progress) {
  progress.epoch = in.get<std::int64_t>("epoch");
  progress.step = in.get<std::int64_t>("step");
  progress.skipped = in.get<std::int64_t>("skipped");
  progress.batch = in.get<std::int64_t>("batch");
  progress.samples = in.get<std::int64_t>("samples");
  const auto known = [&](const char* key) {
    return in.contains(key) ? std::optional(in.get<std::int64_t>(key)) : std::nullopt;
  };
  progress.epoch_begin = known("epoch_begin").value_or(0);
  progress.windows_per_epoch = known("windows_per_epoch");
  progress.steps_per_epoch = known("steps_per_epoch");
  for (const std::int64_t number :
       {progress.epoch, progress.step, progress.skipped, progress.batch, progress.samples,
        progress.epoch_begin, progress.windows_per_epoch.value_or(0), progress.steps_per_epoch.value_or(0)})
    if (number < 0) throw StateError(message("a run's counters begin at 0, one of the state is ", number));
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

/// Returns the state of a run. `works` holds what each update keeps from window to window.
template <class Works>
[[nodiscard]] StateDict save_run(const Run& run, const Works& works) {
  StateDict out, progress, metrics;
  save(run.progress(), progress);
  run.metrics().save(metrics);
  out.set("progress", progress);
  out.set("metrics", metrics);
  out.set("updates", run.updates().size());
  for (std::size_t i = 0; i < run.updates().size(); ++i) {
    StateDict update, weight;
    save(run.updates()[i], update);
    works[i].weight.save(weight);
    update.set("window", weight);
    out.set("update." + std::to_string(i), update);
  }
  return out;
}

/// Counters and means that are ready to be loaded into a run.
template <class Works>
struct StagedRun {
  Progress progress;
  MetricBoard metrics;
  std::vector<UpdateView> updates;
  std::vector<decltype(Works::value_type::weight)> weights;
};

/// Stages a saved run. Updates that the state lacks stay as they are. Throws StateError if it lacks anything
/// else.
template <class Works>
[[nodiscard]] StagedRun<Works> stage_run(const StateDict& in, const Run& run, const Works& works) {
  StagedRun<Works> staged{run.progress(), run.metrics(), run.updates(), {}};
  for (const auto& work : works) staged.weights.push_back(work.weight);
  load(in.under("progress"), staged.progress);
  staged.metrics.load(in.under("metrics"));
  const auto saved = static_cast<std::size_t>(in.get<std::int64_t>("updates"));
  for (std::size_t i = 0; i < std::min(saved, staged.updates.size()); ++i) {
    const StateDict update = in.under("update." + std::to_string(i));
    load(update, staged.updates[i]);
    staged.weights[i].load(update.under("window"), run.device());
  }
  return staged;
}

}  // namespace looptorch::detail
