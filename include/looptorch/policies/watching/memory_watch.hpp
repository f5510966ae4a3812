// SPDX-License-Identifier: MIT
// Holds the state of WatchMemory: reads the memory in each phase, detects faults such as leaks, and describes
// memory and faults in sentences.
#pragma once

#include <looptorch/loop/run.hpp>
#include <looptorch/memory/measure/memory_breakdown.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>
#include <looptorch/memory/measure/memory_trends.hpp>
#include <looptorch/memory/measure/process_memory.hpp>
#include <looptorch/memory/measure/unfreed_blocks.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// A fault in the memory of a run.
struct MemoryFinding {
  enum class Kind {
    growth,         ///< Each window leaves more allocated than the last: a leak.
    spike,          ///< One window needed far more than others.
    fragmentation,  ///< The allocator holds much that fits no tensor.
  };
  Kind kind;
  std::int64_t step = 0;                  ///< Windows finished when it was found.
  std::optional<MemoryPhase> phase = {};  ///< Where the memory is allocated, if found.
  std::int64_t bytes = 0;  ///< Growth per window, a spike's bytes beyond the usual, or unused bytes.
  std::string text = {};   ///< One sentence with its remedy.
};

namespace detail {

/// The memory of one run, counted per process and not saved.
class MemoryWatch {
 public:
  /// Returns the peak of tensors: its bytes, time and place.
  [[nodiscard]] const MemoryPeak& peak() const { return phases_.peak(); }
  /// Returns the peak of tensors in a phase; 0 if it never came.
  [[nodiscard]] std::int64_t peak_in(MemoryPhase phase) const { return phases_.peak_in(phase); }
  /// Returns the peak of the allocator.
  [[nodiscard]] std::int64_t peak_reserved() const { return phases_.peak_reserved(); }
  /// Returns the known parts of the peak: the run's tensors are added up at the end of its second window, of
  /// epochs and of the fit.
  [[nodiscard]] MemoryBreakdown breakdown() const { return divide(peak(), held_); }
  [[nodiscard]] const std::vector<MemoryFinding>& findings() const { return findings_; }
  /// Returns the device's memory; empty if unknown, and before the first fit.
  [[nodiscard]] const std::optional<MemoryCapacity>& capacity() const { return capacity_; }
  /// Returns "1.38 GB of 4.29 GB": the peak so far, and what the device has.
  [[nodiscard]] std::string short_text() const {
    return bytes_text(peak().bytes) + (capacity_ ? " of " + bytes_text(capacity_->total) : "");
  }
  /// Returns the device's bytes that were not free as the fit began and are none of this process's tensors:
  /// those of other programs, and of contexts. 0 on a CPU and if unknown.
  [[nodiscard]] std::int64_t taken_by_others() const { return taken_by_others_; }
  /// Returns a sentence with the peak, its phase, step and parts; for a device also what others take of it,
  /// and the process's host memory.
  [[nodiscard]] std::string text() const {
    return short_text() + " at the peak, in " + std::string(to_string(peak().phase)) + " of step " +
           std::to_string(peak().step + 1) + ": " + describe(breakdown()) + beside_tensors();
  }
  /// Returns what would lower the peak, the greatest part first, if it leaves less than a tenth of the device
  /// free; empty if there is room, or the device's size is unknown.
  [[nodiscard]] std::vector<std::string> advice(const PartRemedies& words = {}) const {
    if (!capacity_ ||
        std::max(peak().bytes, peak_reserved()) * 10 < (capacity_->total - taken_by_others_) * 9)
      return {};
    return looptorch::advice(breakdown(), words);
  }

  void begin(const Run& run) {
    counter_.emplace(run.device());
    add_up(run);
    counter_->add_uncounted(held_.uncounted);
    counter_->reset_peak();
    const MemoryReading now = counter_->read();
    capacity_ = memory_capacity(run.device());
    device_ = run.device().type();
    if (capacity_ && device_ != at::kCPU)
      taken_by_others_ = std::max<std::int64_t>(capacity_->total - capacity_->available - now.reserved, 0);
    phases_.begin(now);
    windows_ = 0, growth_ = {}, spikes_ = {};  // this fit's batches may be larger
  }

  void enter(MemoryPhase next, const Run& run) {
    if (!counter_) return;  // an evaluation before the first fit
    phases_.enter(next, counter_->take(), run.progress().step);
    if (watch_ && watch_->blocks()) watch_->blocks()->enter(next);
  }

  /// Ends a window; returns a finding, whose remedies are put in `words`.
  std::optional<MemoryFinding> end_window(const Run& run, const PartRemedies& words) {
    const std::int64_t step = run.progress().step;
    const MemoryReading now = counter_->take();
    const std::int64_t peak = phases_.end_window(now, step - 1);
    if (++windows_ == 2) add_up(run);
    std::optional<MemoryFinding> found;
    if (watch_)
      found = track_blocks(step);
    else if (const auto bytes = growth_.add(now.allocated, [&] { return known(run); });
             bytes && !has(MemoryFinding::Kind::growth))
      begin_tracking(*bytes, run);
    if (const auto usual = spikes_.add(peak); usual && !found) found = spike(step, peak, *usual, words);
    if (!found && windows_ % kBetweenChecks == 0) found = fragmentation(step, words);
    if (found) findings_.push_back(*found);
    return found;
  }

