// SPDX-License-Identifier: MIT
// Replays a window that Autopsy or SkipBadWindows saved, bit for bit, in another process than the one that
// saved it. Use it in a debugger, or to test a fix. A replay makes no update and writes nothing.
#pragma once

#include <looptorch/loop.hpp>
#include <looptorch/resume/replay_window.hpp>
#include <looptorch/resume/replayed.hpp>

#include <filesystem>
#include <type_traits>

namespace looptorch {

/// Restores the run from a bundle, or the newest in a folder and in its folders of ranks and updates, reruns
/// its window with every operator traced, and returns the result. The Trainer is then where the window began.
/// `Batch` is the run's batch type. Throws SnapshotError for a damaged bundle, UsageError for a snapshot that
/// is no bundle, SnapshotMismatch for another model or other data; other settings, as after a fix, may
/// differ. Runs hooks that a policy needs as a fit begins; policies that declare `leader_only` are muted.
template <class Batch, class Trainer>
[[nodiscard]] Replayed replay(Trainer& trainer, const std::filesystem::path& bundle) {
  if constexpr (detail::CheckSavable<Batch>::passed) {
    const auto call = detail::TrainerAccess::call(trainer).begin("replay()");
    auto& engine = detail::TrainerAccess::engine(trainer);
    detail::require_no_open_window(engine, "replay()");
    detail::resolve_updates(engine);
    detail::TrainerAccess::restart(trainer);
    return detail::ReplayWindow<std::remove_reference_t<decltype(engine)>, Batch>(engine).run(bundle);
  } else {
    return {};
  }
}

}  // namespace looptorch
