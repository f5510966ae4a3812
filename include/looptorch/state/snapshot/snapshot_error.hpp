// SPDX-License-Identifier: MIT
// What goes wrong with snapshots. Include snapshot.hpp.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <filesystem>
#include <utility>

namespace looptorch {

/// A snapshot that cannot be written, found or believed; names the folder or file, the tensor or key, and
/// both sides of what does not agree.
struct SnapshotError : Error {
  using Error::Error;
};

/// The disk has no room for a snapshot; nothing of it was written.
struct SnapshotSpaceError : SnapshotError {
  SnapshotSpaceError(const std::filesystem::path& folder, std::uint64_t needed, std::uint64_t free)
      : SnapshotError(message(folder.string(), ": a snapshot needs ", needed, " bytes, and the disk has ",
                              free, " free")),
        needed_bytes(needed),
        free_bytes(free) {}

  std::uint64_t needed_bytes, free_bytes;
};

namespace detail {

/// Errors of the files, of safetensors and of JSON are a snapshot's: who takes and reads snapshots has one
/// type to catch.
template <class Work>
decltype(auto) as_snapshot_errors(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const SnapshotError&) {
    throw;
  } catch (const Error& error) {
    throw SnapshotError(error.what());
  }
}

}  // namespace detail
}  // namespace looptorch
