// SPDX-License-Identifier: MIT
// Declares, without defining it, the code for snapshots, for reruns of windows and for several ranks: the
// definitions would add a third to every Trainer's compile time. Headers of the policies that need this code
// include its definition. The Trainer checks that the definition is included if a listed policy needs it.
#pragma once

namespace looptorch::detail {

/// Takes and restores snapshots of an Engine's run; defined in resume/snapshots.hpp.
template <class Engine>
struct SnapshotCode;

/// Saves windows on disk, and marks that windows can be rerun; defined in resume/window_bundle.hpp.
template <class Engine>
struct WindowCode;

/// Communicates with the run's other processes; defined in ranks/several_ranks.hpp.
template <class Engine>
class SeveralRanks;

/// The facts about a fit's batches that a Trainer keeps for snapshots; empty if it takes none.
template <bool kTakesSnapshots, class Engine>
struct LastFeed {};
template <class Engine>
struct LastFeed<true, Engine> : SnapshotCode<Engine>::LastFeed {};

/// True where the header that defines `Code` is included. `T` is any type that depends on the calling
/// template.
template <template <class> class Code, class T>
inline constexpr bool is_included = requires {
  sizeof(Code<T>);
};

/// True if code is wanted and not included. Looks it up only if wanted, so that all files of a program get
/// one answer for a Trainer.
template <bool kWanted, template <class> class Code, class T>
constexpr bool lacks() {
  if constexpr (kWanted)
    return !is_included<Code, T>;
  else
    return false;
}

}  // namespace looptorch::detail
