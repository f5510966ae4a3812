// SPDX-License-Identifier: MIT
// NCCL, which carries the tensors of CUDA devices where this LibTorch has it and nccl.h is here. Reductions
// stay with Gloo. It compiles and links; it has not run on a GPU.
#pragma once

#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
#define LOOPTORCH_HAS_NCCL 1
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#define LOOPTORCH_HAS_NCCL 0
#endif
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <thread>
#include <utility>

namespace looptorch::detail {

/// True if tensors of this device travel by NCCL; others travel by Gloo.
[[nodiscard]] inline bool travels_by_nccl(at::Device device) {
  return LOOPTORCH_HAS_NCCL != 0 && device.is_cuda();
}

/// Returns NCCL's part of a process group, or null without NCCL. Its ranks connect in the first collective.
[[nodiscard]] inline c10::intrusive_ptr<c10d::Backend> nccl_backend(
    [[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store, [[maybe_unused]] int rank,
    [[maybe_unused]] int size) {
#if LOOPTORCH_HAS_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::hours(24);  // RankWatch watches instead
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
#else
  return nullptr;
#endif
}

/// True for a collective that must be asked whether it has ended: NCCL takes a wait with a limit for the end
/// of the run, and aborts its connections.
[[nodiscard]] inline bool is_to_be_asked([[maybe_unused]] const c10d::Work& work) {
#if LOOPTORCH_HAS_NCCL
  return dynamic_cast<const c10d::ProcessGroupNCCL::WorkNCCL*>(&work) != nullptr;
#else
  return false;
#endif
}

/// Waits until a collective has ended, but not longer than `limit`; returns whether it has. With `asks` it
/// never gives the collective a limit. The current stream goes on behind it. Throws what went wrong.
inline bool ends_within(c10d::Work& work, std::chrono::milliseconds limit, bool asks) {
  if (!asks) return work.wait(limit), true;
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!work.isCompleted()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return work.wait(), true;
}

}  // namespace looptorch::detail
