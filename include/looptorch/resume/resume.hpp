// SPDX-License-Identifier: MIT
// Resumes a run from a snapshot's contents. Compares all contents with the run; then loads everything, or
// nothing if a difference is refused. snapshots.hpp calls `load_contents` for a fit, replay_window.hpp for a
// replay. differences.hpp says what may differ.
#pragma once

#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/data/loader/feed.hpp>
#include <looptorch/resume/differences.hpp>
#include <looptorch/resume/listed_policies.hpp>
#include <looptorch/resume/saved_feed.hpp>
#include <looptorch/resume/shard_states.hpp>
#include <looptorch/resume/take_snapshot.hpp>
#include <looptorch/state/snapshot/snapshot_error.hpp>
#include <looptorch/state/weights/load_report.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A snapshot compared with a run, and staged.
template <class Engine>
class Resumption {
 public:
  /// Compares and stages; the run is unchanged. `feed` is the range of the fit that resumes. Throws
  /// StateError for incomplete contents.
  Resumption(Engine& engine, const SnapshotContents& contents, const Feed& feed)
      : engine_(engine),
        contents_(contents),
        state_(state_for_ranks(engine, contents.state, feed)),
        staged_(engine.stage(state_.under("run"))),
        feed_(state_, staged_.progress.batch, feed, engine.window_length(), has_own_count(engine)) {
    // The order of these steps matters.
    // 1. The contents as such: contents that contradict themselves are refused before they are compared.
    compare_steps();
    compare_parts();
    // 2. The model. Puts the averages that fit it into `state_`, where policies find them in step 3.
    compare_model();
    // 3. Policies, whose commits `apply` runs first.
    std::vector<Difference> of_settings;
    stage_listed(engine_.stack(), state_, commits_, of_settings);
    // Those of settings come first, since they explain the rest.
    differences_.insert(differences_.begin(), of_settings.begin(), of_settings.end());
    // 4. Optimizers, with the staged rates; then the position in the range of this fit.
    compare_optimizers();
    add(feed_.differences());
    staged_.progress.batch = feed_.batch();
    // 5. Random generators, which the caller applies after all else.
    random_ = RandomStates::loaded(state_.under("random"));
    const std::int64_t rank = rank_with_own_numbers(engine);
    if (rank > 0) random_.move_to(engine.run().device());
    for (std::string& why : random_.drop_unfit()) add(ResumeField::generators, std::move(why));
    if (rank > 0) random_.derive(rank);  // else all ranks would draw rank 0's numbers
  }

  [[nodiscard]] const std::vector<Difference>& differences() const { return differences_; }
  [[nodiscard]] const RandomStates& random() const { return random_; }
  /// Returns why a policy had stopped the snapshot's run; empty if none had.
  [[nodiscard]] std::optional<std::string> stopped() const {
    return state_.contains("stopped") ? std::optional(state_.get<std::string>("stopped")) : std::nullopt;
  }

  /// Loads what fits, except the random generators: policies may draw from them as they begin.
  void apply() {
    at::NoGradGuard no_gradients;
    for (const Commit& commit : commits_) commit();
    copy_state(looptorch::state_dict(engine_.model()), fitting_);
    const auto in_eval = names_under(state_, "modes.eval");
    const std::set<std::string> eval(in_eval.begin(), in_eval.end());
    for (const auto& item : (*engine_.model()).named_modules())  // parents come before their children
      if (const bool training = !eval.count(item.key()); item.value()->is_training() != training)
        item.value()->train(training);
    engine_.commit(std::move(staged_));
    feed_.apply(/*streams=*/!engine_.ranks());
  }

 private:
  /// Returns the state as this number of ranks counts it.
  static StateDict state_for_ranks(Engine& engine, const StateDict& saved,
                                   [[maybe_unused]] const Feed& feed) {
    if constexpr (Engine::kHasRanks)
      if (const Ranks* ranks = engine.ranks().get(); ranks && ranks->chunks() > 0) {
        const std::int64_t batches = batches_of(own_identity(feed)).value_or(-1);
        return as_for_ranks(saved, ranks->size(), engine.window_length(), batches, ranks->leads());
      }
    return saved;
  }

  /// Returns this rank if its batches and random numbers differ from the leading rank's; else 0.
  [[nodiscard]] static std::int64_t rank_with_own_numbers([[maybe_unused]] const Engine& engine) {
    if constexpr (Engine::kHasRanks)
      if (const Ranks* ranks = engine.ranks().get()) return ranks->chunks() == 0 ? ranks->rank() : 0;
    return 0;
  }
  /// True on a rank that may have another number of batches than the leading rank.
  [[nodiscard]] static bool has_own_count(const Engine& engine) { return rank_with_own_numbers(engine) > 0; }

  void add(const std::vector<Difference>& more) {
    differences_.insert(differences_.end(), more.begin(), more.end());
  }
  void add(ResumeField what, std::string sentence) {
    differences_.push_back(mismatch(what, std::move(sentence)));
  }

  /// Throws SnapshotError for contents with two different steps: no part can be trusted.
  void compare_steps() const {
    if (staged_.progress.step != contents_.step)
      throw SnapshotError(message("a snapshot of step ", contents_.step, " holds the state of a run at step ",
                                  staged_.progress.step));
  }

  void compare_parts() {
    for (const std::string& part : key_prefixes(state_))
      if (std::ranges::find(kStateParts, part) == kStateParts.end())
        add(ResumeField::contents, message("the snapshot's state holds '", part, "', and no run has that"));
  }

