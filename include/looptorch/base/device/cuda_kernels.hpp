// SPDX-License-Identifier: MIT
// Compiles and launches kernels on NVIDIA's GPUs. NVRTC, CUDA's run-time compiler, compiles a source once per
// process and GPU architecture, unless a KernelCache holds the result. Kernels run on LibTorch's current
// stream. Where kernels cannot run, the reason is printed once, and callers use tensor operations instead.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/cuda_driver.hpp>
#include <looptorch/base/device/kernel_cache.hpp>
#include <looptorch/base/device/kernel_source.hpp>
#include <looptorch/base/device/nvrtc.hpp>
#include <looptorch/base/process/terminal.hpp>

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace looptorch::detail {

/// Prints why the kernels of a source do not run on a device, once for each reason. `name` is the optimizer
/// or function that uses them.
inline void say_without_kernels(const char* name, c10::Device device, const std::string& reason) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(reason).second)
    std::fputs(own_line(stderr, message("looptorch: ", name, " on ", device,
                                        " is made of tensor operations, which take more time and memory "
                                        "than its kernel: ",
                                        reason, " (see docs/errors.md#kernels)"))
                   .c_str(),
               stderr);
}

/// Returns the most bytes of a table. The larger limit needs CUDA 12.1, its driver, and Volta or later.
[[nodiscard]] inline std::size_t table_bytes_of(int capability, int driver, int nvrtc) {
  const bool large = capability >= 70 && driver >= 12010 && nvrtc >= 12010;
  return large ? KernelRunner::kLargeTable : KernelRunner::kSmallTable;
}

/// Returns the machine code of a source, compiled unless the cache has it. Throws KernelError.
[[nodiscard]] inline std::string image_of(const KernelSource& source, int capability, std::size_t table_bytes,
                                          const Nvrtc& nvrtc, const KernelCache& cache) {
  std::vector<std::string> options = source.options(table_bytes);
  options.push_back(nvrtc.target(capability));
  const std::string text = source.text();
  std::string key = message("NVRTC ", nvrtc.version());
  for (const std::string& option : options) key += " " + option;
  key += "\n" + text;
  if (auto stored = cache.find(key)) return *std::move(stored);
  const std::string image = nvrtc.compile(text, source.name + std::string(".cu"), options).image;
  cache.store(key, image);
  return image;
}

class CudaKernels final : public KernelRunner {
 public:
  /// Returns the process's only instance. It is never destroyed, since the driver may be gone when static
  /// objects are.
  static CudaKernels& get() {
    static auto& kernels = *new CudaKernels;
    return kernels;
  }

  std::size_t prepare(const KernelSource& source, c10::Device device) override {
    const std::lock_guard lock(mutex_);
    Loaded& loaded = loaded_[{&source, device.index()}];
    if (!loaded.tried && !CudaDriver::get().is_capturing(stream_handle(device)))
      try_load(source, device, loaded);
    return loaded.table_bytes;
  }

  void launch(const KernelSource& source, const char* kernel, c10::Device device, unsigned blocks,
              const void* table) override {
    const c10::DeviceGuard guard(device);
    CudaDriver::get().require_context(device.index());
    CudaDriver::get().launch(function_of(source, kernel, device), blocks, kKernelThreads,
                             stream_handle(device), table);
  }

 private:
  struct Loaded {
    bool tried = false;
    std::size_t table_bytes = 0;
    void* module = nullptr;
    std::map<std::string, void*, std::less<>> functions;
  };

  static void* stream_handle(c10::Device device) {
    using StreamOf = void*(const c10::Stream*);  // a CUDAStream is a Stream
    static auto* const stream_of_libtorch =
        reinterpret_cast<StreamOf*>(loaded_function(kStreamOfLibTorch, "libc10_cuda.so"));
    if (!stream_of_libtorch) return nullptr;
    const c10::Stream stream = stream_of(device);
    return stream_of_libtorch(&stream);
  }

  void try_load(const KernelSource& source, c10::Device device, Loaded& loaded) {
    loaded.tried = true;
    try {
      if (!loaded_function(kStreamOfLibTorch, "libc10_cuda.so"))
        throw KernelError("this LibTorch does not tell its CUDA streams");
      const c10::DeviceGuard guard(device);
      const CudaDriver& driver = CudaDriver::get();
      driver.require_context(device.index());
      const int capability = driver.capability(device.index());
      static const Nvrtc nvrtc;
      const std::size_t bytes = table_bytes_of(capability, driver.version(), nvrtc.version());
      std::string& image = images_[{&source, capability}];
      if (image.empty()) image = image_of(source, capability, bytes, nvrtc, KernelCache::of_environment());
      loaded.module = driver.load(image);
      loaded.table_bytes = bytes;
    } catch (const KernelError& error) {
      say_without_kernels(source.name, device, error.what());
    }
  }

  void* function_of(const KernelSource& source, const char* kernel, c10::Device device) {
    const std::lock_guard lock(mutex_);
    Loaded& loaded = loaded_.at({&source, device.index()});
    if (const auto known = loaded.functions.find(kernel); known != loaded.functions.end())
      return known->second;
    return loaded.functions[kernel] = CudaDriver::get().function(loaded.module, kernel);
  }

  std::mutex mutex_;
  std::map<std::pair<const KernelSource*, int>, std::string> images_;  // by compute capability
  std::map<std::pair<const KernelSource*, c10::DeviceIndex>, Loaded> loaded_;
};

}  // namespace looptorch::detail
