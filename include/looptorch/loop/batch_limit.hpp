// SPDX-License-Identifier: MIT
// Limits evaluations to their first few batches, for a quick check that data and metrics work.
#pragma once

#include <looptorch/loop/run.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace looptorch::detail {

/// Limits evaluations to this many batches on each rank while it lives. A smaller limit in force stays.
class BatchLimit {
 public:
  BatchLimit(Run& run, std::int64_t batches) : run_(run), outer_(RunAccess::batch_limit(run)) {
    RunAccess::batch_limit(run) =
        std::min(batches, outer_.value_or(std::numeric_limits<std::int64_t>::max()));
  }
  ~BatchLimit() { RunAccess::batch_limit(run_) = outer_; }
  BatchLimit(const BatchLimit&) = delete;
  BatchLimit& operator=(const BatchLimit&) = delete;

 private:
  Run& run_;
  std::optional<std::int64_t> outer_;
};

}  // namespace looptorch::detail
