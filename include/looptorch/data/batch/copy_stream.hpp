// SPDX-License-Identifier: MIT
// Copies from host memory to an accelerator on a separate stream, in parallel with the computation. LibTorch
// learns of each copy: its pool of pinned memory reuses a block only after the copy is done, and the device's
// allocator tracks the streams that use a tensor.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_event.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <map>
#include <vector>

namespace looptorch::detail {

/// Says whether an asynchronous copy may read the caller's pinned memory directly.
enum class PinnedSource {
  in_place,  ///< Read directly: it is not written to before the copy is done.
  staged,    ///< Copied on the host first, as pageable memory is: the caller may refill it at once.
};

/// The copies of one batch.
class CopyStream {
 public:
  CopyStream(at::Device device, PinnedSource pinned) : device_(device), pinned_(pinned) {}
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  at::Tensor copy(const at::Tensor& tensor) {
    if (!is_accelerator(device_) || !tensor.is_cpu() || tensor.layout() != at::kStrided)
      return tensor.to(device_);
    const at::Tensor source = readable_later(tensor);
    const c10::StreamGuard on_copy_stream(stream());
    return copies_.emplace_back(source.to(device_, /*non_blocking=*/true));
  }

  /// Makes the device's current stream wait for the copies, and records that it uses them.
  void hand_over() {
    if (copies_.empty()) return;
    const c10::Stream current = stream_of(copies_.front().device());
    DeviceEvent copied(device_.type());
    copied.record(stream());
    copied.block(current);
    for (const at::Tensor& copy : copies_) copy.record_stream(current);
  }

 private:
  /// Returns the tensor itself, or its copy in a pinned block that the pool keeps until the device has read
  /// it.
  [[nodiscard]] at::Tensor readable_later(const at::Tensor& tensor) const {
    if (pinned_ == PinnedSource::in_place && tensor.is_pinned()) return tensor;
    return at::empty_like(tensor, tensor.options().pinned_memory(true)).copy_(tensor);
  }

  /// Returns this thread's stream for copies of batches. All batches share it: copies side by side would
  /// only divide the bandwidth.
  c10::Stream stream() {
    thread_local std::map<c10::DeviceIndex, c10::Stream> streams;
    const at::Device device = with_index(device_);
    const auto found = streams.find(device.index());
    if (found != streams.end()) return found->second;
    return streams.emplace(device.index(), stream_from_pool(device)).first->second;
  }

  const at::Device device_;
  const PinnedSource pinned_;
  std::vector<at::Tensor> copies_;
};

}  // namespace looptorch::detail
