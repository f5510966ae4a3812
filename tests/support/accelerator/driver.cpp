// SPDX-License-Identifier: MIT
// Implements Driver, the state of the simulated accelerator: issues work to streams, waits for it, and keeps
// both copies of a device's memory.
#include "support/accelerator/driver.hpp"

#include "support/accelerator/graph/recording.hpp"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

thread_local int this_device = 0;
thread_local std::array<int, kMaxDevices> this_streams{};

}  // namespace

Driver& driver() {
  static Driver* const driver = [] {
    auto* const made = new Driver;
    if (const char* const seed = std::getenv("LOOPTORCH_DEVICE_SEED"))
      made->configure({.behind_host = true, .seed = std::strtoull(seed, nullptr, 10)});
    return made;
  }();
  return *driver;
}

void throw_error(const std::string& what) {
  constexpr std::int32_t kAssert = 710;  // cudaErrorAssert
  throw AcceleratorError({__func__, __FILE__, __LINE__}, kAssert, "CUDA error: " + what + " (simulated)");
}

int device_of(const void* address) {
  for (int i = 0; i < kMaxDevices; ++i)
    if (driver().device(i).arena.contains(address)) return i;
  return -1;
}

int& current_device() { return this_device; }
int& current_stream_id(int device) { return this_streams.at(static_cast<std::size_t>(device)); }

void Driver::use(int index) {
  if (std::exchange(device(index).used, true)) return;
  ++ledger.counts.contexts;
}

void Driver::check(int index) const {
  const std::string& error = devices.at(static_cast<std::size_t>(index)).error;
  if (!error.empty()) throw_error(error);
}

void Driver::fail(int index, const std::string& why) {
  if (device(index).error.empty()) device(index).error = "device-side assert triggered: " + why;
}

// ---- Order ----

Time Driver::tick(int stream) {
  use(device_of_stream(stream));
  return timeline.tick(stream);
}

void Driver::settle(int stream) {
  if (!options.behind_host) queue.run_until(timeline.stream(stream));
}

void Driver::run_late(int stream, Time time, std::function<void()> run) {
  if (!options.behind_host) return;
  queue.push({stream, time, timeline.stream(stream), [this, stream, run = std::move(run)] {
                const int index = device_of_stream(stream);
                if (!device(index).error.empty()) return;
                try {
                  run();
                } catch (const c10::Error& error) {
                  fail(index, error.what_without_backtrace());
                } catch (const std::exception& error) {
                  fail(index, error.what());
                }
              }});
  queue.run_some();
}

void Driver::issue(int stream, Time time, std::function<void(Copy)> work) {
  settle(stream);
  work(Copy::issued);
  if (options.behind_host) run_late(stream, time, [work = std::move(work)] { work(Copy::late); });
}

void Driver::host_waits(const Clock& clock) {
  queue.run_until(clock);
  transfers.arrive(clock);
  timeline.host_waits(clock);
}

void Driver::wait(Wait kind, const std::string& what, int index, const Clock& clock) {
  refuse_in_recording(index, what.c_str());
  ledger.wait(kind, what);
  check(index);
  host_waits(Clock(clock));  // `clock` may be the timeline's own
  check(index);
}

void Driver::begin_launch(int index, const std::string& what, std::int64_t on_cuda) {
  use(index);
  check(index);
  ++ledger.counts.launches;
  ledger.counts.cuda_launches += on_cuda;
  if (++launches_ == options.fail_launch_at)
    throw_error("too many resources requested for launch of " + what);
}

void Driver::count_kernel(int stream, Time time) {
  ++ledger.counts.kernels;
  DeviceState& state = device(device_of_stream(stream));
  ++state.kernels;
  state.newest_kernels[static_cast<std::size_t>(stream)] = time;
  for (const DeviceState::Issued& copy : std::exchange(state.copies, {}))
    ledger.counts.copies_passed += !timeline.stream(stream).covers(copy.stream, copy.time);
}

void Driver::count_copy(int stream, Time time) {
  DeviceState& state = device(device_of_stream(stream));
  bool is_beside = false;
  for (int other = 0; other < kStreams; ++other)
    is_beside = is_beside ||
                !timeline.stream(stream).covers(other, state.newest_kernels[static_cast<std::size_t>(other)]);
  ledger.counts.copies_beside += is_beside;
  state.copies.push_back({stream, time});
}

void Driver::access(int stream, Time time, const char* begin, std::size_t bytes, bool writes,
                    const std::string* what) {
  if (bytes == 0) return;
  Block* const block = find(begin);
  if (!block || !block->live)
    return ledger.violation(*what + " on " + stream_name(stream) + " uses memory that was freed");
  const auto report = [&](const Access& before) {
    ledger.violation(*what + " on " + stream_name(stream) + (writes ? " writes" : " reads") + " what " +
                     *before.what + " on " + stream_name(before.stream) +
                     (before.writes ? " writes" : " reads") + ", and does not wait for it");
  };
  block->accesses.add({begin, begin + bytes, stream, time, writes, what}, timeline.stream(stream),
                      timeline.host(), report);
}

// ---- Configuration ----

void Driver::finish_all() {
  for (int i = 0; i < kMaxDevices; ++i) host_waits(timeline.device(i));
  queue.run_all();  // what was freed
  for (DeviceState& state : devices) reclaim(state);
}

/// The copy that was not the truth gets what it needs to be it. The issued copy of a block without a tensor
/// is poison at any time.
void Driver::change_truth(Block& block) {
  const bool to_late = options.behind_host;
  char *const issued = in(Copy::issued, block.data), *const late = in(Copy::late, block.data);
  if (block.live) {
    to_late ? std::memcpy(late, issued, block.size) : std::memcpy(issued, late, block.size);
    block.late_is_poison = false;
  } else if (to_late && !block.late_is_poison) {
    poison(late, block.size);
    block.late_is_poison = true;
  }
}

void Driver::configure(const Options& next) {
  TORCH_CHECK(next.devices >= 0 && next.devices <= kMaxDevices, "sim: ", next.devices, " devices; ",
              kMaxDevices, " is the most");
  finish_all();
  const Copy before = truth();
  options = next;
  allocations_ = pinnings_ = launches_ = kernels_ = 0;
  queue.take_order_from(next.behind_host ? std::optional(next.seed) : std::nullopt);
  for (int i = 0; i < kMaxDevices; ++i) {
    DeviceState& state = device(i);
    state.error.clear();
    state.pool.cap(next.cap_bytes);
    state.used = false;
    state.pool.each_block([&](Block& block) {
      state.used = state.used || block.live;
      if (truth() != before) change_truth(block);
    });
    if (next.contexts_created && i < next.devices) use(i);
  }
}

}  // namespace looptorch_test::accelerator
