// SPDX-License-Identifier: MIT
// Saves and loads sharded optimizers. Each rank saves its own shard. A resume joins the shards of all ranks
// to the full state, out of which each rank then cuts its new shard. So a run resumes on any number of ranks,
// sharded or not.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/loop/compose/policy_states.hpp>
#include <looptorch/loop/ranks.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/optim/state/optimizer_shards.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>
#include <looptorch/resume/optimizer_states.hpp>
#include <looptorch/state/snapshot/optimizer_shard.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the state of a parameter's shard, cut from the whole state.
[[nodiscard]] inline StateDict cut_state(const StateDict& whole, const OptimizerShards::Split& split) {
  StateDict part;
  for (const auto& [key, value] : whole.values()) {
    const auto* tensor = value.get_if<at::Tensor>();
    const bool is_cut =
        tensor && tensor->defined() && split.is_cut() && tensor->sizes() == split.whole.sizes();
    part.set(key, is_cut ? StateDict::Value(OptimizerShards::slice(*tensor, split, split.mine)) : value);
  }
  return part;
}

/// Calls `visit(key, value, split)` for each value that an optimizer keeps for this rank's shards. Keys are
/// those of the full state in a snapshot.
template <class Optimizer, class Visit>
void each_shard_state(Optimizer& optimizer, OptimizerShards& shards, const ParameterNames& names,
                      Visit&& visit) {
  const ShardsInGroups held(optimizer, shards);
  for (const auto& split : shards.all()) {
    if (!split->shard.defined()) continue;
    const StateDict state = parameter_state(optimizer, split->shard);
    for (const auto& [key, value] : state.values())
      visit(message("state.", names.of(split->whole), ".", key), value, *split);
  }
}

/// Returns the name of a value in a snapshot: `key`; for a shard of a cut tensor with its elements,
/// "exp_avg[0:6 of 4x3]".
[[nodiscard]] inline std::string name_of_value(const std::string& key, const StateDict::Value& value,
                                               const OptimizerShards::Split& split) {
  const auto* tensor = value.get_if<at::Tensor>();
  if (!tensor || !split.is_cut() || tensor->numel() != split.mine.count || tensor->dim() == 0) return key;
  return name_of_elements(key, split.mine.begin, split.mine.begin + split.mine.count, split.whole.sizes());
}

/// Stages an optimizer's state for this rank's shards.
template <class Optimizer>
[[nodiscard]] std::vector<Commit> stage_shard_states(Optimizer& optimizer, OptimizerShards& shards,
                                                     const ParameterNames& names, const StateDict& in) {
  std::vector<Commit> commits;
  const auto groups = optimizer.param_groups();  // copies, with the whole parameters
  const ShardsInGroups held(optimizer, shards);
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (const at::Tensor& parameter : groups[i].params()) {
      const OptimizerShards::Split& split = shards.of(parameter);
      if (!split.shard.defined()) continue;
      const StateDict whole = in.under("state." + names.of(parameter));
      Commit commit =
          stage_parameter_state(optimizer, optimizer.param_groups()[i], split.shard, cut_state(whole, split));
      commits.push_back([&optimizer, &shards, commit = std::move(commit)] {
        const ShardsInGroups again(optimizer, shards);
        commit();
      });
    }
  return commits;
}

/// Shards moments that each rank's optimizers have as a whole.
template <class Engine>
void shard_moments(Engine& engine) {
  if (engine.ranks().has_sharded_moments()) return;
  const ParameterNames names(*engine.model(), engine.run().updates());
  for_each_index<Engine::kUpdates>([&](auto i) {
    auto& optimizer = *engine.template update<i>().optimizer;
    OptimizerShards& shards = *engine.template shards<i>();
    shards.refresh(engine.run().updates()[i].parameters);
    StateDict whole;
    for (const at::Tensor& parameter : engine.run().updates()[i].parameters)
      whole.set("state." + names.of(parameter), copied(parameter_state(optimizer, parameter)));
    for (const Commit& commit : stage_shard_states(optimizer, shards, names, whole)) commit();
  });
  engine.ranks().has_sharded_moments() = true;
}

/// Lets this rank write its shard of the leading rank's snapshots.
template <class Engine>
void serve_shards(Engine& engine) {
  engine.ranks()->serve([&engine](const std::string& request) -> std::string {
    try {
      const std::size_t end = request.find('\n');
      const ParameterNames names(*engine.model(), engine.run().updates());
      TensorMap tensors;
      for_each_index<Engine::kUpdates>([&](auto i) {
        each_shard_state(*engine.template update<i>().optimizer, *engine.template shards<i>(), names,
                         [&](const std::string& key, const StateDict::Value& value, const auto& split) {
                           const std::string name =
                               message(std::size_t{i}, ".", name_of_value(key, value, split));
                           if (const auto* tensor = value.get_if<at::Tensor>())
                             tensors.emplace(name, *tensor);
                           else
                             put_number(name, value, tensors);
                         });
      });
      write_shard(request.substr(end + 1), std::stoll(request.substr(0, end)), engine.ranks()->rank(),
                  tensors);
      return {};
    } catch (const std::exception& error) {
      return message("rank ", engine.ranks()->rank(), ": ", error.what());
    }
  });
}

/// Makes all other ranks write their optimizers' shards in parallel, and returns the files. Throws
/// SnapshotError if one could not, UsageError without a folder common to all ranks.
template <class Engine>
[[nodiscard]] std::vector<std::filesystem::path> write_shards(Engine& engine,
                                                              const std::filesystem::path& folder) {
  if (!engine.ranks() || !engine.ranks()->shards_optimizers())
    throw UsageError(
        "the optimizers' moments are sharded (ShardOptimizer), and a snapshot needs all of them: list "
        "SnapshotEvery, or call run.snapshot(folder) in a policy's hook within fit");
  if (folder.empty())
    throw UsageError(
        "the optimizers' moments are sharded (ShardOptimizer): give run.snapshot(folder) the folder "
        "into which the snapshot goes, where each rank writes its part");
  const std::int64_t step = engine.progress().step;
  const auto answers = engine.ranks()->ask(message(step, "\n", std::filesystem::absolute(folder).string()));
  std::vector<std::filesystem::path> files;
  std::string error;
  for (std::size_t rank = 1; rank < answers.size(); ++rank) {
    if (error.empty()) error = answers[rank];
    files.push_back(shard_path(folder, step, static_cast<std::int64_t>(rank)));
  }
  if (error.empty()) return files;
  for (const std::filesystem::path& file : files) remove_shard(file);
  throw SnapshotError(error);
}

}  // namespace looptorch::detail
