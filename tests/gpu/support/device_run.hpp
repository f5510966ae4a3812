// SPDX-License-Identifier: MIT
// What the benchmarks of this folder share: the device that they are told to run on, times and memory of work
// on it, and rows.
//
// A benchmark is called as `NAME DEVICE [quick]` and prints its rows as JSON objects, one a line, in the form
// of tests/bench. `quick` shrinks it so far that a CPU runs it in seconds.
#pragma once

#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/memory/memory_counter.hpp>

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
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
