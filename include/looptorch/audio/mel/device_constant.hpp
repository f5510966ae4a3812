// SPDX-License-Identifier: MIT
// Keeps a constant, such as a window or a filter bank, on each device that needs it: made once on the CPU,
// and copied once per device. A copy in each call would make the host wait for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace looptorch::audio {

/// A tensor on the CPU and its copies on other devices, which copies of this object share. Safe to use from
/// several threads; the tensors must not be written to.
class DeviceConstant {
 public:
  explicit DeviceConstant(at::Tensor on_cpu)
      : on_cpu_(std::move(on_cpu)), elsewhere_(std::make_shared<Copies>()) {}

  [[nodiscard]] const at::Tensor& on_cpu() const { return on_cpu_; }

  /// Returns the constant on `device`. Blocks for the copy on the first call for a device, so that any stream
  /// may read it afterwards.
  [[nodiscard]] at::Tensor on(at::Device device) const {
    if (device.is_cpu()) return on_cpu_;
    const std::lock_guard lock(elsewhere_->mutex);
    for (const at::Tensor& copy : elsewhere_->tensors)
      if (copy.device() == device) return copy;
    return elsewhere_->tensors.emplace_back(on_cpu_.to(device));
  }

 private:
  struct Copies {
    std::mutex mutex;
    std::vector<at::Tensor> tensors;
  };

  at::Tensor on_cpu_;
  std::shared_ptr<Copies> elsewhere_;
};

}  // namespace looptorch::audio
