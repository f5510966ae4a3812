// SPDX-License-Identifier: MIT
// Lets policies call their Trainer through Run (loop/run.hpp): to evaluate, to take snapshots and to read the
// memory in use.
#pragma once

#include <looptorch/loop/compose/parts.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/loop/run_phase.hpp>
#include <looptorch/loop/step/trainer_access.hpp>

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>

namespace looptorch::detail {

/// Serves a Trainer's policies while it lives. `Declared` is a tuple of the `Evaluates<...>` that they
/// declare.
template <class Trainer, class Declared, bool TakesSnapshots, bool ReadsMemory>
class TrainerHost final : public RunHost {
 public:
  static constexpr bool takes_snapshots = TakesSnapshots;

  TrainerHost(Trainer& trainer, Run& run)
      : trainer_(trainer), run_(run), outer_(RunAccess::host(run, this)) {}
  ~TrainerHost() { RunAccess::host(run_, outer_); }
  TrainerHost(const TrainerHost&) = delete;
  TrainerHost& operator=(const TrainerHost&) = delete;

  std::optional<Evaluation> evaluate(TypeKey what, void* batches, void* measure) override {
    std::optional<Evaluation> result;
    each_declared(static_cast<Declared*>(nullptr),
                  [&]<class Batches, class Measure>(Evaluates<Batches, Measure>) {
                    if (result || what.id != type_key<Evaluates<Batches, Measure>>().id) return;
                    auto& range = *static_cast<Batches*>(batches);
                    if constexpr (std::is_same_v<Measure, OwnObjective>)
                      result = trainer_.evaluate(range);
                    else
                      result = trainer_.evaluate(range, *static_cast<Measure*>(measure));
                  });
    return result;
  }

  void with_evaluated_weights(const std::function<void()>& body) override {
    trainer_.with_evaluated_weights(body);
  }

  void in_phase(RunPhase phase, std::string_view name, const std::function<void()>& body) override {
    TrainerAccess::engine(trainer_).in_phase(phase, name, body);
  }

  SnapshotContents snapshot([[maybe_unused]] const std::filesystem::path& folder) override {
    if constexpr (takes_snapshots)
      return trainer_.snapshot(folder);
    else
      throw UsageError(
          "run.snapshot() needs a policy that declares `static constexpr bool takes_snapshots = true`");
  }

  HeldMemory held_memory() override {
    if constexpr (ReadsMemory)
      return trainer_.held_memory();
    else
      throw UsageError(
          "run.held_memory() needs a policy that declares `static constexpr bool reads_memory = true`");
  }

 private:
  template <class... Each, class Visit>
  static void each_declared(std::tuple<Each...>*, Visit&& visit) {
    (visit(Each{}), ...);
  }

  Trainer& trainer_;
  Run& run_;
  RunHost* outer_;
};

}  // namespace looptorch::detail
