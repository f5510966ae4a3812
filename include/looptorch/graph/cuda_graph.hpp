// SPDX-License-Identifier: MIT
// Implements DeviceGraph (base/device/device_graph.hpp) for CUDA, by LibTorch's CUDAGraph. Compiles to
// nothing if LibTorch has no CUDA, or if the CUDA Toolkit's headers are missing.
#pragma once

#include <looptorch/base/device/device_graph.hpp>

#if __has_include(<ATen/cuda/CUDAConfig.h>) && __has_include(<cuda_runtime_api.h>)

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <memory>
#include <utility>

namespace looptorch::detail {

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(c10::Device device, at::cuda::MempoolId_t pool) : device_(device), pool_(pool) {}

  void begin() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  }

  void end() override {
    const c10::cuda::CUDAGuard guard(device_);
    try {
      graph_.capture_end();
    } catch (...) {  // else the allocator would wait for the end of this recording
      leave_pool();
      throw;
    }
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

  [[nodiscard]] at::cuda::MempoolId_t pool() const { return pool_; }

  static std::unique_ptr<DeviceGraph> make(c10::Device device, const DeviceGraph* neighbour) {
    const auto* const other = static_cast<const CudaGraph*>(neighbour);
    return std::make_unique<CudaGraph>(device, other ? other->pool() : at::cuda::graph_pool_handle());
  }

 private:
  void leave_pool() noexcept {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    try {
      allocator::endAllocateToPool(device_.index(), pool_);
    } catch (...) {  // it has left
    }
    try {
      allocator::releasePool(device_.index(), pool_);
    } catch (...) {  // it was given back
    }
  }

  c10::Device device_;
  at::cuda::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

inline const bool kHasCudaGraphs =
    std::exchange(device_graph_maker(c10::DeviceType::CUDA), &CudaGraph::make) == nullptr;

}  // namespace looptorch::detail

#endif
