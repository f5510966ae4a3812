// SPDX-License-Identifier: MIT
// Offloads a device's tensor to pinned host memory until backward needs it. Copies run on a stream of their
// own, parallel to the computation. The computation seldom waits for them: the last few copied tensors stay
// on the device, and the next few that backward will need are prefetched.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/capture_scope.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/memory/ambient/streams.hpp>
#include <looptorch/memory/recompute/geometry.hpp>
#include <looptorch/memory/recompute/saved_tensor_holder.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace looptorch::detail {

/// Returns a view that has each element of the tensor's memory once: dimensions that were expanded have size
/// 1. If the tensor uses all memory from its first element to its last, the view is one-dimensional.
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

/// An offloaded tensor: its copy on the host and, near its use, the one on the device. Made by the hooks of
/// offload.hpp for each tensor that autograd saves, in the order of saving, which `fetch_ahead` walks back.
class HostCopy {
  struct Key {};

  /// Calls `f` with the copy stream as the current one, ordered after the computation so far.
  template <class F>
  auto on_copy_stream(F&& f) const {
    order(used_on_, copies_);
    const c10::OptionalStreamGuard guard(copies_);
    return f();
  }

 public:
  /// How many recently copied tensors stay on their devices, and how many are prefetched.
  static constexpr std::size_t kNear = 4;

  [[nodiscard]] static std::shared_ptr<HostCopy> make(const at::Tensor& tensor) {
    Traffic& traffic = HostCopy::traffic();
    const std::lock_guard lock(traffic.mutex);
    auto copy = std::make_shared<HostCopy>(Key(), tensor);
    copy->previous_ = std::exchange(traffic.last, copy);
    traffic.leaving.push(copy);
    return copy;
  }
  HostCopy(Key, const at::Tensor& tensor)
      : saved_(tensor),
        on_device_(tensor.detach()),
        used_on_(current_stream(tensor.device())),
        copies_(offload_stream(tensor.device())),
        elements_(on_copy_stream([&] { return HostElements(on_device_); })),
        copied_(copies_) {}
  ~HostCopy() { release(); }
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  /// Returns the tensor on its device, for use on the current stream. Throws CheckpointError if it was
  /// changed in place since it was saved, when its copy may have been under way.
  [[nodiscard]] at::Tensor fetch_back(std::string_view block) {
    Traffic& traffic = HostCopy::traffic();
    const std::lock_guard lock(traffic.mutex);
    check_unchanged(saved_, elements_.sizes(), block);
    fetch_now(traffic);
    at::Tensor tensor = is_copy_ ? hand_over() : on_device_;
    requested_in_ = torch::autograd::get_current_graph_task_id();
    fetch_ahead(traffic);
    return tensor;
  }

 private:
  /// Keeps the last few tensors of a kind on the device and releases those before them.
  class Recent {
   public:
    /// Releases all of them; false if there were none.
    bool clear() {
      bool any = false;
      for (const auto& each : copies_)
        if (const auto copy = each.lock(); copy && copy->on_device_.defined()) {
          copy->release();
          any = true;
        }
      copies_.clear();
      return any;
    }
    void push(const std::shared_ptr<HostCopy>& copy) {
      copies_.push_back(copy);
      if (copies_.size() <= kNear) return;
      if (const auto first = copies_.front().lock()) first->release();
      copies_.pop_front();
    }

   private:
    std::deque<std::weak_ptr<HostCopy>> copies_;
  };
  struct Traffic {
    std::mutex mutex;
    Recent leaving, arriving;
    std::weak_ptr<HostCopy> last;
  };
  static Traffic& traffic() {
    static Traffic traffic;
    return traffic;
  }

  /// Releases the device memory once the copy is done. If the device has failed there is nothing to wait for;
  /// the next operation reports it, and a destructor must not throw.
  void release() noexcept {
    if (!on_device_.defined()) return;
    try {
      copied_.delay(used_on_);
    } catch (...) {
    }
    on_device_ = at::Tensor();
  }

  /// Fetches the tensor. If memory runs out, first releases tensors that were prefetched or not yet
  /// offloaded.
  void fetch_now(Traffic& traffic) try { fetch(); } catch (const c10::OutOfMemoryError&) {
    const bool arrived = traffic.arriving.clear(), left = traffic.leaving.clear();
    if (!arrived && !left) throw;
    fetch();
  }

  void fetch() {
    if (on_device_.defined()) return;
    used_on_ = current_stream(elements_.device());
    const at::Tensor memory = elements_.allocate();
    on_copy_stream([&] { elements_.copy_to(memory); });
    copied_ = StreamMark(copies_);
    on_device_ = elements_.view_in(memory);
    is_copy_ = true;
  }

  /// Returns the tensor for the current stream, which waits until it has arrived.
  [[nodiscard]] at::Tensor hand_over() {
    const MaybeStream now = current_stream(elements_.device());
    copied_.delay(now);
    if (now != used_on_) on_device_.record_stream(*now);
    return std::exchange(on_device_, at::Tensor());
  }

  /// Prefetches the tensors saved before this one, which backward usually needs next. If memory runs out,
  /// they are fetched when needed.
  void fetch_ahead(Traffic& traffic) const try {
    auto next = previous_.lock();
    for (std::size_t i = 0; next && i < kNear; ++i, next = next->previous_.lock()) {
      if (next->on_device_.defined() || next->requested_in_ == requested_in_) continue;
      next->fetch();
      traffic.arriving.push(next);
    }
  } catch (const c10::OutOfMemoryError&) {
  }

  SavedVersion saved_;
  at::Tensor on_device_;  ///< Undefined if only the host has it.
  MaybeStream used_on_, copies_;
  HostElements elements_;
  StreamMark copied_;  ///< The last copy, to the host or back.
  bool is_copy_ = false;
  std::optional<int> requested_in_;  ///< The last pass of backward that requested it.
  std::weak_ptr<HostCopy> previous_;
};

}  // namespace looptorch::detail
