// SPDX-License-Identifier: MIT
// What the benchmarks of this folder share: the device that they are told to run on, times and memory of work
// on it, and rows.
//
// A benchmark is called as `NAME DEVICE [quick]` and prints its rows as JSON objects, one a line, in the form
// of tests/bench. `quick` shrinks it so far that a CPU runs it in seconds.
#pragma once

#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// The arguments of a benchmark.
struct DeviceRun {
  at::Device device = at::kCPU;
  bool quick = false;

  /// Returns the arguments; prints the usage and ends the process if they are others.
  static DeviceRun of(int count, char** words) {
    const bool quick = count == 3 && std::string_view(words[2]) == "quick";
    if (count == 2 || quick) {
      const at::Device device(words[1]);
      looptorch::MemoryCounter{device};  // a CPU's tensors are counted from here on
      return {device, quick};
    }
    std::fprintf(stderr, "usage: %s DEVICE [quick]\n", words[0]);
    std::exit(2);
  }

  /// Blocks until the device has done all its work.
  void synchronize() const {
    if (device.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
  }
};

/// The cost of one of several calls.
struct Cost {
  double ms = 0;       ///< Until the device has done the work.
  double host_ms = 0;  ///< Until the last call returned; equal to `ms` where the device waits for the host.
  std::int64_t peak_bytes = 0;  ///< Of tensors on the device.
};

inline double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Returns the cost of one of the `count` equal parts of what `work()` does.
template <class Work>
Cost cost_of(const DeviceRun& run, std::int64_t count, Work&& work) {
  run.synchronize();
  const looptorch::MemoryCounter memory(run.device);
  memory.reset_peak();
  const auto begin = std::chrono::steady_clock::now();
  work();
  const double host_ms = milliseconds_since(begin);
  run.synchronize();
  const double ms = milliseconds_since(begin);
  const auto parts = static_cast<double>(count);
  return {ms / parts, host_ms / parts, memory.read().peak};
}

/// Batches of a fit, over and over from a list: the first `warmup` go untimed, so that what a fit does once
/// is in no figure, and `count` behind them are measured.
template <class Batch>
class TimedBatches {
 public:
  TimedBatches(const DeviceRun& run, const std::vector<Batch>& list, std::int64_t warmup, std::int64_t count)
      : run_(run), list_(list), warmup_(warmup), count_(count), memory_(run.device) {}

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(TimedBatches& batches) : batches_(&batches) {}
    const Batch& operator*() const {
      return batches_->list_[static_cast<std::size_t>(number_) % batches_->list_.size()];
    }
    Iterator& operator++() {
      batches_->reach(++number_);
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return number_ == batches_->warmup_ + batches_->count_; }

   private:
    TimedBatches* batches_ = nullptr;
    std::int64_t number_ = 0;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

  /// Returns the cost of one of `parts` equal parts of what was timed.
  [[nodiscard]] Cost cost(std::int64_t parts) const {
    const auto of_all = static_cast<double>(parts);
    return {ms_ / of_all, host_ms_ / of_all, peak_};
  }

 private:
  void reach(std::int64_t number) {
    if (number == warmup_) {
      run_.synchronize();
      memory_.reset_peak();
      begin_ = std::chrono::steady_clock::now();
    } else if (number == warmup_ + count_) {
      host_ms_ = milliseconds_since(begin_);
      run_.synchronize();
      ms_ = milliseconds_since(begin_);
      peak_ = memory_.read().peak;
    }
  }

  DeviceRun run_;
  const std::vector<Batch>& list_;
  std::int64_t warmup_, count_;
  looptorch::MemoryCounter memory_;
  std::chrono::steady_clock::time_point begin_;
  double ms_ = 0, host_ms_ = 0;
  std::int64_t peak_ = 0;
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline void print_row(const std::string& name, double value, const char* unit) {
  std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
  std::fflush(stdout);
}

inline void print_row(const std::string& name, double value, const char* unit, const char* peer,
                      double peer_value) {
  std::printf(
      "{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"peer\": \"%s\", \"peer_value\": %.6g}\n",
      name.c_str(), value, unit, peer, peer_value);
  std::fflush(stdout);
}

/// Makes a measurement that may fail, for example for want of memory, without an end of the others. Returns
/// false after a failure, of which it prints a line.
template <class Measure>
bool attempt(const DeviceRun& run, const std::string& name, Measure&& measure) {
  bool measured = true;
  try {
    measure();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %.400s\n", name.c_str(), error.what());
    measured = false;
  }
  looptorch::empty_cache(run.device);
  return measured;
}

}  // namespace bench
