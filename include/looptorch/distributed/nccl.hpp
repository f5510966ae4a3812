// SPDX-License-Identifier: MIT
// Sends tensors on CUDA devices by NCCL, if LibTorch was built with NCCL and nccl.h is found. Losses, weights
// and vetoes (RankReduction) still go by Gloo. NCCL may block for ever while it connects, and in kernels that
// wait for a rank that is gone; the functions here limit both waits. This code has not run on a GPU yet.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/rank_reduction.hpp>

#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
#define LOOPTORCH_HAS_NCCL 1
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#define LOOPTORCH_HAS_NCCL 0
#endif
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <future>
#include <string>
#include <thread>
#include <utility>

namespace looptorch::detail {

/// True if tensors of this device travel by NCCL; others travel by Gloo.
[[nodiscard]] inline bool travels_by_nccl(at::Device device) {
  return LOOPTORCH_HAS_NCCL != 0 && device.is_cuda();
}

#if LOOPTORCH_HAS_NCCL
/// NCCL's options, with room after them: LibTorch's constructor writes the `ncclConfig_t` of the nccl.h that
/// it was built with, which is larger than this nccl.h's if that NCCL is newer.
struct NcclOptions final : c10d::ProcessGroupNCCL::Options {
  NcclOptions() {}  // leaves `room` as it is
  std::array<std::byte, 1024> room;
};
#endif

/// Returns NCCL's part of a process group, or null without NCCL. Its ranks connect in the first collective.
/// Turns off LibTorch's handling of faults, since RankWatch notices them: a minute after an error it would
/// end the process, even if that has reconnected. TORCH_NCCL_... variables that are set take precedence.
[[nodiscard]] inline c10::intrusive_ptr<c10d::Backend> nccl_backend(
    [[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store, [[maybe_unused]] int rank,
    [[maybe_unused]] int size) {
#if LOOPTORCH_HAS_NCCL
  c10::utils::set_env("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/false);
  c10::utils::set_env("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/false);
  auto options = c10::make_intrusive<NcclOptions>();
  options->timeout = std::chrono::hours(24);
  (void)c10::intrusive_ptr<NcclOptions>(options).release();  // never destroyed, since the layouts may differ
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
#else
  return nullptr;
#endif
}

/// Connects a device of this rank with the other ranks' devices, in a thread, since connecting may block
/// without a limit. Calls `check` five times a second meanwhile; if `check` throws, the thread stays behind.
/// Throws RanksDiffer if the backend cannot connect the devices.
template <class Check>
void connect_device(c10::intrusive_ptr<c10d::Backend> backend, at::Device device, Check&& check) {
  const int rank = backend->getRank();
  std::packaged_task<void()> task(
      [backend = std::move(backend), device] { backend->eagerConnectSingleDevice(device); });
  std::future<void> connected = task.get_future();
  std::thread(std::move(task)).detach();
  while (connected.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready) check();
  try {
    connected.get();
  } catch (const c10::Error& error) {
    std::string cause = error.what_without_backtrace();
    std::ranges::replace(cause, '\n', ' ');  // NCCL's last line names it
    throw RanksDiffer(
        message("rank ", rank, " could not connect ", device, " with the other ranks' devices: ", cause));
  }
}

/// Aborts a backend's collectives in flight, whose kernels would wait on the device for ever and block all
/// later work there. Kernels end at once. Waits up to `limit` for the rest, since NCCL's abort may wait for
/// ranks that are gone.
inline void abort_within(std::chrono::milliseconds limit, c10::intrusive_ptr<c10d::Backend> backend) {
  std::packaged_task<void()> task([backend = std::move(backend)] { backend->abort(); });
  const std::future<void> aborted = task.get_future();
  std::thread(std::move(task)).detach();
  (void)aborted.wait_for(limit);
}

/// True for a collective of NCCL, which must be polled: its `wait(timeout)` aborts the group's connections
/// when the time is over.
[[nodiscard]] inline bool must_be_polled([[maybe_unused]] const c10d::Work& work) {
#if LOOPTORCH_HAS_NCCL
  return dynamic_cast<const c10d::ProcessGroupNCCL::WorkNCCL*>(&work) != nullptr;
#else
  return false;
#endif
}

/// Waits up to `limit` for a collective's end; returns whether it has ended. With `polls`, polls and sets no
/// limit on the collective itself. The current stream waits for the collective. Throws the latter's error.
inline bool ends_within(c10d::Work& work, std::chrono::milliseconds limit, bool polls) {
  if (!polls) return work.wait(limit), true;
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!work.isCompleted()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return work.wait(), true;
}

/// True if a collective succeeded although its wait threw an exception, since it ended only after the wait's
/// limit. False for NCCL's, which are polled without a limit and do not implement isSuccess.
[[nodiscard]] inline bool ended_after_limit(const c10d::Work& work, bool polls) {
  return !polls && work.isSuccess();
}

}  // namespace looptorch::detail
