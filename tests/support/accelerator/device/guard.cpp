// SPDX-License-Identifier: MIT
// Implements LibTorch's guards for the simulated accelerator: devices, streams and events.
#include "support/accelerator/driver.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

/// A thread's waits that left a device idle, and how many kernels of each device the last one covered.
struct IdlingWaits {
  std::int64_t count = 0;
  std::array<std::int64_t, kMaxDevices> covered{};

  void add(int device, std::int64_t recorded, std::int64_t issued) {
    std::int64_t& last = covered.at(static_cast<std::size_t>(device));
    if (issued - recorded < kBusyKernels && recorded - last >= kBusyKernels) ++count;
    last = recorded;
  }
};
thread_local IdlingWaits idling_waits;

/// Makes a device current for a call on an event, and then the former one. CUDA's guard has no unchecked way
/// back here: it creates a context where there is none.
class ThereAndBack {
 public:
  explicit ThereAndBack(int there) : before_(current_device()) { go_to(there); }
  ~ThereAndBack() { go_to(before_); }
  ThereAndBack(const ThereAndBack&) = delete;
  ThereAndBack& operator=(const ThereAndBack&) = delete;

 private:
  static void go_to(int index) {
    if (std::exchange(current_device(), index) == index) return;
    const Lock lock(driver().mutex);
    driver().use(index);
  }
  int before_;
};

struct Event {
  Clock clock;
  int stream = 0;
  std::int64_t kernels = 0;  // of the device, when it was recorded
  bool queried = false;

  [[nodiscard]] bool is_over(const Clock& host) const { return host.covers(stream, clock[stream]); }
};

int number_of(const c10::Stream& stream) {
  return stream_number(stream.device_index(), static_cast<int>(stream.id()));
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static int checked(c10::Device device) {
    TORCH_CHECK(device.type() == kDeviceType && device.index() < driver().options.devices,
                "CUDA error: invalid device ordinal: ", device);
    return device.has_index() ? device.index() : current_device();
  }
  static c10::Stream stream_of(int index, int id) {
    return c10::Stream(c10::Stream::UNSAFE, accelerator::device(index), id);
  }

  c10::DeviceType type() const override { return kDeviceType; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(driver().options.devices);
  }
  c10::Device getDevice() const override { return accelerator::device(current_device()); }
  void setDevice(c10::Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_device() = device.index();
  }
  /// Creates a context where the device changes, as CUDA 12 does. The way back, unchecked, creates none.
  c10::Device exchangeDevice(c10::Device device) const override {
    const int index = checked(device);
    if (index != current_device()) {
      const Lock lock(driver().mutex);
      driver().use(index);
    }
    return accelerator::device(std::exchange(current_device(), index));
  }

  // ---- Streams ----

  c10::Stream getStream(c10::Device device) const override {
    const int index = checked(device);
    return stream_of(index, current_stream_id(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(checked(device), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    const Lock lock(driver().mutex);
    const int index = checked(device);
    driver().use(index);
    constexpr int kPool = kStreamsPerDevice - 1;
    return stream_of(index, 1 + driver().device(index).streams_given++ % kPool);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const int index = checked(next.device());
    return stream_of(index, std::exchange(current_stream_id(index), static_cast<int>(next.id())));
  }
  bool queryStream(const c10::Stream& stream) const override {
    const Lock lock(driver().mutex);
    ++driver().ledger.counts.event_queries;
    driver().check(stream.device_index());
    const int number = number_of(stream);
    const Clock clock = driver().timeline.stream(number);
    if (driver().options.behind_host) return advance(clock);
    return driver().timeline.host().covers(number, clock[number]);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const Lock lock(driver().mutex);
    driver().wait(Wait::stream, "synchronizeStream", stream.device_index(),
                  driver().timeline.stream(number_of(stream)));
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    const Lock lock(driver().mutex);
    const int device = index < 0 ? current_device() : index;
    const ThereAndBack current(device);
    driver().wait(Wait::device, "synchronizeDevice", device, driver().timeline.device(device));
  }

  // ---- Events ----

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "Event device index ", index,
                " does not match recording stream's device index ", stream.device_index());
    const Lock lock(driver().mutex);
    const ThereAndBack current(stream.device_index());
    driver().check(stream.device_index());
    if (!*event) *event = new Event;
    const int number = number_of(stream);
    driver().tick(number);
    *static_cast<Event*>(*event) = Event{driver().timeline.stream(number), number,
                                         driver().device(stream.device_index()).kernels, false};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    const Lock lock(driver().mutex);
    const ThereAndBack current(stream.device_index());
    driver().check(stream.device_index());
    driver().timeline.stream_waits(number_of(stream), static_cast<Event*>(event)->clock);
  }
  /// An event is over at the second query at the latest; behind the host, when the queues have run so far.
  bool queryEvent(void* event) const override {
    if (!event) return true;
    const Lock lock(driver().mutex);
    auto& queried = *static_cast<Event*>(event);
    ++driver().ledger.counts.event_queries;
    driver().check(device_of_stream(queried.stream));
    if (queried.is_over(driver().timeline.host())) return true;
    if (driver().options.behind_host) return advance(queried.clock);
    if (!std::exchange(queried.queried, true)) return false;
    driver().host_waits(queried.clock);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    const Lock lock(driver().mutex);
    const Event& waited = *static_cast<const Event*>(event);
    const int device = device_of_stream(waited.stream);
    const bool waits = !waited.is_over(driver().timeline.host());
    const std::int64_t issued = driver().device(device).kernels;
    if (waits) idling_waits.add(device, waited.kernels, issued);
    const bool stalls = waits && issued == waited.kernels;
    if (stalls) ++driver().ledger.counts.stall_waits;
    driver().wait(Wait::event, stalls ? "synchronizeEvent (stalls)" : "synchronizeEvent", device,
                  waited.clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex index) const noexcept override {
    if (!event) return;
    const ThereAndBack current(index);
    delete static_cast<Event*>(event);
  }
  /// 10 us a kernel.
  double elapsedTime(void* first, void* second, const c10::DeviceIndex index) const override {
    const Lock lock(driver().mutex);
    const ThereAndBack current(index);
    return static_cast<double>(static_cast<Event*>(second)->kernels - static_cast<Event*>(first)->kernels) *
           1e-2;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    const Lock lock(driver().mutex);
    if (Block* const block = driver().find(data.get()))
      block->recorded.set(static_cast<std::size_t>(number_of(stream)));
  }

 private:
  /// A query lets the queues run a little. Returns true if what `clock` covers is over.
  static bool advance(const Clock& clock) {
    driver().queue.run_one();
    if (driver().queue.holds(clock)) return false;
    driver().host_waits(clock);
    return true;
  }
};

const c10::impl::DeviceGuardImplRegistrar registered(kDeviceType, new Guard);

}  // namespace

std::int64_t idling_event_waits() { return idling_waits.count; }

}  // namespace looptorch_test::accelerator
