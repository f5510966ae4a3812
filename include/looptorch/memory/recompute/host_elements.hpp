// SPDX-License-Identifier: MIT
// What a tensor's memory holds, in host memory, and the tensor made anew: of the same sizes, strides and
// bits, without more memory than its elements need.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/memory/recompute/geometry.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace looptorch::detail {

/// The elements of a tensor's memory, each once: all from the first to the last where there are no gaps.
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

/// The elements of a tensor in host memory, pinned if it is a GPU's. Copies do not wait for the device.
class HostElements {
 public:
  explicit HostElements(const at::Tensor& tensor) : geometry_(tensor), device_(tensor.device()) {
    const at::Tensor elements = elements_of(other_reading(tensor));
    const auto options = elements.options().device(at::kCPU).pinned_memory(is_accelerator(tensor.device()));
    host_ = at::empty(elements.sizes(), options).copy_(elements, /*non_blocking=*/true);
  }

  [[nodiscard]] at::Device device() const { return device_; }
  [[nodiscard]] at::IntArrayRef sizes() const { return geometry_.sizes; }

  /// Memory on the device for a tensor of the same sizes and strides, aligned alike.
  [[nodiscard]] at::Tensor room() const {
    constexpr std::int64_t kAlignment = 64;
    const std::int64_t offset = geometry_.offset % kAlignment;
    return at::empty({offset + geometry_.extent()}, host_.options().device(device_).pinned_memory(false))
        .as_strided(geometry_.sizes, geometry_.strides, offset);
  }
  void copy_to(const at::Tensor& room) const { elements_of(room).copy_(host_, /*non_blocking=*/true); }
  /// The tensor whose elements `room` holds.
  [[nodiscard]] at::Tensor in(const at::Tensor& room) const { return other_reading(room); }

 private:
  /// From what a tensor stands for to what its memory holds, and the other way round.
  [[nodiscard]] at::Tensor other_reading(const at::Tensor& tensor) const {
    const at::Tensor read = geometry_.is_conjugate ? tensor.conj() : tensor;
    return geometry_.is_negative ? read._neg_view() : read;
  }

  Geometry geometry_;
  at::Device device_;
  at::Tensor host_;
};

}  // namespace looptorch::detail
