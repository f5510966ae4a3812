// SPDX-License-Identifier: MIT
// What a fit says of the snapshot that it went on from.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A snapshot that is not of this run; each difference is a sentence that names both sides. Nothing was
/// touched.
struct SnapshotMismatch : Error {
  SnapshotMismatch(const std::string& what, std::vector<std::string> how)
      : Error(what), differences(std::move(how)) {}
  std::vector<std::string> differences;
};

/// Where a run was taken up.
struct ResumeReport {
  std::filesystem::path snapshot = {};  ///< Empty for contents that came from no file.
  std::int64_t step = 0;
  std::vector<std::string> passed_over = {};  ///< Newer snapshots that could not be used, and why.
  std::vector<std::string> differences = {};  ///< What was not taken over, where that was allowed.
};

}  // namespace looptorch
