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

}  // namespace looptorch::detail
