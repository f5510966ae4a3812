// SPDX-License-Identifier: MIT
// A CUDA runtime without a GPU, so that LibTorch's own code for CUDA runs on a machine that has none: its
// caching allocators, CUDAGraph, streams and events. Memory is the host's. Kernels do nothing, and
// the host reads zeros: only the order of calls and their errors are CUDA's. A test program that links
// runtime.cpp has it in place of libcudart.
#pragma once

#include <cstdint>
#include <string>

namespace looptorch_test::cuda_runtime {

/// The functions that can be made to fail.
enum class Call { begin_capture, end_capture, instantiate };

/// Lets the next call of a function fail with CUDA's error code.
void fail_next(Call call, int error);

/// Lets cudaMalloc fail beyond so many bytes; 0: never.
void limit_device(std::int64_t bytes);

/// What was asked of the runtime since the program began.
struct Counts {
  std::int64_t kernels = 0;
  std::int64_t escaped_kernels = 0;       ///< Issued to another stream while one was captured.
  std::int64_t captured_host_copies = 0;  ///< From or to the host's memory, which a replay would use again.
  std::int64_t launches = 0;              ///< Replays of graphs.
  std::int64_t graphs_alive = 0;          ///< Not destroyed yet.
  std::int64_t device_bytes = 0;          ///< Held by cudaMalloc now.
};
[[nodiscard]] Counts counts();

}  // namespace looptorch_test::cuda_runtime
