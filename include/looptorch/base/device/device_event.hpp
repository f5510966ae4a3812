// SPDX-License-Identifier: MIT
// Wraps c10::Event, which marks a position in a stream's work, so that its calls touch no other device.
// c10::Event itself switches to its stream's device and then back to the device that was current. On CUDA,
// switching back creates a context on that device even if the run does not use it: this takes hundreds of
// megabytes of its memory, and fails if another process has the device to itself.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <utility>

namespace looptorch::detail {

/// Marks a position in a stream's work. Belongs to the device that first records it.
class DeviceEvent {
 public:
  explicit DeviceEvent(c10::DeviceType type) : event_(type) {}
  DeviceEvent(DeviceEvent&&) noexcept = default;
  DeviceEvent& operator=(DeviceEvent&&) noexcept = default;
  ~DeviceEvent() {
    if (!event_.eventId()) return;
    std::optional<c10::DeviceGuard> guard;
    try {
      guard.emplace(c10::Device(event_.device_type(), event_.device_index()));
    } catch (...) {  // a device that has failed, and whose failure was reported
    }
    const c10::Event destroyed_before_guard = std::move(event_);
  }

  /// Marks the work submitted to a stream so far.
  void record(const c10::Stream& stream) {
    const c10::DeviceGuard guard(stream.device());
    event_.record(stream);
  }
  /// Makes later work of a stream wait for the marked work. The host does not wait.
  void block(const c10::Stream& stream) const {
    const c10::DeviceGuard guard(stream.device());
    event_.block(stream);
  }
  /// Blocks until the marked work is done.
  void synchronize() const { event_.synchronize(); }
  /// True if the marked work is done. Never waits.
  [[nodiscard]] bool query() const { return event_.query(); }

  /// True if streams of `device` can record it.
  [[nodiscard]] bool fits(c10::Device device) const {
    return event_.device_type() == device.type() &&
           (!event_.was_marked_for_recording() || event_.device_index() == device.index());
  }

 private:
  c10::Event event_;
};

}  // namespace looptorch::detail
