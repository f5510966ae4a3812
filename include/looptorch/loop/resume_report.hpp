// SPDX-License-Identifier: MIT
// Defines the report of a fit that resumed from a snapshot, and the error for a snapshot that does not match
// the run.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A snapshot of another run, or of this run with other settings. Each difference is a sentence that names
/// both sides. The Trainer is unchanged.
struct SnapshotMismatch : Error {
  SnapshotMismatch(const std::string& what, std::vector<std::string> how, bool only_settings)
      : Error(what), differences(std::move(how)), settings_only(only_settings) {}
  std::vector<std::string> differences;
  bool settings_only;  ///< FitOptions::resume_changed would allow all of them.
};

/// How a run was resumed.
struct ResumeReport {
  std::filesystem::path snapshot = {};  ///< Empty for contents that came from no file.
  std::int64_t step = 0;
  std::vector<std::string> rejected = {};     ///< Newer snapshots that could not be used, and why.
  std::vector<std::string> differences = {};  ///< Parts that were not loaded, where that was allowed.
  /// Settings that differ from the snapshot: "the learning rate of group 0: 0.1 -> 0.2".
  std::vector<std::string> changed = {};
  /// Why a policy had stopped the run: a fit then ends at once; a loop of one's own may.
  std::optional<std::string> stopped = {};
};

}  // namespace looptorch
