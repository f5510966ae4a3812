// SPDX-License-Identifier: MIT
// Adds the machine's numbers to a row of metrics: the memory in use on the host and the device, and how busy
// the device was. LogMetrics writes them.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_use.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/memory/measure/process_memory.hpp>
#include <looptorch/report/known_metrics.hpp>
#include <looptorch/report/metric_log.hpp>

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace looptorch::detail {

class MachineNumbers {
 public:
  void begin(c10::Device device) {
    device_ = device;
    use_ = std::make_shared<DeviceUse>(device);
  }

  /// Calls `record(name, value)` with each number, as `double`. Does not wait: the thread of `log` has
  /// already asked the driver how busy the device was.
  template <class Record>
  void add(const Record& record, report::MetricLog& log) {
    if (const ProcessMemory host = process_memory(c10::kCPU); host.resident > 0)
      record("resident_bytes", static_cast<double>(host.resident));
    if (is_accelerator(device_)) {
      const MemoryReading reading = MemoryCounter(device_).read();
      peak_bytes_ = std::max(peak_bytes_, reading.peak);  // WatchMemory resets the allocator's
      record("device_bytes", static_cast<double>(reading.allocated));
      record("device_bytes_peak", static_cast<double>(peak_bytes_));
      record("device_bytes_reserved", static_cast<double>(reading.reserved));
    }
    if (!use_->may_tell()) return;
    if (const auto share = use_->take()) record(report::kDeviceBusy, *share);
    log.add([use = use_](report::MetricFiles&) { use->ask(); });
  }

 private:
  c10::Device device_ = c10::kCPU;
  std::shared_ptr<DeviceUse> use_;  // asked on the log's thread
  std::int64_t peak_bytes_ = 0;
};

}  // namespace looptorch::detail
