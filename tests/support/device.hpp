// SPDX-License-Identifier: MIT
// The device under test: the simulated accelerator, or CUDA with LOOPTORCH_TEST_DEVICE=cuda in the
// environment. A case begins with `if (!has_device()) return;`. A case about CUDA alone begins with `if
// (!has_cuda()) return;` and has the tag [cuda]. Without the device these functions print a message by which
// ctest reports the test as skipped.
#pragma once

#include "support/catch.hpp"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Device.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#if __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDAFunctions.h>
#endif

#include "support/accelerator/accelerator.hpp"

namespace looptorch::testing {

/// True if the tests run on the simulated accelerator.
[[nodiscard]] inline bool is_simulated() {
  const char* chosen = std::getenv("LOOPTORCH_TEST_DEVICE");
  return !chosen || std::string_view(chosen) != "cuda";
}

[[nodiscard]] inline bool has_cuda() {
  if (!is_simulated() && at::hasCUDA()) return true;
  WARN("skipped: no CUDA device");
  return false;
}

[[nodiscard]] inline bool has_device(c10::DeviceIndex index = 0) {
  if (is_simulated() || at::accelerator::deviceCount() > index) return true;
  WARN("skipped: no CUDA device" << (index > 0 ? " beside another" : ""));
  return false;
}

/// Returns a device under test.
[[nodiscard]] inline at::Device test_device(c10::DeviceIndex index = 0) {
  return {is_simulated() ? at::kPrivateUse1 : at::kCUDA, index};
}

/// Returns how far results may be from the CPU's: not at all on the simulated device, whose kernels are the
/// CPU's.
[[nodiscard]] inline double tolerance(double on_cuda) { return is_simulated() ? 0.0 : on_cuda; }

/// Waits until the current device under test has done all its work.
inline void synchronize() { at::accelerator::synchronizeDevice(at::accelerator::getDeviceIndex()); }

/// While it lives, an operation that waits for the device throws.
class NoWaits {
 public:
  NoWaits() {
    if (is_simulated()) simulated_ = std::make_unique<looptorch_test::accelerator::NoWaits>();
    set_debug(true);
  }
  ~NoWaits() { set_debug(false); }
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  void set_debug([[maybe_unused]] bool on) {
#if __has_include(<cuda_runtime_api.h>)
    using Mode = c10::cuda::SyncDebugMode;
    if (!is_simulated())
      c10::cuda::warning_state().set_sync_debug_mode(on ? Mode::L_ERROR : Mode::L_DISABLED);
#endif
  }

  std::unique_ptr<looptorch_test::accelerator::NoWaits> simulated_;
};

}  // namespace looptorch::testing
