// SPDX-License-Identifier: MIT
// Copies a tensor's memory to the host, and restores the tensor with the same sizes, strides and bits. The
// copy takes no more memory than the tensor's elements need.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/memory/recompute/geometry.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace looptorch::detail {

/// Returns the elements of a tensor's memory, each once. Without gaps these are all from first to last.
[[nodiscard]] inline at::Tensor elements_of(const at::Tensor& tensor) {
  Geometry once(tensor);
  std::int64_t count = 1;
  for (std::size_t i = 0; i < once.sizes.size(); ++i) {
    if (once.strides[i] == 0) once.sizes[i] = std::min<std::int64_t>(once.sizes[i], 1);
    count *= once.sizes[i];
  }
  const std::int64_t extent = once.extent();
  return extent <= count ? tensor.as_strided({extent}, {1}) : tensor.as_strided(once.sizes, once.strides);
}

/// The elements of a tensor in host memory, pinned for a GPU's tensor. Copies do not wait for the device.
class HostElements {
 public:
  /// Throws UsageError while a graph is captured.
  explicit HostElements(const at::Tensor& tensor) : geometry_(tensor), device_(tensor.device()) {
    if (CaptureScope::is_open())
      throw UsageError("layers are moved to the host (CheckpointMode::offload), which no graph can hold");
    const at::Tensor elements = elements_of(reinterpreted(tensor));
    const auto options = elements.options().device(at::kCPU).pinned_memory(is_accelerator(tensor.device()));
    host_ = at::empty(elements.sizes(), options).copy_(elements, /*non_blocking=*/true);
  }

  [[nodiscard]] at::Device device() const { return device_; }
  [[nodiscard]] at::IntArrayRef sizes() const { return geometry_.sizes; }

  /// Allocates memory on the device for a tensor of the same sizes and strides and the same alignment.
  [[nodiscard]] at::Tensor allocate() const {
    constexpr std::int64_t kAlignment = 64;
    const std::int64_t offset = geometry_.offset % kAlignment;
    return at::empty({offset + geometry_.extent()}, host_.options().device(device_).pinned_memory(false))
        .as_strided(geometry_.sizes, geometry_.strides, offset);
  }
  void copy_to(const at::Tensor& memory) const { elements_of(memory).copy_(host_, /*non_blocking=*/true); }
  /// Returns the tensor whose elements `memory` holds.
  [[nodiscard]] at::Tensor view_in(const at::Tensor& memory) const { return reinterpreted(memory); }

 private:
  /// Converts between a tensor's values and those in its memory, in either direction.
  [[nodiscard]] at::Tensor reinterpreted(const at::Tensor& tensor) const {
    const at::Tensor read = geometry_.is_conjugate ? tensor.conj() : tensor;
    return geometry_.is_negative ? read._neg_view() : read;
  }

  Geometry geometry_;
  at::Device device_;
  at::Tensor host_;
};

}  // namespace looptorch::detail
