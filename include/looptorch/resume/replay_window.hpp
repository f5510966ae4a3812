// SPDX-License-Identifier: MIT
// Replays a window: restores a run from the window's bundle and reruns the window with its operators traced.
// `replay` (replay.hpp) calls it.
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/tensors/for_each_index.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/batch/batch_state.hpp>
#include <looptorch/loop/fit.hpp>
#include <looptorch/loop/step/fit_events.hpp>
#include <looptorch/loop/step/redo_state.hpp>
#include <looptorch/loop/step/window.hpp>
#include <looptorch/redo/traced_rerun.hpp>
#include <looptorch/resume/differences.hpp>
#include <looptorch/resume/replayed.hpp>
#include <looptorch/resume/resume.hpp>
#include <looptorch/resume/window_bundle.hpp>
#include <looptorch/state/snapshot/snapshot_folder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Checks that a batch type can be read from disk.
template <class Batch>
struct CheckSavable {
  static constexpr bool passed = SavableBatch<Batch>;
  static_assert(
      passed,
      "looptorch: a window can be rerun only if its batches can be written to disk. Make the batch an "
      "aggregate of tensors, numbers, strings and lists, or give it state_dict(StateDict&) const and "
      "load_state_dict(const StateDict&). See docs/errors.md#savable-batch");
};

/// Returns the newest bundle in a folder and in its folders of ranks and updates (rank-1, update-2); among
/// bundles of one step, the first by name. Its path is empty if there is none.
inline NewestSnapshot find_newest_bundle(const std::filesystem::path& folder) {
  NewestSnapshot newest = find_newest_snapshot(folder);
  auto names = names_in_folder(folder);
  std::ranges::sort(names);
  for (const auto& name : names) {
    if (!name.starts_with("rank-") && !name.starts_with("update-")) continue;
    auto within = find_newest_bundle(folder / name);
    if (newest.path.filename() < within.path.filename()) newest = std::move(within);
  }
  return newest;
}

/// Returns the bundle at `path`, or the newest in that folder. Throws SnapshotError if there is none.
inline NewestSnapshot find_bundle(const std::filesystem::path& path) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    if (auto newest = find_newest_bundle(path); !newest.path.empty()) return newest;
  return find_snapshot(path, "bundle of a window to replay, as Autopsy keeps them in its folder");
}

/// The replay of a bundle's window on a Trainer's Engine, made by `replay`. Loads the bundle's weights and
/// states into the run, and updates nothing.
template <class Engine, class Batch>
class ReplayWindow {
 public:
  explicit ReplayWindow(Engine& engine) : engine_(engine) {}

  [[nodiscard]] Replayed run(const std::filesystem::path& path) {
    const NewestSnapshot found = find_bundle(path);
    SnapshotContents contents = found.take();
    const std::string called = found.path.string();
    const WindowBundle bundle = WindowBundle::take_from(contents, called);
    if (bundle.update >= Engine::kUpdates)
      throw UsageError(message(called, " holds a window of update ", bundle.update + 1,
                               ", and the Trainer has ", Engine::kUpdates));
    engine_.prepare();
    const auto resumption = load_contents(engine_, contents, {},
                                          resume_mode_of(/*strict=*/true, /*resume_changed=*/true), called);
    ResumeReport report;
    report_differences(report, resumption.differences(), ResumeMode::settings);
    Replayed replayed{.bundle = found.path, .update = bundle.update, .changed = report.changed};
    within_policies(FitPlan::up_to_step(bundle.total_steps), [&] {
      resumption.random().apply();  // policies may have drawn from them
      replayed.finding = trace(bundle);
    });
    resumption.random().apply();
    replayed.place = place_;
    replayed.recorded_finding = bundle.found.text;
    replayed.was_bad = bundle.found.bad;
    replayed.same_bits =
        same_losses(replayed.finding.losses, bundle.found.losses) &&
        static_cast<std::int64_t>(replayed.finding.gradient_bits) == bundle.found.gradient_bits;
    return replayed;
  }

 private:
  /// Calls `body` after policies have begun and before they end; policies that only report are muted.
  template <class Body>
  void within_policies(const FitPlan& plan, const Body& body) {
    engine_.stack().mute(true);
    try {
      announce(engine_, plan);
      guarded(engine_, [&] {
        begin_policies(engine_);
        body();
      });
    } catch (...) {
      end();
      throw;
    }
    end();
  }
  void end() {
    ignoring_errors([&] { end_policies(engine_, FitStatus::failed); });
    engine_.stack().mute(false);
    engine_.window().may_redo = true;
    engine_.window().in_epoch = true;
  }

  /// Opens the bundle's window, examines its update, and discards the window.
  Finding trace(const WindowBundle& bundle) {
    engine_.window().may_redo = false;
    begin_window(engine_);
    engine_.window().shared.ranks = bundle.ranks;
    std::vector<Batch> batches;
    for (std::size_t i = 0; i < bundle.batches.size(); ++i) {
      batches.push_back(batch_of_state<Batch>(bundle.batches[i]));
      engine_.window().origin.add(bundle.places[i].first_batch, bundle.places[i].samples);
    }
    place_ = engine_.window().origin.place();
    Finding finding;
    for_each_index<Engine::kUpdates>([&](auto i) {
      if (i != bundle.update) return;
      UpdateWork& work = engine_.works()[i];
      work.pieces = bundle.pieces;
      WindowStart window_start;
      const WindowWeight weight = work.weight;
      if (!bundle.random.empty()) work.weight.fix_unit();  // as ranks do whose micro-batches are seeded
      window_start.save((*engine_.model()).buffers(), work, /*with_random=*/true);
      TracedRerun<i, Engine, Batch> rerun(engine_, window_start, batches, bundle.random);
      finding = rerun.examine();
      work.weight = weight;
    });
    abandon_window(engine_);
    return finding;
  }

  /// Compares by bits: NaN equals NaN.
  static bool same_losses(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
  }

  Engine& engine_;
  WindowPlace place_;
};

}  // namespace looptorch::detail
