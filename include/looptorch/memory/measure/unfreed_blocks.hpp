// SPDX-License-Identifier: MIT
// Finds in which phase of a step a run leaks memory. Follows every allocation for a few windows, which costs
// a lock and an entry in a hash table for each tensor. At other times it costs nothing.
#pragma once

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_phases.hpp>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace looptorch::detail {

using BytesByPhase = std::array<std::int64_t, kMemoryPhases.size()>;

/// The unfreed blocks that a thread, and its backward passes, allocated since `begin`.
class UnfreedBlocks {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    blocks_.clear();
    phase_ = MemoryPhase::between;
    windows_ = 0;
  }
  void add(void* block, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(block, Block{bytes, phase_, windows_});
  }
  void remove(void* block) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(block);
  }
  void enter(MemoryPhase phase) {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
  }
  /// Returns the number of windows that have ended.
  std::int64_t end_window() {
    const std::lock_guard lock(mutex_);
    phase_ = MemoryPhase::between;
    return ++windows_;
  }

  /// Returns the bytes left by windows before the last one, by phase.
  [[nodiscard]] BytesByPhase kept() const {
    BytesByPhase bytes{};
    const std::lock_guard lock(mutex_);
    for (const auto& [block, about] : blocks_)
      if (about.window + 1 < windows_) bytes[static_cast<std::size_t>(about.phase)] += about.bytes;
    return bytes;
  }

 private:
  struct Block {
    std::int64_t bytes;
    MemoryPhase phase;
    std::int64_t window;
  };

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  MemoryPhase phase_ = MemoryPhase::between;
  std::int64_t windows_ = 0;
};

/// Receives a device's blocks from the reports that its allocator makes for LibTorch's profiler.
class DeviceReports final : public c10::MemoryReportingInfoBase {
 public:
  explicit DeviceReports(c10::Device device) : device_(device) {}

  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    if (device != device_) return;
    bytes > 0 ? blocks.add(block, bytes) : blocks.remove(block);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  UnfreedBlocks blocks;

 private:
  c10::Device device_;
};

/// Receives the blocks of CPU tensors that one thread allocates, whichever thread frees them.
class HostReports final : public HostMemory::Listener {
 public:
  static HostReports& instance() {
    static auto* const reports = new HostReports;  // tensors may outlive all static objects
    return *reports;
  }
  void begin() {
    thread_ = std::this_thread::get_id();
    blocks.begin();
  }
  void on_allocate(void* block, std::int64_t bytes) override {
    if (std::this_thread::get_id() == thread_) blocks.add(block, bytes);
  }
  void on_free(void* block) override { blocks.remove(block); }

  UnfreedBlocks blocks;

 private:
  std::thread::id thread_;
};

/// Follows the blocks of one device while it lives.
class BlockWatch {
 public:
  explicit BlockWatch(c10::Device device) {
    if (device.is_cpu()) {
      HostReports& reports = HostReports::instance();
      reports.begin();
      blocks_ = &reports.blocks;
      HostMemory::counted().set_listener(&reports);
    } else if (!c10::ThreadLocalDebugInfo::get(kind())) {  // a profiler already receives them
      reports_ = std::make_shared<DeviceReports>(device);
      blocks_ = &reports_->blocks;
      c10::ThreadLocalDebugInfo::_push(kind(), reports_);
    }
  }
  ~BlockWatch() {
    if (reports_) {
      if (c10::ThreadLocalDebugInfo::get(kind()) == reports_.get()) c10::ThreadLocalDebugInfo::_pop(kind());
    } else if (blocks_) {
      HostMemory::counted().set_listener(nullptr);
    }
  }
  BlockWatch(const BlockWatch&) = delete;
  BlockWatch& operator=(const BlockWatch&) = delete;

  /// Returns null while LibTorch's profiler is on, which a device's watch would replace.
  [[nodiscard]] UnfreedBlocks* blocks() const { return blocks_; }

 private:
  static c10::DebugInfoKind kind() {
    return c10::DebugInfoKind::PROFILER_STATE;
  }  // LibTorch 2.15 has no constant

  std::shared_ptr<DeviceReports> reports_;
  UnfreedBlocks* blocks_ = nullptr;
};

}  // namespace looptorch::detail
