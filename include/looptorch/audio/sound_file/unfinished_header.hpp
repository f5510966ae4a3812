// SPDX-License-Identifier: MIT
// Warns, once a process, that a file is read to its end because its header was never finished.
#pragma once

#include <looptorch/base/error.hpp>

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace looptorch::audio::detail {

/// True once the warning was printed. Tests reset it.
inline std::atomic<bool> told_unfinished = false;

/// Warns of the first such file: a corpus may consist of them.
inline void warn_unfinished(const std::filesystem::path& path, std::uint64_t bytes) {
  if (told_unfinished.exchange(true)) return;
  TORCH_WARN(
      "looptorch: ", path.string(), ": its header was never finished, so the ", bytes,
      " bytes up to the file's end count as samples; if it was cut off, that cannot be known. Other files "
      "like it are read in the same way, without a warning");
}

}  // namespace looptorch::audio::detail
