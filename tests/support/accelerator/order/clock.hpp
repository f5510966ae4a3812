// SPDX-License-Identifier: MIT
// Vector clocks over the streams of all devices. A clock says for each stream how much of the stream's work
// is known to be over, as a number of operations.
#pragma once

#include "support/accelerator/accelerator.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace looptorch_test::accelerator {

inline constexpr int kStreamsPerDevice = 33;  // the default stream and a pool of 32, as CUDA has
inline constexpr int kStreams = kMaxDevices * kStreamsPerDevice;

using Time = std::uint64_t;

/// Streams are numbered through all devices.
[[nodiscard]] constexpr int stream_number(int device, int id) { return device * kStreamsPerDevice + id; }
[[nodiscard]] constexpr int device_of_stream(int stream) { return stream / kStreamsPerDevice; }
[[nodiscard]] inline std::string stream_name(int stream) {
  return "sim:" + std::to_string(device_of_stream(stream)) + " stream " +
         std::to_string(stream % kStreamsPerDevice);
}

/// For each stream, how much of its work is known to be over.
class Clock {
 public:
  [[nodiscard]] Time operator[](int stream) const { return times_[static_cast<std::size_t>(stream)]; }
  [[nodiscard]] bool covers(int stream, Time time) const { return (*this)[stream] >= time; }
  Time tick(int stream) { return ++times_[static_cast<std::size_t>(stream)]; }
  void join(const Clock& other) {
    for (std::size_t i = 0; i < times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::array<Time, kStreams> times_{};
};

/// What the host and each stream know.
class Timeline {
 public:
  [[nodiscard]] const Clock& host() const { return host_; }
  [[nodiscard]] const Clock& stream(int stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  [[nodiscard]] Clock device(int index) const {
    Clock all;
    for (int id = 0; id < kStreamsPerDevice; ++id) all.join(stream(stream_number(index, id)));
    return all;
  }

  /// Issues something to a stream, behind what the host knows to be over. Returns its time.
  Time tick(int stream) {
    Clock& clock = streams_[static_cast<std::size_t>(stream)];
    clock.join(host_);
    return clock.tick(stream);
  }
  /// Whatever is issued to `stream` from now on comes after `clock`.
  void stream_waits(int stream, const Clock& clock) {
    streams_[static_cast<std::size_t>(stream)].join(clock);
  }
  void host_waits(const Clock& clock) { host_.join(clock); }

 private:
  Clock host_;
  std::array<Clock, kStreams> streams_;
};

}  // namespace looptorch_test::accelerator
