// SPDX-License-Identifier: MIT
// Does a window again that Autopsy or SkipBadWindows kept: bit for bit, in another process, in a debugger or
// after a fix. No update is made, and nothing is written.
#pragma once

#include <looptorch/loop.hpp>
#include <looptorch/resume/replay_window.hpp>
#include <looptorch/resume/replayed.hpp>

#include <filesystem>
#include <type_traits>

namespace looptorch {

/// Takes the run over from a bundle, or the newest in a folder of them, does its window again with every
/// operator watched, and says what came of it. The Trainer then stands where the window began. `Batch` is
/// what the run's range yields. Throws SnapshotError for a bundle that is damaged, UsageError for a snapshot
/// that is none, SnapshotMismatch for one of another model or other data; other settings, as after a fix, may
/// differ. A hook that a policy needs as a fit begins is run; policies that only report are silent.
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
