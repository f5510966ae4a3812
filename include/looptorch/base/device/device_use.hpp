// SPDX-License-Identifier: MIT
// Measures the share of time in which a device was busy, as its driver samples it. Adds no kernel, event or
// wait to a step. Asks NVIDIA's management library about CUDA devices, as nvidia-smi does.
#pragma once

#include <looptorch/base/device/cuda_driver.hpp>
#include <looptorch/base/device/opened_library.hpp>

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>

namespace looptorch::detail {

/// Returns the share of the driver's last sampling period in which a device had work of any process, from 0
/// to 1; nothing if it is unknown. The period is a sixth of a second to a second.
using DeviceUseReader = std::function<std::optional<double>()>;
/// Returns the reader of a device; empty if there is none.
using DeviceUseMaker = DeviceUseReader (*)(c10::Device device);

/// Returns the reader of a CUDA device by NVIDIA's management library. A part of a card (MIG) has none.
[[nodiscard]] inline DeviceUseReader cuda_use(c10::Device device) {
  struct Rates {  // nvmlUtilization_t, in percent
    unsigned kernels = 0, memory = 0;
  };
  static const OpenedLibrary nvml({"libnvidia-ml.so.1"});
  const CudaDriver& driver = CudaDriver::get();
  std::array<char, 32> address{};
  int ordinal = 0;
  void* card = nullptr;
  const bool known =
      nvml && driver.call("cuInit", 0u) &&
      driver.call("cuDeviceGet", &ordinal, static_cast<int>(device.has_index() ? device.index() : 0)) &&
      driver.call("cuDeviceGetPCIBusId", address.data(), static_cast<int>(address.size()), ordinal) &&
      nvml.call("nvmlInit_v2") == 0 &&
      nvml.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(address.data()), &card) == 0;
  if (!known) return {};
  return [card]() -> std::optional<double> {
    Rates rates;
    if (nvml.call("nvmlDeviceGetUtilizationRates", card, &rates) != 0) return std::nullopt;
    return rates.kernels / 100.0;
  };
}

/// Returns the maker for a type of device, by reference, so that tests can set theirs; null if the use is
/// unknown.
[[nodiscard]] inline DeviceUseMaker& device_use_maker(c10::DeviceType type) {
  static std::array<DeviceUseMaker, c10::COMPILE_TIME_MAX_DEVICE_TYPES> makers = [] {
    std::array<DeviceUseMaker, c10::COMPILE_TIME_MAX_DEVICE_TYPES> known{};
    known[static_cast<std::size_t>(c10::DeviceType::CUDA)] = &cuda_use;
    return known;
  }();
  return makers[static_cast<std::size_t>(type)];
}

/// A device's use: one thread asks the driver, which may take milliseconds, and another takes the answer.
class DeviceUse {
 public:
  /// Asks at most every `interval`.
  explicit DeviceUse(c10::Device device, std::chrono::nanoseconds interval = std::chrono::seconds(1))
      : device_(device), interval_(interval), maker_(device_use_maker(device.type())) {}

  /// True if drivers of this type of device can be asked.
  [[nodiscard]] bool may_tell() const { return maker_ != nullptr; }

  /// Asks the driver, unless it was asked less than `interval` ago.
  void ask() {
    const auto now = std::chrono::steady_clock::now();
    if (!maker_ || (asked_ && now - *asked_ < interval_)) return;
    if (!asked_) reader_ = maker_(device_);
    asked_ = now;
    const auto share = reader_ ? reader_() : std::nullopt;
    last_ = share.value_or(kNone);
  }

  /// Returns the driver's last answer, once; nothing if there is no new one.
  [[nodiscard]] std::optional<double> take() {
    const double share = last_.exchange(kNone);
    return std::isnan(share) ? std::nullopt : std::optional(share);
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  c10::Device device_;
  std::chrono::nanoseconds interval_;
  DeviceUseMaker maker_;
  DeviceUseReader reader_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  std::atomic<double> last_{kNone};
};

}  // namespace looptorch::detail
