// SPDX-License-Identifier: MIT
// Calls NVIDIA's driver library, which is opened at run time: asks for versions and capabilities of GPUs, and
// loads and launches compiled kernels. cuda_kernels.hpp runs looptorch's own kernels through it. Programs
// compile and link without CUDA.
#pragma once

#include <looptorch/base/device/opened_library.hpp>
#include <looptorch/base/error.hpp>

#include <array>
#include <string>

namespace looptorch::detail {

/// Thrown for a kernel that cannot be compiled, loaded or launched. Names the library's own reason.
struct KernelError : Error {
  using Error::Error;
};

/// The functions of cuda.h that are used here. Handles are pointers, and 0 is success.
class CudaDriver {
 public:
  using Launch = int(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void* stream, void** arguments, void** extra);

  static const CudaDriver& get() {
    static const CudaDriver driver;
    return driver;
  }

  /// Returns the newest CUDA that the driver supports, as 12040 for 12.4, or 0 without a driver.
  [[nodiscard]] int version() const {
    int version = 0;
    return library_.call("cuDriverGetVersion", &version) == 0 ? version : 0;
  }

  /// Calls a function, and returns true if there is one and it succeeds.
  template <class... Arguments>
  [[nodiscard]] bool call(const char* name, Arguments... arguments) const {
    return library_.call(name, arguments...) == 0;
  }

  /// Returns the compute capability of a device, as 86 for 8.6. Throws KernelError.
  [[nodiscard]] int capability(int ordinal) const {
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
    int device = 0, major = 0, minor = 0;
    require("cuInit", 0u);
    require("cuDeviceGet", &device, ordinal);
    require("cuDeviceGetAttribute", &major, kMajor, device);
    require("cuDeviceGetAttribute", &minor, kMinor, device);
    return major * 10 + minor;
  }

  /// Returns a device's name, such as "NVIDIA A10"; empty without a driver or such a device.
  [[nodiscard]] std::string name(int ordinal) const {
    std::array<char, 256> name{};
    int device = 0;
    const bool known = call("cuInit", 0u) && call("cuDeviceGet", &device, ordinal) &&
                       call("cuDeviceGetName", name.data(), static_cast<int>(name.size()) - 1, device);
    return known ? std::string(name.data()) : std::string();
  }

  /// Makes LibTorch's context on a device current in this thread, if the thread has none yet. Throws
  /// KernelError.
  void require_context(int ordinal) const {
    void* context = nullptr;
    if (call("cuCtxGetCurrent", &context) && context) return;
    int device = 0;
    require("cuInit", 0u);
    require("cuDeviceGet", &device, ordinal);
    require("cuDevicePrimaryCtxRetain", &context, device);
    require("cuCtxSetCurrent", context);
  }

  /// Loads machine code into this thread's context and returns its module. Throws KernelError.
  [[nodiscard]] void* load(const std::string& image) const {
    void* module = nullptr;
    require("cuModuleLoadData", &module, static_cast<const void*>(image.data()));
    return module;
  }

  /// Returns a kernel of a module. Throws KernelError.
  [[nodiscard]] void* function(void* module, const char* name) const {
    void* function = nullptr;
    require("cuModuleGetFunction", &function, module, name);
    return function;
  }

  /// Launches a kernel without waiting for it. `table` is its only argument. Throws KernelError.
  void launch(void* function, unsigned blocks, unsigned threads, void* stream, const void* table) const {
    void* arguments[] = {const_cast<void*>(table)};
    check("cuLaunchKernel",
          launch_(function, blocks, 1u, 1u, threads, 1u, 1u, 0u, stream, arguments, nullptr));
  }

  /// True if work on a stream is being captured in a graph.
  [[nodiscard]] bool is_capturing(void* stream) const {
    int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
    return call("cuStreamIsCapturing", stream, &status) && status != 0;
  }

  /// Calls a function. Throws KernelError if there is none, or it fails.
  template <class... Arguments>
  void require(const char* name, Arguments... arguments) const {
    const auto result = library_.call(name, arguments...);
    if (!library_) throw KernelError("there is no NVIDIA driver (" + library_.reasons() + ")");
    if (!result) throw KernelError(message("NVIDIA's driver has no function ", name));
    check(name, *result);
  }

 private:
  CudaDriver() : library_({"libcuda.so.1"}), launch_(library_.find<Launch>("cuLaunchKernel")) {}

  void check(const char* name, int result) const {
    if (result == 0) return;
    const char* text = nullptr;
    const bool known = call("cuGetErrorString", result, &text) && text;
    throw KernelError(message(name, " failed with error ", result, known ? ": " : "", known ? text : ""));
  }

  OpenedLibrary library_;
  Launch* launch_;
};

}  // namespace looptorch::detail
