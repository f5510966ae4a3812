// SPDX-License-Identifier: MIT
// Copies many numbers from a device to the host in one asynchronous copy. The thread that writes metrics
// polls for their arrival, so that no thread waits for the device.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_event.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace looptorch::report {

/// Numbers on their way from a device to pinned host memory, in double precision.
class ArrivingNumbers {
 public:
  /// Starts the copy of one-element tensors: two kernels at most where they are in double precision on one
  /// device. CPU tensors are read at once.
  explicit ArrivingNumbers(const std::vector<at::Tensor>& numbers) {
    if (numbers.empty()) return;
    const at::NoGradGuard no_gradients;
    const at::Device device = device_of(numbers);
    std::vector<at::Tensor> alike;
    alike.reserve(numbers.size());
    for (const at::Tensor& number : numbers) alike.push_back(prepared(number, device));
    const at::Tensor there = at::stack(alike);
    if (there.is_cpu()) {
      host_ = there;
      return;
    }
    host_ = at::empty(there.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
    host_.copy_(there, /*non_blocking=*/true);
    event_.emplace(device.type());
    event_->record(looptorch::detail::stream_of(device));
  }

  /// True once the numbers can be read. Never waits; any one thread may ask.
  [[nodiscard]] bool arrived() const { return !event_ || event_->query(); }

  /// Returns number `i`. Call it after `arrived` has returned true.
  [[nodiscard]] double operator[](std::size_t i) const { return host_.const_data_ptr<double>()[i]; }

 private:
  static at::Device device_of(const std::vector<at::Tensor>& numbers) {
    for (const at::Tensor& number : numbers)
      if (!number.is_cpu()) return number.device();
    return at::kCPU;
  }

  static at::Tensor prepared(const at::Tensor& number, at::Device device) {
    const at::Tensor scalar = number.dim() == 0 ? number : number.reshape({});
    if (scalar.scalar_type() == at::kDouble && scalar.device() == device) return scalar;
    return scalar.detach().to(device, at::kDouble, /*non_blocking=*/true);
  }

  at::Tensor host_;  // [number of numbers], fp64
  std::optional<looptorch::detail::DeviceEvent> event_;
};

}  // namespace looptorch::report
