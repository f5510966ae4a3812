// SPDX-License-Identifier: MIT
// Implements DeviceGraph (base/device/device_graph.hpp) for CUDA, by LibTorch's CUDAGraph. Compiles to
// nothing if LibTorch has no CUDA, or if the CUDA Toolkit's headers are missing.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_graph.hpp>
#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/base/what_of.hpp>

#if __has_include(<ATen/cuda/CUDAConfig.h>) && __has_include(<cuda_runtime_api.h>)

#if LOOPTORCH_LIBTORCH_2_9
#include <ATen/core/CachingHostAllocator.h>
#endif
#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

namespace looptorch::detail {

/// Returns where a generator state has the offset that a recording's draws have reached. In newer versions of
/// LibTorch the recording's first draw makes it: null before. A graph's state has no other recording.
template <class State>
[[nodiscard]] auto* recorded_offset(State& state) {
  if constexpr (requires { state.offset_intragraph_; })
    return &state.offset_intragraph_;
  else
    return state.capture_states_.empty() ? nullptr
                                         : &state.capture_states_.begin()->second->offset_intragraph_;
}

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(c10::Device device, at::cuda::MempoolId_t pool) : device_(device), pool_(pool) {}

  void begin() override {
    const c10::cuda::CUDAGuard guard(device_);
    users_before_ = users();
    or_abandon([&] { graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal); });
  }

  void end() override {
    const c10::cuda::CUDAGuard guard(device_);
    or_abandon([&] { graph_.capture_end(); });
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

  [[nodiscard]] at::Generator copy_generator(at::Generator source) override {
    const std::lock_guard lock(source.mutex());
    state_ = c10::make_intrusive<at::CUDAGeneratorState>(source.current_seed(), source.get_offset());
    return at::make_generator<at::CUDAGeneratorImpl>(device_.index(), state_);
  }
  [[nodiscard]] std::uint64_t random_offset() const override {
    const auto* const offset = recorded_offset(*state_);
    return offset ? *offset : 0;
  }
  void set_random_offset(std::uint64_t offset) override {
    if (auto* const current = recorded_offset(*state_))
      *current = static_cast<std::remove_pointer_t<decltype(current)>>(offset);
  }

  [[nodiscard]] at::cuda::MempoolId_t pool() const { return pool_; }

  static std::unique_ptr<DeviceGraph> make(c10::Device device, const DeviceGraph* neighbour) {
    const auto* const other = static_cast<const CudaGraph*>(neighbour);
    return std::make_unique<CudaGraph>(with_index(device),
                                       other ? other->pool() : at::cuda::graph_pool_handle());
  }

 private:
  /// Calls `step`. If it throws, undoes what LibTorch leaves behind: else its allocators would wait for the
  /// end of this recording, and refuse the next one in this pool. What CUDAGraph undoes by itself differs by
  /// version and by error. A pool that is released once too often would be freed under its other graphs.
  template <class Step>
  void or_abandon(const Step& step) {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    try {
      step();
    } catch (...) {
      ignoring_errors(
          [&] { allocator::endAllocateToPool(device_.index(), pool_); });  // throws if it has ended
#if LOOPTORCH_LIBTORCH_2_9
      ignoring_errors([&] { leave_pool_of(*at::getHostAllocator(c10::kCUDA)); });
#endif
      ignoring_errors([&] { graph_.reset(); });
      if (users() > users_before_) ignoring_errors([&] { allocator::releasePool(device_.index(), pool_); });
      throw;
    }
  }

  /// Ends the recording for the allocator of pinned memory, which has pools from LibTorch 2.11 on. Throws if
  /// it has ended.
  template <class HostAllocator>
  void leave_pool_of(HostAllocator& host) {
    if constexpr (requires { host.end_allocate_to_pool(pool_); }) {
      host.end_allocate_to_pool(pool_);
      host.release_pool(pool_);
    }
  }

  /// Returns how many graphs and recordings hold the pool.
  [[nodiscard]] int users() const noexcept {
    int count = 0;  // LibTorch throws for a pool that does not exist yet
    ignoring_errors(
        [&] { count = c10::cuda::CUDACachingAllocator::getPoolUseCount(device_.index(), pool_); });
    return count;
  }

  c10::Device device_;
  at::cuda::MempoolId_t pool_;
  int users_before_ = 0;
  c10::intrusive_ptr<at::CUDAGeneratorState> state_;
  at::cuda::CUDAGraph graph_;
};

inline const bool kHasCudaGraphs =
    std::exchange(device_graph_maker(c10::DeviceType::CUDA), &CudaGraph::make) == nullptr;

}  // namespace looptorch::detail

#endif
