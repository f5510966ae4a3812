// SPDX-License-Identifier: MIT
// Defines the names of a snapshot's files, and forms and recognises the names of snapshot folders, such as
// "step-00000120".
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace looptorch::detail {

inline constexpr std::string_view kManifestFile = "manifest.json", kStateFile = "state.json",
                                  kModelFile = "model.safetensors",
                                  kAveragedFile = "model.averaged.safetensors",
                                  kOptimizerFile = "optimizer.safetensors",
                                  kStateTensorsFile = "state.safetensors";

/// All files that a snapshot may have in addition to its manifest.
inline constexpr std::array kSnapshotFiles{kModelFile, kAveragedFile, kOptimizerFile, kStateTensorsFile,
                                           kStateFile};

/// Returns the name of the file with this rank's shard of the optimizers' state.
[[nodiscard]] inline std::string shard_file_name(std::int64_t rank) {
  char text[48];
  std::snprintf(text, sizeof text, "optimizer.rank-%05lld.safetensors", static_cast<long long>(rank));
  return text;
}
[[nodiscard]] inline bool is_shard_file(std::string_view name) {
  constexpr std::string_view kPrefix = "optimizer.rank-";
  std::int64_t rank = 0;
  if (!name.starts_with(kPrefix)) return false;
  const auto digits = name.substr(kPrefix.size());
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  return read.ec == std::errc{} && rank >= 0 && shard_file_name(rank) == name;
}

[[nodiscard]] inline bool is_snapshot_file(std::string_view name) {
  return name == kManifestFile || is_shard_file(name) ||
         std::find(kSnapshotFiles.begin(), kSnapshotFiles.end(), name) != kSnapshotFiles.end();
}

/// Name parts of a folder that is being written or deleted: `step-00000120.partial-PID-N`.
inline constexpr std::string_view kPartial = "partial", kDeleted = "deleted";

/// Returns "step-00000120"; steps beyond 99,999,999 take more digits.
[[nodiscard]] inline std::string snapshot_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

/// Returns the step in a snapshot's name, or nothing for any other name.
[[nodiscard]] inline std::optional<std::int64_t> step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto digits = name.substr(kPrefix.size());
  if (std::from_chars(digits.data(), digits.data() + digits.size(), step).ec != std::errc{})
    return std::nullopt;
  return step >= 0 && snapshot_name(step) == name ? std::optional(step) : std::nullopt;
}

/// True for a snapshot's name, or, as in a copy that is called `best`, for a folder with a manifest.
[[nodiscard]] inline bool is_snapshot(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path / kManifestFile, ignored)) return true;
  return step_of((path.has_filename() ? path : path.parent_path()).filename().string()).has_value();
}

/// True for the name of a folder that a killed writer or deletion leaves behind.
[[nodiscard]] inline bool is_unfinished_name(std::string_view name) {
  const auto dot = name.find('.');
  if (dot == std::string_view::npos || !step_of(name.substr(0, dot))) return false;
  const auto rest = name.substr(dot + 1);
  const auto dash = rest.find('-');
  const auto kind = rest.substr(0, dash), numbers = rest.substr(std::min(dash, rest.size()));
  return (kind == kPartial || kind == kDeleted) && !numbers.empty() &&
         numbers.find_first_not_of("0123456789-") == std::string_view::npos;
}

}  // namespace looptorch::detail
