// SPDX-License-Identifier: MIT
// Feed, which describes a fit's batches to policies and snapshots: their number in an epoch, a loader's
// statistics and position, and what distinguishes its data, such as size, seed and sampler.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/loader/loader_error.hpp>
#include <looptorch/data/loader/loader_stats.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace looptorch {

namespace detail {
class Regroupable;
struct LoaderLog;
}  // namespace detail

/// The range of batches of the current fit, without its type. Valid until that fit ends.
struct Feed {
  /// Micro-batches in an epoch; empty where the range does not know.
  std::optional<std::int64_t> batches = {};
  /// True for a range that can restart.
  bool repeatable = false;
  bool has_epochs = false;  ///< True in a fit; false in a loop of `step`.
  /// The time that fit waits for its loader; null where the range is no loader.
  std::shared_ptr<const LoaderStats> stats = {};
  std::shared_ptr<const detail::LoaderLog> log = {};  ///< The loader's position; null for other ranges.
  /// Returns what distinguishes this data and its order: size, seed, sampler. The function is never empty.
  std::function<StateDict()> identity = [] { return StateDict(); };
  /// Returns the samples that the loader has skipped since it was made; none for other ranges.
  std::function<SkippedSamples()> skipped = [] { return SkippedSamples(); };
  /// The loader's source, which snapshots let read the windows of other batches; null for other ranges.
  detail::Regroupable* source = nullptr;
};

}  // namespace looptorch