  void compare_model() {
    const TensorMap own = looptorch::state_dict(engine_.model());
    const LoadReport report = compare_state(own, contents_.model);
    if (const std::string faults = describe_faults(report); !faults.empty())
      add(ResumeField::model, "the model" + faults);
    compare_types(own);
    for (const std::string& name : report.loaded)
      if (const auto given = contents_.model.find(name); given != contents_.model.end())
        fitting_.emplace(name, given->second);
    fit_averages(own);
  }

  /// Reports weights of another type, which load, but not bit for bit.
  void compare_types(const TensorMap& own) {
    std::size_t others = 0;
    std::string example;
    for (const auto& [name, tensor] : own)
      if (const auto given = contents_.model.find(name);
          given != contents_.model.end() && given->second.defined() &&
          given->second.scalar_type() != tensor.scalar_type() && others++ == 0)
        example = message(name, " is ", tensor.scalar_type(), " here, ", given->second.scalar_type(),
                          " in the snapshot");
    if (others > 0)
      add(ResumeField::model, message(others, " tensors of the model have another type: ", example));
  }

  /// Drops averages of weights that this model does not have.
  void fit_averages(const TensorMap& own) {
    TensorMap averaged;
    for (const auto& [name, average] : contents_.averaged)
      if (const auto weight = own.find(name);
          weight != own.end() && find_misfit(weight->second, average).empty())
        averaged.emplace(name, average);
    insert_averages(averaged, state_);
    if (averaged.size() < contents_.averaged.size())
      add(ResumeField::model, message("averages of ", contents_.averaged.size() - averaged.size(),
                                      " weights that the model does not have in these shapes"));
  }

  void compare_optimizers() {
    const StateDict saved = contents_.optimizer;
    auto& views = engine_.run().updates();
    const auto size = saved.get<std::int64_t>("size");
    if (size != static_cast<std::int64_t>(views.size()))
      add(ResumeField::optimizer, message(views.size(), " updates here, ", size, " in the snapshot"));
    const ParameterNames names(*engine_.model(), views);
    for_each_index<Engine::kUpdates>([&](auto i) {
      if (static_cast<std::int64_t>(i) >= size) return;
      auto& optimizer = *std::get<i>(engine_.updates()).optimizer;
      const StateDict own = saved.under(std::to_string(i));
      std::function<std::vector<Commit>()> of_shard;
      if constexpr (Engine::kHasRanks)
        if (OptimizerShards* shards = engine_.template shards<i>())
          of_shard = [&, shards] { return stage_shard_states(optimizer, *shards, names, own); };
      auto staged = stage_optimizer(optimizer, views[i], names, own, of_shard);
      std::vector<double>& rates = staged_.updates[i].full_rates;
      if (staged.keeps_rates || rates.size() != views[i].full_rates.size()) rates = views[i].full_rates;
      commits_.insert(commits_.end(), staged.commits.begin(), staged.commits.end());
      add(staged.differences);
    });
    stage_outside(names.outside(), saved);
    for (const std::string& part : key_prefixes(saved))
      if (part != "size" && part != "outside" && !is_below(part, size))
        add(ResumeField::contents, message("the snapshot's optimizers hold '", part, "', and there are ",
                                           size, " of them, numbered from 0"));
  }

  /// Returns the parts of keys before their first dot.
  static std::set<std::string> key_prefixes(const StateDict& in) {
    std::set<std::string> parts;
    for (const auto& item : in.values()) parts.insert(item.first.substr(0, item.first.find('.')));
    return parts;
  }
  /// True if `part` is one of 0 .. size - 1, whatever size a file claims.
  static bool is_below(const std::string& part, std::int64_t size) {
    std::int64_t number = -1;
    std::from_chars(part.data(), part.data() + part.size(), number);
    return number >= 0 && number < size && part == std::to_string(number);
  }

  /// Stages parameters that updates train and the model does not contain.
  void stage_outside(const TensorMap& outside, const StateDict& saved) {
    for (const auto& item : outside) {
      const auto value = saved.values().find(item.first);
      const auto* tensor = value == saved.values().end() ? nullptr : value->second.get_if<at::Tensor>();
      const std::string why = tensor ? find_misfit(item.second, *tensor) : "missing";
      if (why.empty())
        commits_.push_back([to = item.second, from = *tensor] { to.copy_(from); });
      else
        add(ResumeField::model, message("a parameter outside the model, ", item.first, ": ", why));
    }
    std::size_t theirs = 0;
    for (const auto& item : saved.values()) theirs += item.first.starts_with("outside.");
    if (theirs != outside.size())
      add(ResumeField::model,
          message(outside.size(), " parameters outside the model here, ", theirs, " in the snapshot"));
  }

  Engine& engine_;
  const SnapshotContents& contents_;
  StateDict state_;
  typename Engine::Staged staged_;
  StagedFeed feed_;
  std::vector<Commit> commits_;  // policies, optimizers and parameters outside the model
  TensorMap fitting_;            // tensors of the model that have the model's shapes
  RandomStates random_;
  std::vector<Difference> differences_;
};

/// Loads contents into a prepared engine, all or nothing unless `mode` is `all`, which loads what fits.
/// Leaves the random generators to the caller. Throws SnapshotMismatch, and StateError for incomplete
/// contents. Messages call the snapshot `called`.
template <class Engine>
[[nodiscard]] Resumption<Engine> load_contents(Engine& engine, const SnapshotContents& contents,
                                               const Feed& feed, ResumeMode mode, const std::string& called) {
  Resumption<Engine> resumption(engine, contents, feed);
  refuse(resumption.differences(), mode, called);
  resumption.apply();
  return resumption;
}

}  // namespace looptorch::detail
