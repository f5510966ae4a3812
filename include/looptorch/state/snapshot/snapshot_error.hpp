// SPDX-License-Identifier: MIT
// Defines the exceptions of snapshots, and `as_snapshot_errors`, which converts errors of files, safetensors
// and JSON to them. Include snapshot.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <filesystem>
#include <utility>

namespace looptorch {

/// Thrown for a snapshot that cannot be written, found or trusted. Names the folder or file, the tensor or
/// key, and both sides of a disagreement.
struct SnapshotError : Error {
  using Error::Error;
};

/// Thrown when the disk has no room for a snapshot; nothing of it was written.
struct SnapshotSpaceError : SnapshotError {
  SnapshotSpaceError(const std::filesystem::path& folder, std::uint64_t needed, std::uint64_t free)
      : SnapshotError(message(folder.string(), ": a snapshot needs ", needed, " bytes, and the disk has ",
                              free, " free")),
        needed_bytes(needed),
        free_bytes(free) {}

  std::uint64_t needed_bytes, free_bytes;
};

namespace detail {

/// Runs `work` and turns errors of files, safetensors and JSON into SnapshotError, so that callers have one
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
