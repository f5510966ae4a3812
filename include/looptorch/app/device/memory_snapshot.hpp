// SPDX-License-Identifier: MIT
// Writes the file of --memory-snapshot, a record of LibTorch's CUDA allocator for
// https://pytorch.org/memory_viz: each block, with the call stack that allocated it. Use it to find what
// takes the memory; recording costs some microseconds an allocation.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/process/rank_environment.hpp>
#include <looptorch/base/process/terminal.hpp>

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#if __has_include(<ATen/cuda/CUDAConfig.h>) && __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <optional>
#define LOOPTORCH_RECORDS_CUDA 1
#else
#define LOOPTORCH_RECORDS_CUDA 0
#endif

namespace looptorch::app {

/// An allocator's record of its events. `begin` starts it; the allocator then calls `ran_out` whenever memory
/// runs out, before the error is thrown. `read` returns the record as a file for the viewer.
struct MemoryRecord {
  std::function<void(std::function<void()> ran_out)> begin;
  std::function<std::string()> read;
};

/// Returns the record of LibTorch's CUDA allocator: the last 100,000 events. Its functions are empty where
/// this program was built without CUDA.
[[nodiscard]] inline MemoryRecord cuda_memory_record() {
#if LOOPTORCH_RECORDS_CUDA
  return {.begin =
              [](std::function<void()> ran_out) {
                constexpr std::size_t kEvents = 100'000;
                torch::cuda::_record_memory_history(std::optional<std::string>("all"),
                                                    std::optional<std::string>("all"), std::string("all"),
                                                    kEvents);
                c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
                    [ran_out = std::move(ran_out)](auto&&...) { ran_out(); });
              },
          .read = [] { return torch::cuda::_memory_snapshot_pickled(); }};
#else
  return {};
#endif
}

/// Throws CommandLineError where `--memory-snapshot FILE` is impossible: on a device other than CUDA's, and
/// where no file can be written.
inline void check_memory_snapshot(const std::filesystem::path& file, at::Device device,
                                  const MemoryRecord& record = cuda_memory_record()) {
  namespace fs = std::filesystem;
  if (file.empty()) return;
  if (!device.is_cuda())
    throw CommandLineError(
        message("--memory-snapshot needs a CUDA device, whose allocator keeps the record, and "
                "this run is on ",
                device, ": --memory says what memory consists of on any device"));
  if (!record.begin)
    throw CommandLineError("--memory-snapshot: this program was built without the CUDA Toolkit's headers");
  std::error_code ignored;
  if (fs::is_directory(file, ignored))
    throw CommandLineError(message("--memory-snapshot ", file.string(), " is a folder: name a file in it"));
  if (file.has_parent_path() && !fs::is_directory(file.parent_path(), ignored))
    throw CommandLineError(
        message("--memory-snapshot ", file.string(), ": there is no folder ", file.parent_path().string()));
}

/// Writes a record to a file, whole or not at all: when memory runs out, else on destruction.
class MemorySnapshot {
 public:
  /// Begins the record. Of several ranks, those that do not lead add ".rank-N" to the file's name.
  MemorySnapshot(std::filesystem::path file, MemoryRecord record)
      : state_(std::make_shared<State>(State{std::move(file), std::move(record.read)})) {
    if (const auto rank = rank_environment().rank; rank > 0) state_->file += message(".rank-", rank);
    // LibTorch's allocator calls this as long as the process lives.
    record.begin([state = std::weak_ptr(state_)] {
      if (const auto alive = state.lock()) alive->write(" when memory ran out"), alive->ran_out = true;
    });
  }
  MemorySnapshot(const MemorySnapshot&) = delete;
  MemorySnapshot& operator=(const MemorySnapshot&) = delete;
  ~MemorySnapshot() {
    if (!state_->ran_out) state_->write("");
  }

 private:
  struct State {
    std::filesystem::path file;
    std::function<std::string()> read;
    bool ran_out = false;

    /// Prints where the file is, or why there is none. Throws nothing, since another error may be
    /// propagating.
    void write(const char* when) noexcept try {
      write_file_atomically(file, read());
      tell(message("the memory", when, " is in ", file.string(), ", for https://pytorch.org/memory_viz"));
    } catch (const std::exception& error) {
      tell(message("--memory-snapshot: ", error.what()));
    } catch (...) {
    }
    static void tell(const std::string& sentence) {
      std::cerr << looptorch::detail::own_line(stderr, sentence) << std::flush;
    }
  };
  std::shared_ptr<State> state_;
};

}  // namespace looptorch::app
