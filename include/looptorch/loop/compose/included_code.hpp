// SPDX-License-Identifier: MIT
// Code that only some policies need, and that would cost a third of what the loop costs to compile: their
// headers include it, and the Trainer asks whether it is there.
#pragma once

namespace looptorch::detail {

/// Takes snapshots of the run that an Engine holds, and takes them over; defined in resume/snapshots.hpp.
template <class Engine>
struct SnapshotCode;

/// Keeps windows on disk, and stands for the code that does them again; defined in resume/window_bundle.hpp.
template <class Engine>
struct WindowCode;

/// Asks what several processes of a run have to agree on; defined in ranks/several_ranks.hpp.
template <class Engine>
class SeveralRanks;

/// What a Trainer remembers of a fit's batches for its snapshots; nothing if it takes none.
template <bool kTakesSnapshots, class Engine>
struct LastFeed {};
template <class Engine>
struct LastFeed<true, Engine> : SnapshotCode<Engine>::LastFeed {};

/// True where the header that defines `Code` is included. `T` is any type that depends on the template which
/// asks.
template <template <class> class Code, class T>
inline constexpr bool is_included = requires {
  sizeof(Code<T>);
};

/// True if code is wanted and not included. It is asked for only where it is wanted, so that all files of a
/// program have one answer for a Trainer.
template <bool kWanted, template <class> class Code, class T>
constexpr bool lacks() {
  if constexpr (kWanted)
    return !is_included<Code, T>;
  else
    return false;
}

}  // namespace looptorch::detail
