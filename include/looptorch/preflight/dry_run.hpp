// SPDX-License-Identifier: MIT
// Makes dry steps: runs windows on given batches with the run's policies, measures their memory, and discards
// their results.
#pragma once

#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch/batch.hpp>
#include <looptorch/loop/compose/hooks.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/step/count_held_memory.hpp>
#include <looptorch/loop/step/evaluate.hpp>
#include <looptorch/loop/step/fit_events.hpp>
#include <looptorch/loop/step/window.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_breakdown.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/preflight/phase_probe.hpp>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace looptorch {

/// The memory of dry steps, in bytes.
struct DryMemory {
  MemoryPhases phases;
  HeldMemory held;          ///< After two windows, so that moments are there.
  std::int64_t needed = 0;  ///< The peak; on a device including its allocator's unused blocks.
  bool out_of_memory = false;
  bool stopped = false;  ///< True if the steps ended early, since they needed more than `most`.
};

namespace detail {

/// Returns where a model's tensors are, in the order in which torch::nn::Module::to moves them to a device.
[[nodiscard]] inline std::vector<const void*> data_of(const torch::nn::Module& model) {
  std::vector<const void*> data;
  for (const auto& child : model.children())
    for (const void* const one : data_of(*child)) data.push_back(one);
  for (const auto& tensors : {model.parameters(/*recurse=*/false), model.buffers(/*recurse=*/false)})
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined() && tensor.has_storage()) data.push_back(tensor.storage().data());
  return data;
}

/// Runs windows of one batch each, several times.
template <class Engine, class Batch>
class DryRun {
 public:
  /// A change to the run while the object lives; empty for none.
  using Change = std::function<std::shared_ptr<void>()>;

  /// `length`: micro-batches a window.
  DryRun(Engine& engine, MemoryCounter& counter, std::int64_t length, const Change& change)
      : engine_(engine), counter_(counter), change_(change) {
    engine.try_window_length(length);
  }
  ~DryRun() { engine_.try_window_length(0); }
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// Repeats the first batch until moments and averages exist, runs all of `batches`, and evaluates them if
  /// `evaluates`. Stops after a micro-batch that needs more than `most` bytes. Running out of memory is
  /// a result.
  [[nodiscard]] DryMemory measure(const std::vector<Batch>& batches, bool evaluates, std::int64_t most) {
    empty_cache(counter_.device());
    if (auto* const device = HostMemory::device()) device->repack(data_of(engine_.run().model()));
    PhaseProbe probe(counter_);
    DryMemory memory;
    try {
      guarded(engine_, [&] { run(batches, evaluates, most, probe, memory); });
    } catch (...) {
      memory.out_of_memory = ran_out_of_memory();
      if (!memory.out_of_memory) {
        end();
        throw;
      }
    }
    end();
    probe.enter(MemoryPhase::between);
    memory.phases = probe.phases();
    memory.needed = needed(probe);
    return memory;
  }

 private:
  using Kept = kept_t<Engine, Batch>;

  /// Lets policies undo what they set, without their actions at the end of a successful fit.
  void end() {
    engine_.window().may_redo = true;
    ignoring_errors([&] { resolve_updates(engine_); });
    with_graphs([](auto& graphs) { graphs.counts = {}; });  // which are not reported
    ignoring_errors([&] { end_policies(engine_, FitStatus::failed); });
  }

  [[nodiscard]] static std::int64_t needed(const PhaseProbe& probe) {
    return std::max(probe.phases().peak().bytes, probe.phases().peak_reserved());
  }

