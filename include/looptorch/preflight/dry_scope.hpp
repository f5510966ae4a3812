// SPDX-License-Identifier: MIT
// Keeps dry steps apart from a run: backs the run up, mutes policies that only report, limits the memory of
// CPU tensors, and restores the run afterwards.
#pragma once

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/preflight/run_backup.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace looptorch::detail {

/// Limits the memory of CPU tensors while it lives.
class HostLimit {
 public:
  HostLimit(bool on, std::int64_t bytes) : on_(on), was_(on ? HostMemory::counted().limit() : 0) {
    if (on_) HostMemory::counted().set_limit(std::min(bytes, was_));
  }
  ~HostLimit() {
    if (on_) HostMemory::counted().set_limit(was_);
  }
  HostLimit(const HostLimit&) = delete;
  HostLimit& operator=(const HostLimit&) = delete;

 private:
  bool on_;
  std::int64_t was_;
};

/// Backs a run up, for dry steps.
template <class Engine>
class DryScope {
 public:
  DryScope(Engine& engine, MemoryCounter& counter)
      : engine_(engine),
        is_host_counted_(counter.device().is_cpu() && !HostMemory::device()),
        before_(counter.read().allocated),
        backup_(backup_on_host(engine)),
        backup_bytes_(is_host_counted_ ? counter.read().allocated - before_ : 0) {}

  /// Calls `steps`, and restores the run whether `steps` returns or throws. On a CPU, `steps` may allocate up
  /// to `limit` bytes besides the backup.
  template <class Steps>
  void run(std::int64_t limit, const Steps& steps) {
    std::exception_ptr thrown;
    {
      const HostLimit limited(is_host_counted_, limit + backup_bytes_);
      engine_.stack().mute(true);
      try {
        steps();
      } catch (...) {
        thrown = std::current_exception();
      }
      engine_.stack().mute(false);
    }
    backup_.restore();
    if (thrown) std::rethrow_exception(thrown);
  }

  /// Returns how much of the counted memory is the backup's.
  [[nodiscard]] std::int64_t backup_bytes() const { return backup_bytes_; }

 private:
  static RunBackup<Engine> backup_on_host(Engine& engine) {
    const HostMemory::PlaceScope on_host(HostMemory::Place::host);
    return RunBackup<Engine>(engine);
  }

  Engine& engine_;
  const bool is_host_counted_;
  const std::int64_t before_;  // allocated
  RunBackup<Engine> backup_;
  const std::int64_t backup_bytes_;
};

}  // namespace looptorch::detail
