// SPDX-License-Identifier: MIT
// Copies a number from a device to the host without a wait. `take` returns the number, and waits only if it
// has not arrived yet; usually it has.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_event.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <utility>

namespace looptorch::detail {

/// An asynchronous copy of one 0-dim tensor at a time.
class Readback {
 public:
  /// Copies the current `value`, in the order of its device's current stream.
  void start(const at::Tensor& value) {
    if (value.is_cpu()) return start(number_in(value));
    under_way_ = true;
    start_on_device(value);
  }

  /// Stores a number that the host knows already.
  void start(double number) {
    under_way_ = true;
    on_device_ = false;
    number_ = number;
  }

  [[nodiscard]] bool under_way() const { return under_way_; }
  /// True if `take` would not wait.
  [[nodiscard]] bool is_known() const { return under_way_ && !on_device_; }
  /// Returns the number. Call only if `is_known()`.
  [[nodiscard]] double known() const { return number_; }
  /// Discards the copy that is under way.
  void drop() { under_way_ = on_device_ = false; }

  /// Waits for the copy and returns its number. Afterwards nothing is under way.
  double take() {
    under_way_ = false;
    if (std::exchange(on_device_, false)) {
      arrived_->synchronize();
      number_ = number_in(host_);
    }
    return number_;
  }

 private:
  /// Returns the number in a host tensor. Calls no operator for the usual types.
  static double number_in(const at::Tensor& host) {
    if (host.scalar_type() == at::kBool) return *host.const_data_ptr<bool>();
    if (host.scalar_type() == at::kFloat) return *host.const_data_ptr<float>();
    if (host.scalar_type() == at::kDouble) return *host.const_data_ptr<double>();
    return host.item<double>();
  }

  void start_on_device(const at::Tensor& value) {
    if (!host_.defined() || host_.scalar_type() != value.scalar_type())
      host_ = at::empty({}, at::TensorOptions(value.scalar_type()).pinned_memory(true));
    if (!arrived_ || !arrived_->fits(value.device())) arrived_.emplace(value.device().type());
    begin_copy_to_host(host_, value.dim() == 0 ? value : value.reshape({}));
    arrived_->record(stream_of(value.device()));
    on_device_ = true;
  }

  bool under_way_ = false;
  bool on_device_ = false;
  double number_ = 0;
  at::Tensor host_;
  std::optional<DeviceEvent> arrived_;
};

}  // namespace looptorch::detail
