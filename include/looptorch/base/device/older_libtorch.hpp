// SPDX-License-Identifier: MIT
// Gives LibTorch 2.7 and 2.8 what newer versions have, under the same names: the common interface of device
// allocators, the error type of a failed device, and the newer switches for TF32.
#pragma once

#include <looptorch/base/libtorch_version.hpp>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#if !LOOPTORCH_LIBTORCH_2_9 && __has_include(<cuda_runtime_api.h>) && \
    __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)
#define LOOPTORCH_ADAPTS_CUDA_ALLOCATOR 1
#include <c10/cuda/CUDACachingAllocator.h>
#else
#define LOOPTORCH_ADAPTS_CUDA_ALLOCATOR 0
#endif

namespace looptorch::detail {

#if LOOPTORCH_LIBTORCH_2_9

using c10::AcceleratorError;
using c10::DeviceAllocator;
using c10::MempoolId_t;

/// Returns the allocator of a type of device through the interface that allocators of device memory share, or
/// null if it lacks that interface.
[[nodiscard]] inline DeviceAllocator* device_allocator(c10::DeviceType type) {
  return dynamic_cast<DeviceAllocator*>(c10::GetAllocator(type));
}

/// LibTorch's newer switches for fp32 matmuls, convolutions and recurrent layers on CUDA. Captures
/// them when it is made.
class Float32Switches {
 public:
  Float32Switches() {
    for (std::size_t i = 0; i < kOps.size(); ++i) precision_[i] = read(at::Float32Backend::CUDA, kOps[i]);
  }

  [[nodiscard]] bool matmuls() const { return precision_[0] == at::Float32Precision::TF32; }
  [[nodiscard]] bool convolutions() const { return precision_[1] == at::Float32Precision::TF32; }

  static void allow(bool tf32) {
    for (const at::Float32Op op : kOps)
      write(at::Float32Backend::CUDA, op, tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
  }

  void restore() const {
    for (std::size_t i = 0; i < kOps.size(); ++i) write(at::Float32Backend::CUDA, kOps[i], precision_[i]);
    write(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL, cpu_precision_);
  }

 private:
  static constexpr std::array kOps{at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN};

  static at::Float32Precision read(at::Float32Backend backend, at::Float32Op op) {
    return at::globalContext().float32Precision(backend, op);
  }
  static void write(at::Float32Backend backend, at::Float32Op op, at::Float32Precision precision) {
    at::globalContext().setFloat32Precision(backend, op, precision);
  }

  std::array<at::Float32Precision, kOps.size()> precision_{};
  at::Float32Precision cpu_precision_ = read(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
};

#else

/// LibTorch 2.9's error of a failed device. An older LibTorch throws c10::Error, whose text names the device.
class AcceleratorError : public c10::Error {
 public:
  AcceleratorError(c10::SourceLocation where, std::int32_t, const std::string& what) : Error(where, what) {}
};

using MempoolId_t = std::pair<std::uint64_t, std::uint64_t>;

/// LibTorch 2.9's interface. An older LibTorch's own allocators do not have it.
struct DeviceAllocator : c10::Allocator {
  virtual bool initialized() = 0;
  virtual void emptyCache(MempoolId_t pool = {0, 0}) = 0;
  virtual void recordStream(const c10::DataPtr& data, c10::Stream stream) = 0;
  virtual c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) = 0;
  virtual void resetAccumulatedStats(c10::DeviceIndex device) = 0;
  virtual void resetPeakStats(c10::DeviceIndex device) = 0;
  virtual std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "getMemoryInfo is not implemented for this allocator");
  }
};

#if LOOPTORCH_ADAPTS_CUDA_ALLOCATOR

/// CUDA's allocator, reached as the object that LibTorch has registered, so that nothing of CUDA is linked.
class CudaAllocator final : public DeviceAllocator {
 public:
  bool initialized() override { return cuda().initialized(); }
  void emptyCache(MempoolId_t) override { cuda().emptyCache(); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    cuda().recordStream(data, c10::cuda::CUDAStream(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return cuda().getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { cuda().resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { cuda().resetPeakStats(device); }

  c10::DataPtr allocate(std::size_t bytes) override { return cuda().allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return cuda().raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    cuda().copy_data(to, from, bytes);
  }

 private:
  static c10::cuda::CUDACachingAllocator::CUDAAllocator& cuda() {
    return static_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator&>(*c10::GetAllocator(c10::kCUDA));
  }
};

#endif

[[nodiscard]] inline DeviceAllocator* device_allocator(c10::DeviceType type) {
#if LOOPTORCH_ADAPTS_CUDA_ALLOCATOR
  static CudaAllocator cuda;
  if (type == c10::kCUDA) return &cuda;
#endif
  return dynamic_cast<DeviceAllocator*>(c10::GetAllocator(type));
}

/// The values of the only TF32 switches that an older LibTorch has; Tf32Settings sets them.
class Float32Switches {
 public:
  [[nodiscard]] bool matmuls() const { return matmuls_; }
  [[nodiscard]] bool convolutions() const { return convolutions_; }
  static void allow(bool) {}
  void restore() const {}

 private:
  bool matmuls_ = at::globalContext().allowTF32CuBLAS();
  bool convolutions_ = at::globalContext().allowTF32CuDNN();
};

#endif

}  // namespace looptorch::detail
