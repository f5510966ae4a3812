// SPDX-License-Identifier: MIT
// Records a trace with LibTorch's profiler: operators of this thread and of the threads that run its
// backward, kernels on CUDA and XPU, and named ranges around them. Costs some microseconds an operator while
// it records.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/trace_ranges.hpp>

#include <c10/core/Device.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

namespace looptorch::detail {

/// Throws UsageError if LibTorch's profiler is on: a thread has only one.
inline void require_no_profiler() {
  if (torch::profiler::impl::profilerEnabled())
    throw UsageError(
        "Profile needs LibTorch's profiler, which is on in this thread: end that profile before fit(), or "
        "take Profile out");
}

/// Records from its construction until `stop`, and the ranges that are opened meanwhile.
class TraceRecorder : public TraceRanges {
 public:
  struct Options {
    c10::Device device;
    bool shapes = false;  ///< Each operator's input shapes.
    bool memory = false;  ///< Each allocation.
  };

  /// Waits for the device, so that the trace shows no earlier work. Throws UsageError if LibTorch's profiler
  /// is on.
  explicit TraceRecorder(const Options& options) : device_(options.device) {
    require_no_profiler();
    wait();
    using namespace torch::profiler::impl;
    const ProfilerConfig config(ProfilerState::KINETO, options.shapes, options.memory);
    std::set<ActivityType> activities{ActivityType::CPU};
    if (device_.is_cuda()) activities.insert(ActivityType::CUDA);
    if (device_.is_xpu()) activities.insert(ActivityType::XPU);
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
    records_ = true;
  }
  /// Drops the trace if `stop` was not called.
  ~TraceRecorder() {
    try {
      if (records_) end();
    } catch (...) {  // nothing requested is lost
    }
  }
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  /// Waits for the device, closes all ranges, and writes the trace to `file`, whole or not at all. Throws
  /// FileError.
  void stop(const std::filesystem::path& file) {
    wait();
    const auto trace = end();
    std::error_code none_before;
    const auto before = std::filesystem::last_write_time(file, none_before);
    trace->save(file.string());
    std::error_code missing;
    const bool is_new =
        std::filesystem::last_write_time(file, missing) != before || static_cast<bool>(none_before);
    if (missing || !is_new || !is_whole(file))
      throw FileError("cannot write the trace to " + file.string() +
                      ": is there space, and may the folder be written?");
  }

 private:
  void wait() const {
    if (is_accelerator(device_)) stream_of(device_).synchronize();
  }

  std::unique_ptr<torch::autograd::profiler::ProfilerResult> end() {
    records_ = false;
    close_to(0);
    return torch::autograd::profiler::disableProfiler();
  }

  /// True if the file ends as a JSON object does: the profiler does not notice a full disk.
  static bool is_whole(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary | std::ios::ate);
    for (auto left = static_cast<std::streamoff>(in.tellg()); in && left > 0;) {
      in.seekg(--left);
      if (const int c = in.get(); c != '\n' && c != ' ') return c == '}';
    }
    return false;
  }

  c10::Device device_;
  bool records_ = false;
};

}  // namespace looptorch::detail