  void run(const std::vector<Batch>& batches, bool evaluates, std::int64_t most, PhaseProbe& probe,
           DryMemory& memory) {
    prepare_fit(engine_, FitPlan::of_unknown_length());
    // Progress as in the midst of an endless run: no dry step ends an epoch or a schedule.
    Progress& progress = RunAccess::progress(engine_.run());
    progress.batches_per_epoch = progress.steps_per_epoch = kLong;
    progress.total_steps = progress.step + kLong;
    progress.epoch = kLong;  // so late that no layer is frozen any more
    engine_.window().in_epoch = false;
    engine_.window().may_redo = false;  // running out of memory is a result
    engine_.window().pinned = PinnedSource::staged;
    engine_.window().refills = false;
    memory.held = held_memory(engine_);  // in case memory suffices for nothing more
    begin_policies(engine_);
    const auto changed = change_ ? change_() : nullptr;  // after policies have set theirs
    const auto windows = [&](const Batch& batch, std::int64_t count) {
      for (std::int64_t i = 0; i < count && !memory.stopped; ++i) {
        window(batch, most, probe);
        memory.stopped = needed(probe) > most;
      }
    };
    windows(batches.front(), windows_until_all_updates() + 1);  // averages come late
    memory.held = held_memory(engine_);
    std::int64_t times = windows_until_all_updates();  // with graphs: until one is captured; its pool stays
    with_graphs([&](auto& graphs) { times *= graphs.warmup + 1; });
    for (const Batch& batch : batches) windows(batch, times);
    if (evaluates && !memory.stopped) evaluate(batches, probe);
    resolve_updates(engine_);
  }

  static constexpr std::int64_t kLong = 1'000'000'000;

  /// Calls `use(graphs)` if micro-batches run as graphs.
  template <class Use>
  void with_graphs([[maybe_unused]] const Use& use) {
    if constexpr (Engine::PolicyStack::template has<graphs_hook>())
      if (auto* const graphs = engine_.graphs()) use(*graphs);
  }

  /// Returns the number of windows until every update has taken part.
  [[nodiscard]] std::int64_t windows_until_all_updates() {
    std::int64_t most = 1;
    for_each_index<Engine::kUpdates>(
        [&](auto i) { most = std::max(most, engine_.template update<i>().options.every); });
    return most;
  }

  /// Returns the micro-batches that show a window's peak: a second adds to gradients of the first.
  [[nodiscard]] std::int64_t micro_batches() {
    const std::int64_t length = engine_.window_length();
    return Engine::kStreams ? std::min<std::int64_t>(length, 2) : length;
  }

  /// Runs a window. Ends it early after a micro-batch that needed more than `most` bytes.
  void window(const Batch& batch, std::int64_t most, PhaseProbe& probe) {
    Kept kept;
    const std::int64_t count = micro_batches();
    for (std::int64_t i = 0; i < count; ++i) {
      probe.enter(MemoryPhase::forward);
      if (i > 0 && needed(probe) > most) break;
      take(kept, batch);
    }
    // Several updates do all of their work at the window's end.
    probe.enter(Engine::kStreams ? MemoryPhase::update : MemoryPhase::forward);
    end_window(engine_, kept);
    probe.end_window();
    rethrow_from_hooks(engine_);
  }

  /// Gives the loop a batch; if a CPU simulates a device, a copy in place of the loop's copy to the device.
  void take(Kept& kept, const Batch& batch) {
    if constexpr (std::is_copy_constructible_v<Batch>)
      if (HostMemory::device()) {
        Batch copy = batch;
        for_each_tensor(copy, [](at::Tensor& tensor) {
          const HostMemory::PlaceScope among_copies(HostMemory::Place::copied);
          if (tensor.defined()) tensor = tensor.clone();
        });
        return add_micro_batch(engine_, kept, copy);
      }
    add_micro_batch(engine_, kept, batch);
  }

  void evaluate(const std::vector<Batch>& batches, PhaseProbe& probe) {
    if constexpr (Engine::kUpdates == 1) {
      resolve_updates(engine_);
      probe.enter(MemoryPhase::evaluation);
      (void)evaluate_range(engine_, batches, engine_.template update<0>().objective);
      probe.enter(MemoryPhase::between);
    }
  }

  Engine& engine_;
  MemoryCounter& counter_;
  const Change& change_;
};

}  // namespace detail
}  // namespace looptorch
