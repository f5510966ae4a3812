// SPDX-License-Identifier: MIT
// Gathers a run as SnapshotContents: model, optimizers, averages, and the states of the loop and its
// policies. The tensors are the run's own: copy them before the next step to keep them. Keys of the
// contents' StateDict `state`:
//
//   run.*           counters, means and units; run.policies.* has the policies' states
//   listed.*        policies that a resumed run must list too, unless `resume_changed` allows otherwise
//   averaged.*      which tensors of the state are averages
//   modes.*         modules in eval mode
//   random.*        random generators
//   loader.*        what identifies the loader and its data
//   stream.*        the position and state of data that are a stream
//   micro_batches   number of micro-batches in a window
//   batch_size      number of samples in a batch, if known
//   stopped         why the fit was stopped, if it was
//   ranks           number of ranks, in a run that is `reproducible`
#pragma once

#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/policy_states.hpp>
#include <looptorch/resume/listed_policies.hpp>
#include <looptorch/resume/optimizer_states.hpp>
#include <looptorch/resume/saved_feed.hpp>
#include <looptorch/resume/shard_states.hpp>
#include <looptorch/resume/state_names.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>
#include <looptorch/state/weights/module_tensors.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The parts of a state: its keys before their first dot.
inline constexpr std::array<std::string_view, 11> kStateParts{
    "run",    "listed",        "averaged",   "modes",   "random", "loader",
    "stream", "micro_batches", "batch_size", "stopped", "ranks"};

template <class Module>
[[nodiscard]] std::vector<std::string> modules_in_eval(const Module& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_modules())
    if (!item.value()->is_training()) names.push_back(item.key());
  return names;
}

/// Returns the model with its averages, each under all names of its weight.
[[nodiscard]] inline TensorMap averaged_model(const TensorMap& model, const TensorMap& averages) {
  std::map<const void*, at::Tensor> by_weight;
  for (const auto& [name, average] : averages)
    by_weight.emplace(model.at(name).unsafeGetTensorImpl(), average);
  TensorMap averaged = model;
  for (auto& [name, weight] : averaged)
    if (const auto found = by_weight.find(weight.unsafeGetTensorImpl()); found != by_weight.end())
      weight = found->second;
  return averaged;
}

/// Moves the averages out of the state, to save them once, and notes their places.
inline void extract_averages(const TensorMap& averages, StateDict& state) {
  std::map<const void*, std::string> names;
  for (const auto& [name, average] : averages) names.emplace(average.unsafeGetTensorImpl(), name);
  StateDict kept, places;
  std::int64_t size = 0;
  for (const auto& [key, value] : state.values()) {
    const auto* tensor = value.get_if<at::Tensor>();
    const auto found = tensor ? names.find(tensor->unsafeGetTensorImpl()) : names.end();
    if (found == names.end()) {
      kept.set(key, value);
      continue;
    }
    places.set(message(size, ".key"), key);
    places.set(message(size++, ".name"), found->second);
  }
  places.set("size", size);
  kept.set("averaged", places);
  state = std::move(kept);
}

/// Puts the averages back into the state. Averages that `averaged` lacks stay out.
inline void insert_averages(const TensorMap& averaged, StateDict& state) {
  const StateDict places = state.under("averaged");
  for (std::int64_t i = 0; i < places.get<std::int64_t>("size"); ++i)
    if (const auto found = averaged.find(places.get<std::string>(message(i, ".name")));
        found != averaged.end())
      state.set(places.get<std::string>(message(i, ".key")), found->second);
}

/// Saves the optimizers; without `moments` only their groups, as before a first step.
template <class Engine>
[[nodiscard]] StateDict save_optimizers(Engine& engine, bool moments) {
  StateDict out;
  const auto& views = engine.run().updates();
  const ParameterNames names(*engine.model(), views);
  out.set("size", views.size());
  for_each_index<Engine::kUpdates>([&](auto i) {
    auto& optimizer = *std::get<i>(engine.updates()).optimizer;
    StateDict saved;
    if (!moments) saved = save_groups(optimizer, views[i], names);
    if constexpr (Engine::kHasRanks)
      if (OptimizerShards* shards = engine.template shards<i>(); shards && moments) {
        saved = save_groups(optimizer, views[i], names);
        each_shard_state(optimizer, *shards, names,
                         [&](const auto& key, const auto& value, const auto& split) {
                           saved.set(name_of_value(key, value, split), value);
                         });
      }
    if (saved.empty()) saved = save_optimizer(optimizer, views[i], names);
    out.set(std::to_string(i), saved);
  });
  for (const auto& [name, parameter] : names.outside()) out.set(name, parameter);
  return out;
}

/// Returns the run as it is now, even within a window. `feed` describes the range of batches; `shards` are
/// the files of the ranks' shards. Without `moments`, leaves out the optimizers' moments.
template <class Engine>
[[nodiscard]] SnapshotContents collect_contents(Engine& engine, const SavedFeed& feed,
                                                std::vector<std::filesystem::path> shards = {},
                                                bool moments = true) {
  StateDict run = engine.state_dict(), random, state;
  const TensorMap averages = weight_averages(engine.stack());
  state.set("run", run);
  extract_averages(averages, state);
  save(list_policies(engine.stack()), state);
  put_names(state, "modes.eval", modules_in_eval(*engine.model()));
  RandomStates::now().save(random);
  state.set("random", random);
  feed.save(engine.window_length(), engine.run().progress(), state);
  if (const auto& reason = engine.run().stop_reason()) state.set("stopped", *reason);
  if (engine.ranks() && engine.ranks()->chunks() > 0) state.set("ranks", engine.ranks()->size());
  SnapshotContents contents{.step = engine.run().progress().step,
                            .model = looptorch::state_dict(engine.model()),
                            .averaged = {},
                            .optimizer = save_optimizers(engine, moments),
                            .state = std::move(state),
                            .shards = std::move(shards)};
  if (!averages.empty()) contents.averaged = averaged_model(contents.model, averages);
  return contents;
}

/// Returns the run between windows. Ranks with sharded optimizers write their shards into `folder`.
template <class Engine>
[[nodiscard]] SnapshotContents take_snapshot(Engine& engine, const SavedFeed& feed,
                                             [[maybe_unused]] const std::filesystem::path& folder = {}) {
  engine.refresh_parameters();
  std::vector<std::filesystem::path> shards;
  if constexpr (Engine::kHasRanks)
    if (engine.ranks().has_sharded_moments()) shards = write_shards(engine, folder);
  return collect_contents(engine, feed, std::move(shards));
}

}  // namespace looptorch::detail
