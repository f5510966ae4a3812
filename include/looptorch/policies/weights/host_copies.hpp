// SPDX-License-Identifier: MIT
// Keeps copies of a device's tensors in host memory: HostBlock allocates the memory, and PendingCopies waits
// for copies that are under way. RestoreBest (host_weights.hpp) and AverageWeights (weight_averages.hpp) use
// both.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_event.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Host memory for copies of a device's tensors, in one block, since the allocator of pinned memory rounds
/// each to a power of two. Pageable if the system allows no more pinned memory.
class HostBlock {
 public:
  explicit HostBlock(std::int64_t bytes) {
    const at::TensorOptions options(at::kByte);
    try {
      bytes_ = at::empty({bytes}, options.pinned_memory(true));
    } catch (const c10::Error&) {
      bytes_ = at::empty({bytes}, options);
    }
  }

  /// Returns the bytes that a tensor takes in a block.
  [[nodiscard]] static std::int64_t size_of(const at::Tensor& tensor) {
    return (static_cast<std::int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  /// Returns the bytes that are not taken yet.
  [[nodiscard]] std::int64_t left() const { return bytes_.numel() - used_; }
  /// Returns an uninitialised tensor of the same shape, dtype and memory format, next in the block.
  [[nodiscard]] at::Tensor take_like(const at::Tensor& tensor) {
    const at::Tensor strides = at::empty_like(tensor, tensor.options().device(at::kMeta));
    const auto offset = used_ / static_cast<std::int64_t>(tensor.element_size());
    used_ += size_of(tensor);
    return at::empty({0}, at::TensorOptions(tensor.scalar_type()))
        .set_(bytes_.storage(), offset, tensor.sizes(), strides.strides());
  }

 private:
  static constexpr std::int64_t kAlignment = 64;
  at::Tensor bytes_;
  std::int64_t used_ = 0;
};

/// Copies to host memory that the devices' current streams have been given and may not have made yet.
class PendingCopies {
 public:
  /// Notes a copy from `device`; call `record` after the last.
  void add(c10::Device device) {
    for (const auto& [known, event] : events_)
      if (known == device) return;
    if (!device.is_cpu()) events_.emplace_back(device, DeviceEvent(device.type()));
  }
  /// Records all copies that the streams have been given so far.
  void record() {
    for (auto& [device, event] : events_) event.record(stream_of(device));
  }
  /// Waits for the recorded copies.
  void wait() {
    for (const auto& [device, event] : events_) event.synchronize();
    events_.clear();
  }
  /// Forgets the copies without a wait.
  void clear() { events_.clear(); }

 private:
  std::vector<std::pair<c10::Device, DeviceEvent>> events_;
};

}  // namespace looptorch::detail
