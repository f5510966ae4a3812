// SPDX-License-Identifier: MIT
// Asks LibTorch which CUDA it was built with, and NVIDIA's driver which cards there are. Needs nothing of
// CUDA to compile or to link, and makes no context on a card.
#pragma once

#include <looptorch/app/cuda_device.hpp>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace looptorch::app {

/// What `choose_device` decides on. A part is empty where there is no CUDA in LibTorch, or no driver.
struct CudaFacts {
  std::optional<CudaBuild> build;
  std::optional<CudaMachine> machine;
};

/// Returns the facts. A test puts a function of its own in its place.
using CudaQuery = std::function<CudaFacts()>;

namespace detail {

/// Returns the version of the CUDA runtime that LibTorch has loaded, or 0 if there is none. Asks the runtime
/// itself: LibTorch's hooks throw under a driver that is too old.
inline int cuda_runtime_version() {
  int version = 0;
  void* const found = ::dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
  return found && reinterpret_cast<int (*)(int*)>(found)(&version) == 0 ? version : 0;
}

/// Returns the kernels in LibTorch, or none if it does not tell.
inline std::vector<CudaKernels> kernels_in_libtorch() {
  try {
    return parse_nvcc_flags(at::detail::getCUDAHooks().showConfig());
  } catch (const c10::Error&) {
    return {};
  }
}

/// Returns what LibTorch's CUDA was built for, or nothing where LibTorch is for the CPU alone.
inline std::optional<CudaBuild> cuda_build() {
  const auto& hooks = at::detail::getCUDAHooks();
  const int cuda = cuda_runtime_version();
  if (!hooks.isBuilt() || hooks.hasROCM() || cuda == 0) return std::nullopt;
  return CudaBuild{TORCH_VERSION, cuda, kernels_in_libtorch()};
}

/// NVIDIA's driver, whose functions are found by name in the library that it installs.
class CudaDriver {
 public:
  CudaDriver() : library_(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {}

  /// Calls a function, and returns true if there is one and it succeeds.
  template <class... Arguments>
  [[nodiscard]] bool call(const char* name, Arguments... arguments) const {
    void* const found = library_ ? ::dlsym(library_, name) : nullptr;
    return found && reinterpret_cast<int (*)(Arguments...)>(found)(arguments...) == 0;
  }

  [[nodiscard]] std::optional<CudaMachine::Card> card(int index) const {
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
    CudaMachine::Card card;
    std::array<char, 256> name{};
    int device = 0;
    if (!call("cuDeviceGet", &device, index) ||
        !call("cuDeviceGetAttribute", &card.capability.major, kMajor, device) ||
        !call("cuDeviceGetAttribute", &card.capability.minor, kMinor, device) ||
        !call("cuDeviceGetName", name.data(), static_cast<int>(name.size()) - 1, device))
      return std::nullopt;
    card.name = name.data();
    return card;
  }

 private:
  void* library_;  // stays open: LibTorch uses it too
};

/// Returns the driver's version and cards, or nothing where there is no driver that can be used.
inline std::optional<CudaMachine> cuda_machine() {
  const CudaDriver driver;
  CudaMachine machine;
  int count = 0;
  if (!driver.call("cuInit", 0u) || !driver.call("cuDriverGetVersion", &machine.driver) ||
      !driver.call("cuDeviceGetCount", &count))
    return std::nullopt;
  for (int i = 0; i < count; ++i) {
    auto card = driver.card(i);
    if (!card) return std::nullopt;
    machine.cards.push_back(std::move(*card));
  }
  return machine;
}

}  // namespace detail

/// Asks the driver first: LibTorch is asked only where there are cards.
inline CudaFacts query_cuda() {
  CudaFacts facts{{}, detail::cuda_machine()};
  if (facts.machine && !facts.machine->cards.empty()) facts.build = detail::cuda_build();
  return facts;
}

}  // namespace looptorch::app
