// SPDX-License-Identifier: MIT
// Code that only some policies need, and that would cost a third of what the loop costs to compile: their
// headers include it, and the Trainer asks whether it is there.
#pragma once

namespace looptorch::detail {

/// Takes snapshots of the run that an Engine holds, and takes them over; defined in loop/resume/snapshots.hpp.
template <class Engine>
struct SnapshotCode;

/// True where snapshots.hpp is included. `T` is any type that depends on the template which asks.
template <class T>
inline constexpr bool has_snapshot_code = requires { sizeof(SnapshotCode<T>); };

/// Stands for the code that does windows again; defined in loop/step/watched_share.hpp.
template <class Engine>
struct WindowCode;

/// True where watched_share.hpp is included.
template <class T>
inline constexpr bool has_window_code = requires { sizeof(WindowCode<T>); };

// Asked only where the code is wanted, so that all files of a program have one answer for a Trainer.
template <bool kWanted, class T>
constexpr bool lacks_snapshot_code() {
  if constexpr (kWanted)
    return !has_snapshot_code<T>;
  else
    return false;
}
template <bool kWanted, class T>
constexpr bool lacks_window_code() {
  if constexpr (kWanted)
    return !has_window_code<T>;
  else
    return false;
}

}  // namespace looptorch::detail
