// SPDX-License-Identifier: MIT
// Tries whether a run fits into memory: unchanged, or with a change that saves memory. Also finds the largest
// micro-batches that fit. A trial runs some dry steps and then restores the run.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop/step/count_held_memory.hpp>
#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/preflight/dry_run.hpp>
#include <looptorch/preflight/dry_scope.hpp>
#include <looptorch/preflight/preflight_report.hpp>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The trials of one Trainer's run on batches.
template <class Engine, class Source>
class Trials {
 public:
  using Batch = typename decltype(std::declval<const Source&>().of_at_most(1))::value_type;
  using Change = typename DryRun<Engine, Batch>::Change;

  Trials(Engine& engine, Source source, const PreflightOptions& options)
      : engine_(engine), source_(std::move(source)), options_(options), counter_(device_of(engine)) {
    if (!(options.margin >= 0 && options.margin < 1))
      throw UsageError(
          message("PreflightOptions::margin is a share from 0 to below 1, got ", options.margin));
    for (const auto& [name, bytes] : {std::pair{"cap", options.cap}, {"stop_beyond", options.stop_beyond}})
      if (bytes < 0) throw UsageError(message("PreflightOptions::", name, " is in bytes, got ", bytes));
    size_ = source_.size();
    if (size_ < 1) throw UsageError("preflight was given no batches, or batches without samples");
    window_samples_ = size_ * engine.window_length();
    counter_.add_uncounted(held_memory(engine).uncounted);
    expected_ = expected_memory(engine);
    if (HostMemory::device()) expected_.copies = expected_.snapshot = 0;  // they lie on the host
    empty_cache(counter_.device());
    cap_ = options.cap > 0 ? options.cap : free_and_held();
  }

  /// Measures the whole batches, and reports whether they fit.
  [[nodiscard]] PreflightReport report(const Change& change) {
    const DryMemory dry = measure(size_, change);
    PreflightReport report;
    report.device = counter_.device();
    report.fits = fits(dry);
    report.out_of_memory = dry.out_of_memory;
    report.stopped = dry.stopped;
    report.needed = dry.needed;
    report.cap = cap_;
    report.margin = options_.margin;
    report.phases = dry.phases;
    report.parts = divide(dry.phases.peak(), dry.held);
    report.snapshot = snapshot_on_device();
    return report;
  }

  /// Tries a change, which the model or the objective may refuse.
  [[nodiscard]] PreflightTrial attempt(std::string text, std::int64_t samples, const Change& change) {
    try {
      const DryMemory dry = measure(samples, change);
      return {std::move(text), dry.needed, dry.out_of_memory, fits(dry)};
    } catch (const c10::Error& error) {
      return {.change = std::move(text), .error = first_line(error.what_without_backtrace())};
    } catch (const Error& error) {
      return {.change = std::move(text), .error = first_line(error.what())};
    }
  }

  /// Returns the largest micro-batch that fits, among divisors of a window's samples. `is_too_large` if the
  /// given batches are known not to fit.
  [[nodiscard]] std::optional<std::int64_t> largest_micro_batch(std::vector<PreflightTrial>& tried,
                                                                const Change& change = {},
                                                                bool is_too_large = false) {
    const std::vector<std::int64_t> sizes = micro_batch_sizes();
    const auto fits_with = [&](std::int64_t size) {
      tried.push_back(attempt(window_text(size), size, change));
      return tried.back().fits;
    };
    if (!is_too_large && !sizes.empty() && fits_with(sizes.back())) return sizes.back();
    std::size_t fitting = 0, failing = sizes.size();  // sizes[fitting - 1] fits, sizes[failing - 1] does not
    while (failing > fitting + 1) {
      const std::size_t middle = (fitting + failing) / 2;
      (fits_with(sizes[middle - 1]) ? fitting : failing) = middle;
    }
    if (fitting == 0) return std::nullopt;
    return sizes[fitting - 1];
  }

  /// Returns the sizes of micro-batches that divide a window, in ascending order.
  [[nodiscard]] std::vector<std::int64_t> micro_batch_sizes() {
    std::vector<std::int64_t> sizes;
    const std::int64_t all = window_samples();
    for (std::int64_t size = std::max<std::int64_t>(options_.remedies.least_batch, 1); size <= size_; ++size)
      if (all % size == 0) sizes.push_back(size);
    return sizes;
  }
  /// Returns how the report names windows of micro-batches of this size.
  [[nodiscard]] std::string window_text(std::int64_t size) {
    const auto& batches = options_.remedies.batches;
    return batches ? batches(size, window_samples() / size) : std::to_string(size);
  }

  [[nodiscard]] at::Device device() const { return counter_.device(); }
  /// Returns the samples of a whole batch.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Returns the samples of a whole window.
  [[nodiscard]] std::int64_t window_samples() const { return window_samples_; }

 private:
  static at::Device device_of(Engine& engine) {
    engine.prepare();
    return engine.run().device();
  }

  [[nodiscard]] std::int64_t free_and_held() const {
    const auto capacity = memory_capacity(counter_.device());
    if (!capacity)
      throw UsageError(message("preflight cannot tell what ", counter_.device(),
                               " has: give PreflightOptions::cap in bytes"));
    return capacity->available + counter_.read().reserved;
  }

  [[nodiscard]] bool fits(const DryMemory& dry) const {
    return !dry.out_of_memory && dry.needed <= PreflightReport::allowed(cap_, options_.margin);
  }
  /// Measures with micro-batches of the first `samples` samples of each batch, as many as make up a window's
  /// number of samples, and restores the run.
  DryMemory measure(std::int64_t samples, const Change& change) {
    const std::vector<Batch> some = source_.of_at_most(samples);
    DryScope scope(engine_, counter_);
    DryMemory dry;
    scope.run(cap_ - counter_.uncounted(), [&] {
      dry = DryRun<Engine, Batch>(engine_, counter_, window_samples() / samples, change)
                .measure(some, options_.evaluate, most_of_steps(scope.backup_bytes()));
    });
    dry.phases.subtract(scope.backup_bytes());
    dry.needed -= scope.backup_bytes();
    if (!dry.out_of_memory) add_later(dry);
    return dry;
  }

  /// Adds what dry steps miss: averages that begin later, copies kept by policies, a snapshot's copy.
  void add_later(DryMemory& dry) const {
    const std::int64_t averages = std::max<std::int64_t>(expected_.averages - dry.held.averages, 0);
    dry.held.averages += averages;
    dry.phases.add(averages + expected_.copies);
    dry.needed += averages + expected_.copies + snapshot_on_device();
  }
  /// Returns the bytes, the backup's included, beyond which dry steps are stopped.
  [[nodiscard]] std::int64_t most_of_steps(std::int64_t backup) const {
    if (options_.stop_beyond == 0) return std::numeric_limits<std::int64_t>::max();
    return options_.stop_beyond + backup - expected_.copies - snapshot_on_device();
  }
  [[nodiscard]] std::int64_t snapshot_on_device() const {
    return counter_.device().is_cpu() ? expected_.snapshot : 0;
  }

  Engine& engine_;
  Source source_;
  PreflightOptions options_;
  MemoryCounter counter_;
  HeldMemory expected_;
  std::int64_t size_ = 0, cap_ = 0, window_samples_ = 0;
};

}  // namespace looptorch::detail
