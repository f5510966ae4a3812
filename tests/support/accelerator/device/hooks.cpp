// SPDX-License-Identifier: MIT
// Implements LibTorch's hooks for an accelerator: contexts, pinned memory, generators. Registers the backend.
#include "support/accelerator/device/allocators.hpp"
#include "support/accelerator/device/generator.hpp"
#include "support/accelerator/driver.hpp"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return driver().options.devices > 0; }
  void init() const override {}
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    const Lock lock(driver().mutex);
    return driver().device(device < 0 ? current_device() : device).used;
  }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(driver().options.devices);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchangeDevice(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return c10::impl::getDeviceGuardImpl(kDeviceType)->exchangeDevice({kDeviceType, device}).index();
  }
  /// Creates no context.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(current_device(), device));
  }

  bool isPinnedPtr(const void* data) const override {
    const Lock lock(driver().mutex);
    return driver().pinned.find(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  c10::Device getDeviceFromPtr(void* data) const override { return accelerator::device(device_of(data)); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return make_generator(device); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    grow(*storage.unsafeGetStorageImpl(), bytes, storage.device());
  }
};

/// Leaves LibTorch to CUDA if the environment says LOOPTORCH_TEST_DEVICE=cuda: a process has one accelerator.
const bool backend_registered = [] {
  const char* const chosen = std::getenv("LOOPTORCH_TEST_DEVICE");
  if (chosen && std::string_view(chosen) == "cuda") return false;
  c10::register_privateuse1_backend("sim");
  c10::SetAllocator(kDeviceType, &device_memory());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  handle_signals();
  return true;
}();

}  // namespace

}  // namespace looptorch_test::accelerator