  /// Ends a fit; returns a pending finding.
  std::optional<MemoryFinding> end(const Run& run, bool failed) {
    if (!failed) add_up(run);
    if (!std::exchange(watch_, nullptr)) return std::nullopt;
    return findings_.emplace_back(growth(run.progress().step, std::nullopt));
  }

  /// Adds up what the run holds.
  void add_up(const Run& run) { held_ = run.held_memory(); }

 private:
  static constexpr std::int64_t kBetweenChecks = 16, kMinTracked = 4, kMaxTracked = 128;  // windows

  [[nodiscard]] bool has(MemoryFinding::Kind kind) const {
    return std::any_of(findings_.begin(), findings_.end(),
                       [&](const auto& each) { return each.kind == kind; });
  }

  [[nodiscard]] std::string beside_tensors() const {
    std::string text;
    if (taken_by_others_ > 0) text += "; other programs and contexts take " + bytes_text(taken_by_others_);
    if (device_ == at::kCPU) return text;
    const ProcessMemory host = process_memory(device_);
    if (host.peak > 0) text += "; host " + bytes_text(host.peak);
    if (host.pinned > 0) text += ", " + bytes_text(host.pinned) + " of it pinned";
    return text;
  }

  /// Returns the known bytes that the run holds between windows.
  std::int64_t known(const Run& run) {
    add_up(run);
    return held_.weights + held_.optimizer + held_.averages;
  }

  void begin_tracking(double bytes, const Run& run) {
    growing_ = bytes;
    watch_ = std::make_unique<BlockWatch>(run.device());
  }

  /// Tracks the blocks that windows allocate, until some blocks stay allocated.
  std::optional<MemoryFinding> track_blocks(std::int64_t step) {
    UnfreedBlocks* const blocks = watch_->blocks();
    const std::int64_t windows = blocks ? blocks->end_window() : kMaxTracked;
    if (windows < kMinTracked) return std::nullopt;
    const BytesByPhase kept = blocks ? blocks->kept() : BytesByPhase{};
    const auto most = std::max_element(kept.begin(), kept.end());
    if (*most == 0 && windows < kMaxTracked) return std::nullopt;
    watch_.reset();
    if (*most == 0) return growth(step, std::nullopt);
    return growth(step, kMemoryPhases[static_cast<std::size_t>(most - kept.begin())]);
  }

  [[nodiscard]] MemoryFinding growth(std::int64_t step, std::optional<MemoryPhase> phase) const {
    MemoryFinding found{MemoryFinding::Kind::growth, step, phase, std::llround(growing_)};
    found.text =
        "memory grows by " + bytes_text(found.bytes) + " a step" + time_left() + "; " + origin(phase);
    return found;
  }

  [[nodiscard]] std::string time_left() const {
    if (!capacity_ || growing_ <= 0) return {};
    const double left = static_cast<double>(capacity_->available) / growing_;
    return left > 1e6 ? std::string()
                      : ", and would last for " + std::to_string(std::llround(left)) + " more";
  }

  [[nodiscard]] static std::string origin(std::optional<MemoryPhase> phase) {
    if (!phase) return "what is allocated in a step was not seen to stay";
    const std::string where = "tensors that are allocated in " + std::string(to_string(*phase)) + " stay: ";
    switch (*phase) {
      case MemoryPhase::forward:
        return where + "keep a loss or an output by .item() or .detach(), not with its graph";
      case MemoryPhase::backward:
        return where + "look for gradients or hooks of tensors that are collected";
      case MemoryPhase::update:
        return where + "look for a policy or an optimizer that collects tensors";
      case MemoryPhase::evaluation:
        return where + "look for a measure that collects outputs, and move what it needs to the CPU";
      case MemoryPhase::between:
        return where + "look for data that is collected on the device";
    }
    return where;
  }

  std::optional<MemoryFinding> spike(std::int64_t step, std::int64_t peak, std::int64_t usual,
                                     const PartRemedies& words) const {
    if (has(MemoryFinding::Kind::spike)) return std::nullopt;
    MemoryFinding found{MemoryFinding::Kind::spike, step, phases_.peak().phase, peak - usual};
    found.text = "step " + std::to_string(step) + " needed " + bytes_text(peak) +
                 ", where 95 of 100 need at most " + bytes_text(usual) + ": " + words.long_inputs;
    return found;
  }

  std::optional<MemoryFinding> fragmentation(std::int64_t step, const PartRemedies& words) const {
    const auto unused = fragmented(phases_.peak_reserved(), phases_.peak().bytes);
    if (!unused || has(MemoryFinding::Kind::fragmentation)) return std::nullopt;
    MemoryFinding found{MemoryFinding::Kind::fragmentation, step, std::nullopt, *unused};
    found.text = "the allocator holds " + bytes_text(phases_.peak_reserved()) +
                 ", and tensors never took more than " + bytes_text(phases_.peak().bytes) +
                 ": its blocks do not fit. Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or " +
                 words.fragments;
    return found;
  }

  std::optional<MemoryCounter> counter_;
  std::optional<MemoryCapacity> capacity_;
  at::DeviceType device_ = at::kCPU;
  std::int64_t taken_by_others_ = 0;
  MemoryPhases phases_;
  HeldMemory held_;
  GrowthTrend growth_;
  SpikeTrend spikes_;
  std::unique_ptr<BlockWatch> watch_;
  double growing_ = 0;
  std::int64_t windows_ = 0;
  std::vector<MemoryFinding> findings_;
};

}  // namespace detail
}  // namespace looptorch
