// SPDX-License-Identifier: MIT
// Empties the caching allocator every K steps or micro-batches, at the end of a window. Use it when inputs of
// ever new sizes fragment the cache, or when another process needs the memory. Costs a wait for the device
// and fresh allocations after it. Against fragmentation alone,
// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is better.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/phase.hpp>
#include <looptorch/loop/resume_rule.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/policies/accumulation/at_run_time.hpp>
#include <looptorch/policies/declared.hpp>

#include <cstdint>

namespace looptorch {

/// The family of `CacheFlushEvery<50>` and `CacheFlushEvery<>{50}`: only one of them may be listed.
struct CacheFlushFamily {};

namespace detail {

/// Bytes that the run's device returned to the driver; 0 on a CPU. They are counted per process and not
/// saved.
struct CacheFlushState {
  std::int64_t flushes = 0;
  std::int64_t freed_bytes = 0;       ///< Sum of all flushes.
  std::int64_t last_freed_bytes = 0;  ///< Those of the last flush.
  std::int64_t micro_batches = 0;     ///< Micro-batches since a flush was due.

  void flush(at::Device device) {
    last_freed_bytes = empty_cache(device);
    freed_bytes += last_freed_bytes;
    ++flushes;
  }
  void flush_if_due(const Run& run, std::int64_t period) {
    if (run.progress().step % period == 0) flush(run.device());
  }
  /// Flushes at the end of each window in which a multiple of `period` micro-batches was reached.
  void flush_if_due(const WindowContext& window, std::int64_t period) {
    micro_batches += window.micro_batches;
    if (micro_batches >= period) flush(window.run.device());
    micro_batches %= period;
  }
};

}  // namespace detail

/// Empties the cache after every K-th step. Training is bit-identical with and without it.
template <std::int64_t K = detail::kAtRunTime>
struct CacheFlushEvery {
  static_assert(
      K >= 1,
      "looptorch: CacheFlushEvery<K> needs K >= 1 steps between flushes. Leave the policy out for none. "
      "See docs/errors.md#cache-flush-every");
  using family = CacheFlushFamily;
  using State = detail::CacheFlushState;
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  using runs_before = Before<LogMetrics>;  // whose row includes the time of a flush

  bool at_epoch_end = false;  ///< Also when an epoch has ended, after an evaluation there.

  void on_window_end(WindowContext& window, State& state) const { state.flush_if_due(window.run, K); }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    if (at_epoch_end) state.flush(epoch.run.device());
  }
};

/// Takes K at run time: `CacheFlushEvery<>{k}`, or `CacheFlushEvery<>{.batches = k}`.
template <>
struct CacheFlushEvery<detail::kAtRunTime> {
  using family = CacheFlushFamily;
  using State = detail::CacheFlushState;
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  using runs_before = Before<LogMetrics>;  // whose row includes the time of a flush

  std::int64_t steps = 0;     ///< Steps between flushes; at least 1, or 0 where `batches` is given.
  bool at_epoch_end = false;  ///< Also when an epoch has ended, after an evaluation there.
  std::int64_t batches = 0;   ///< Micro-batches between flushes; a flush waits for the end of its window.

  /// Throws UsageError if neither number is at least 1, or both are given.
  void on_fit_begin(FitContext&, State&) const {
    if (steps != 0 && batches != 0)
      throw UsageError(message("CacheFlushEvery<> was given ", steps, " steps and ", batches,
                               " micro-batches between flushes: choose one"));
    if (const std::int64_t given = batches == 0 ? steps : batches; given < 1)
      throw UsageError(message("CacheFlushEvery<>{k} needs at least 1 ",
                               batches == 0 ? "step" : "micro-batch", " between flushes, got ", given));
  }

  void on_window_end(WindowContext& window, State& state) const {
    batches == 0 ? state.flush_if_due(window.run, steps) : state.flush_if_due(window, batches);
  }
  void on_epoch_end(EpochContext& epoch, State& state) const {
    if (at_epoch_end) state.flush(epoch.run.device());
  }
};

}  // namespace looptorch
