// SPDX-License-Identifier: MIT
// Provides an accelerator's streams through LibTorch's device-generic interface, the same with and without
// CUDA. On a CPU, which has no streams, these functions do nothing.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_event.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace looptorch::detail {

using MaybeStream = std::optional<c10::Stream>;

/// Returns the stream on which this thread computes on a device.
[[nodiscard]] inline MaybeStream current_stream(c10::Device device) {
  if (!is_accelerator(device)) return std::nullopt;
  return stream_of(device);
}

/// One stream for each device, taken from LibTorch's pool at its first use. Thread-safe.
class StreamOfEachDevice {
 public:
  [[nodiscard]] c10::Stream of(c10::Device device) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(device.index());
    if (found != streams_.end()) return found->second;
    return streams_.emplace(device.index(), stream_from_pool(device)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
};

/// Returns a device's stream for copies of offloaded activations, which run in parallel to its computation.
/// Batches have a stream of their own (data/batch/copy_stream.hpp).
[[nodiscard]] inline MaybeStream offload_stream(c10::Device device) {
  if (!is_accelerator(device)) return std::nullopt;
  static StreamOfEachDevice streams;
  return streams.of(device);
}

/// Marks the work submitted to a stream so far.
class StreamMark {
 public:
  explicit StreamMark(const MaybeStream& stream) {
    if (stream) event_.emplace(stream->device_type()).record(*stream);
  }
  /// Makes later work of `stream` wait for the marked work. The host does not wait.
  void delay(const MaybeStream& stream) const {
    if (event_ && stream) event_->block(*stream);
  }

 private:
  std::optional<DeviceEvent> event_;
};

/// Makes later work of `later` wait for the work submitted to `earlier` so far.
inline void order(const MaybeStream& earlier, const MaybeStream& later) {
  if (!earlier || !later || *earlier == *later) return;
  DeviceEvent event(earlier->device_type());
  event.record(*earlier);
  event.block(*later);
}

/// Makes a device current while it lives, as c10::DeviceGuard does, but creates no context on a device that
/// has none.
class CurrentDeviceScope {
 public:
  explicit CurrentDeviceScope(std::optional<c10::Device> device) {
    if (!device) return;
    previous_ = with_index(c10::Device(device->type()));
    set(*device);
  }
  ~CurrentDeviceScope() {
    if (previous_) set(*previous_);
  }
  CurrentDeviceScope(const CurrentDeviceScope&) = delete;
  CurrentDeviceScope& operator=(const CurrentDeviceScope&) = delete;

 private:
  static void set(c10::Device device) {
    c10::impl::VirtualGuardImpl(device.type()).uncheckedSetDevice(device);
  }
  std::optional<c10::Device> previous_;
};

/// Captures the current streams of some devices, and the current device of their type.
class StreamState {
 public:
  template <class Devices>
  explicit StreamState(const Devices& devices) {
    for (const c10::Device& device : devices)
      if (const MaybeStream stream = current_stream(device)) streams_.push_back(*stream);
    if (!streams_.empty()) device_ = with_index(c10::Device(streams_.front().device_type()));
  }

  /// Makes the captured streams current while it lives. They first wait for the streams that were current
  /// before; at the end, those streams wait for the captured ones.
  class Scope {
   public:
    explicit Scope(const StreamState& then) : then_(then), device_(then.device_) {
      for (const c10::Stream& stream : then.streams_) previous_.push_back(*current_stream(stream.device()));
      for (std::size_t i = 0; i < previous_.size(); ++i) order(previous_[i], then_.streams_[i]);
      streams_.emplace(then.streams_);
    }
    /// Ignores the errors of a device that has failed: the next operation on it reports them.
    ~Scope() {
      try {
        for (std::size_t i = 0; i < previous_.size(); ++i) order(then_.streams_[i], previous_[i]);
      } catch (...) {
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const StreamState& then_;
    CurrentDeviceScope device_;
    c10::SmallVector<c10::Stream, 2> previous_;
    std::optional<c10::MultiStreamGuard> streams_;
  };

 private:
  c10::SmallVector<c10::Stream, 2> streams_;
  std::optional<c10::Device> device_;
};

}  // namespace looptorch::detail
