// SPDX-License-Identifier: MIT
// Implements accelerator.hpp, the interface for tests: configures the simulated devices, and counts waits and
// violations on all of them.
#include "support/accelerator/accelerator.hpp"

#include "support/accelerator/driver.hpp"
#include "support/accelerator/memory/traps.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <utility>

namespace looptorch_test::accelerator {

namespace {

/// Adds the traps that the host touched, which a signal handler cannot.
std::vector<std::string>& all_violations() {
  for (int touches = take_touches(); touches > 0; --touches)
    driver().ledger.violation("the host touched pinned memory that the device was still copying to");
  return driver().ledger.violations;
}

}  // namespace

void configure(const Options& options) {
  const Lock lock(driver().mutex);
  driver().configure(options);
}
Options options() {
  const Lock lock(driver().mutex);
  return driver().options;
}

Counts counts() {
  const Lock lock(driver().mutex);
  return driver().ledger.counts;
}

CountWaits::CountWaits() {
  const Lock lock(driver().mutex);
  before_ = driver().ledger.counts;
  waits_before_ = driver().ledger.waits.size();
  operators_before_ = driver().ledger.operators;
}
std::vector<std::string> CountWaits::waits() const {
  const Lock lock(driver().mutex);
  const auto& all = driver().ledger.waits;
  return {all.begin() + static_cast<std::ptrdiff_t>(waits_before_), all.end()};
}
std::map<std::string, std::int64_t> CountWaits::operators() const {
  const Lock lock(driver().mutex);
  auto all = driver().ledger.operators;
  for (const auto& [name, count] : operators_before_) all[name] -= count;
  std::erase_if(all, [](const auto& entry) { return entry.second == 0; });
  return all;
}

NoWaits::NoWaits(Events events) : refuses_events_(events == Events::refused) {
  const Lock lock(driver().mutex);
  ++driver().ledger.waits_refused;
  driver().ledger.event_waits_refused += refuses_events_;
}
NoWaits::~NoWaits() {
  const Lock lock(driver().mutex);
  --driver().ledger.waits_refused;
  driver().ledger.event_waits_refused -= refuses_events_;
}

std::vector<std::string> violations() {
  const Lock lock(driver().mutex);
  return all_violations();
}
std::vector<std::string> take_violations() {
  const Lock lock(driver().mutex);
  return std::exchange(all_violations(), {});
}

void synchronize(c10::Device device) {
  c10::impl::getDeviceGuardImpl(kDeviceType)->synchronizeDevice(device.index());
}
void finish_all() {
  const Lock lock(driver().mutex);
  driver().finish_all();
}

std::int64_t allocated_bytes(int device) {
  const Lock lock(driver().mutex);
  return driver().device(device).pool.stats().allocated_bytes[0].current;
}
std::int64_t pinned_bytes() {
  const Lock lock(driver().mutex);
  return driver().pinned.bytes_in_use();
}
void* readable(const void* device_pointer) {
  const Lock lock(driver().mutex);
  return driver().real(device_pointer);
}

}  // namespace looptorch_test::accelerator
