// SPDX-License-Identifier: MIT
// Updates parameters of an accelerator on the host, part by part: while one is computed, the next one arrives
// and the last one leaves, by copies on a stream of their own through pinned memory.
#pragma once

#include <looptorch/base/device/accelerator.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the elements as they lie in memory, which has no gaps.
[[nodiscard]] inline at::Tensor in_memory_order(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

class HostPipeline {
 public:
  /// Elements [begin, begin + length) of a parameter's memory.
  struct Part {
    std::size_t parameter;
    std::int64_t begin, length;
    [[nodiscard]] at::Tensor of(const at::Tensor& whole) const {
      return in_memory_order(whole).narrow(0, begin, length);
    }
  };

  /// Copies wait for what the device's current stream was given so far.
  explicit HostPipeline(c10::Device device) : device_(with_index(device)), copies_(stream()) {
    order(stream_of(device_), copies_);
  }

  /// Calls `update(part, weight, gradient)` for each part with copies on the host, and copies the weight
  /// back. The device's current stream waits for the last of them; the host does not.
  template <class Update>
  void run(const std::vector<Part>& parts, const std::vector<at::Tensor>& parameters,
           const std::vector<at::Tensor>& gradients, Update&& update) {
    const auto fetched = [&](std::size_t i) {
      const c10::StreamGuard on_copy_stream(copies_);
      Fetched part{to_host(parts[i].of(parameters[parts[i].parameter])),
                   to_host(parts[i].of(gradients[parts[i].parameter])), c10::Event(device_.type())};
      part.arrived.record(copies_);
      return part;
    };
    std::optional<Fetched> next;
    if (!parts.empty()) next.emplace(fetched(0));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Fetched now = std::move(*next);
      if (i + 1 < parts.size()) next.emplace(fetched(i + 1));
      now.arrived.synchronize();
      update(parts[i], now.weight, now.gradient);
      const c10::StreamGuard on_copy_stream(copies_);
      parts[i].of(parameters[parts[i].parameter]).copy_(now.weight, /*non_blocking=*/true);
    }
    order(copies_, stream_of(device_));
  }

 private:
  struct Fetched {
    at::Tensor weight, gradient;
    c10::Event arrived;
  };

  [[nodiscard]] static at::Tensor to_host(const at::Tensor& part) {
    return at::empty_like(part, at::TensorOptions(at::kCPU).dtype(part.scalar_type()).pinned_memory(true))
        .copy_(part, /*non_blocking=*/true);
  }
  /// Lets what `second` is given from now on wait for what `first` was given.
  void order(c10::Stream first, c10::Stream second) const {
    c10::Event event(device_.type());
    event.record(first);
    event.block(second);
  }
  /// Returns this thread's stream for such copies.
  [[nodiscard]] c10::Stream stream() const {
    thread_local std::map<c10::DeviceIndex, c10::Stream> streams;
    const auto found = streams.find(device_.index());
    if (found != streams.end()) return found->second;
    return streams.emplace(device_.index(), stream_from_pool(device_)).first->second;
  }

  c10::Device device_;
  c10::Stream copies_;
};

}  // namespace looptorch::detail
