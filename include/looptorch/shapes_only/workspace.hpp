// SPDX-License-Identifier: MIT
// Measures a kernel's workspace: the memory that it takes besides its results, such as oneDNN's scratch space
// and copies in its own layouts. Shapes do not tell its size, so the kernel itself is run, in memory that
// is counted apart.
#pragma once

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace looptorch::detail::shapes {

/// The settings of a simulated run, which `ShapesOnly` sets: whether workspaces count, and the number of
/// threads.
struct CountedRun {
  bool workspaces = true;  ///< False to count only results.
  int threads = 1;         ///< Threads of the real run's kernels; those that only return shapes have one.
};
inline CountedRun counted_run;

/// Gives kernels a real run's threads while it lives.
class RealThreadsScope {
 public:
  RealThreadsScope() { at::set_num_threads(counted_run.threads); }
  ~RealThreadsScope() { at::set_num_threads(1); }
  RealThreadsScope(const RealThreadsScope&) = delete;
  RealThreadsScope& operator=(const RealThreadsScope&) = delete;
};

/// Replaces the allocator of CPU tensors while it lives, and counts its bytes apart from HostMemory. One at a
/// time, in one thread.
class WorkspaceMeter final : public c10::Allocator {
 public:
  WorkspaceMeter() : before_(*c10::GetCPUAllocator()) {
    now_ = peak_ = 0;
    c10::SetCPUAllocator(this, /*priority=*/1);
  }
  ~WorkspaceMeter() { c10::SetCPUAllocator(&before_, /*priority=*/1); }
  WorkspaceMeter(const WorkspaceMeter&) = delete;
  WorkspaceMeter& operator=(const WorkspaceMeter&) = delete;

  [[nodiscard]] std::int64_t now() const { return now_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = now_; }

  c10::DataPtr allocate(std::size_t size) override {
    auto* const block =
        static_cast<std::byte*>(c10::GetDefaultCPUAllocator()->raw_allocate(c10::gAlignment + size));
    *reinterpret_cast<std::size_t*>(block) = size;
    now_ += static_cast<std::int64_t>(size);
    peak_ = std::max(peak_, now_);
    void* const data = block + c10::gAlignment;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* data) {
    auto* const block = static_cast<std::byte*>(data) - c10::gAlignment;
    now_ -= static_cast<std::int64_t>(*reinterpret_cast<const std::size_t*>(block));
    c10::GetDefaultCPUAllocator()->raw_deallocate(block);
  }

  static inline std::int64_t now_ = 0, peak_ = 0;
  c10::Allocator& before_;
};

/// Returns the peak bytes of `work` besides its result. `prepare` makes its argument.
template <class Prepare, class Work>
[[nodiscard]] std::int64_t workspace_of(Prepare&& prepare, Work&& work) {
  const c10::impl::ExcludeDispatchKeyGuard as_it_is(c10::DispatchKey::Fake);
  const at::NoGradGuard no_gradients;
  WorkspaceMeter memory;
  auto inputs = prepare();
  memory.reset_peak();
  const auto result = work(inputs);
  return memory.peak() - memory.now();
}

/// True if matmuls in bf16 are first computed in an fp32 matrix: oneDNN does so on CPUs without
/// native bf16. Others pack their inputs into a few hundred KB, whatever the result's size.
[[nodiscard]] inline bool bf16_matmuls_take_fp32() {
  static const bool takes = [] {
    constexpr std::int64_t kLong = 1024, kShort = 64;
    const auto make = [] { return at::ones({kLong, kShort}, at::kBFloat16); };
    return workspace_of(make, [](const at::Tensor& x) { return at::mm(x, x.t()); }) >= 4 * kLong * kLong;
  }();
  return takes;
}

}  // namespace looptorch::detail::shapes
