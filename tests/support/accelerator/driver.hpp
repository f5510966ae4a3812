// SPDX-License-Identifier: MIT
// All state of the simulated accelerator, behind one lock.
#pragma once

#include "support/accelerator/copies/transfers.hpp"
#include "support/accelerator/ledger.hpp"
#include "support/accelerator/memory/arena.hpp"
#include "support/accelerator/memory/block_pool.hpp"
#include "support/accelerator/memory/pinned_pool.hpp"
#include "support/accelerator/order/clock.hpp"
#include "support/accelerator/order/work_queue.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {

struct DeviceState {
  /// A block that is freed, but recorded on other streams: reusable when `after` is over.
  struct Waiting {
    Block* block;
    Clock after;
  };

  Arena arena;
  BlockPool pool{arena};
  std::vector<Waiting> waiting;
  struct Issued {
    int stream;
    Time time;
  };
  std::vector<Issued> copies;                   // since the last kernel
  std::int64_t kernels = 0;                     // issued
  std::array<Time, kStreams> newest_kernels{};  // by stream
  int streams_given = 0;
  bool used = false;  // has a context
  std::string error;  // sticky
};

class Driver {
 public:
  std::recursive_mutex mutex;
  Options options;
  Ledger ledger;
  Timeline timeline;
  WorkQueue queue;
  PinnedPool pinned;
  Transfers transfers{*this};
  std::array<DeviceState, kMaxDevices> devices;

  [[nodiscard]] DeviceState& device(int index) { return devices.at(static_cast<std::size_t>(index)); }
  /// Marks a device as used.
  void use(int index);
  /// Throws a device's error.
  void check(int index) const;
  void fail(int index, const std::string& why);

  // ---- Order ----

  /// Issues something to a stream.
  Time tick(int stream);
  /// Runs what must be over before the newest work of `stream`, unless the device is behind the host.
  void settle(int stream);
  /// Has `run` wait for its turn on a stream, behind the host. Its exceptions become the device's error.
  void run_late(int stream, Time time, std::function<void()> run);
  /// Runs `work` on what was issued, and behind the host once more in its turn.
  void issue(int stream, Time time, std::function<void(Copy)> work);
  /// Counts a wait for all that `clock` covers, and waits. Throws the error of the device.
  void wait(Wait kind, const std::string& what, int device, const Clock& clock);
  /// The same without a count.
  void host_waits(const Clock& clock);
  /// Counts a launch, `on_cuda` of them there. Throws where the options say so.
  void begin_launch(int device, const std::string& what, std::int64_t on_cuda = 1);
  /// Counts a kernel, and returns true if it is the one that is to fail on its device.
  [[nodiscard]] bool next_kernel_fails() { return ++kernels_ == options.fail_kernel_at; }

  /// Counts the kernel that was just issued to `stream`.
  void count_kernel(int stream, Time time);
  /// Counts the asynchronous copy that was just issued to `stream`.
  void count_copy(int stream, Time time);

  /// Checks an access to device memory against those before it, and notes it.
  void access(int stream, Time time, const char* begin, std::size_t bytes, bool writes,
              const std::string* what);

  // ---- Memory ----

  char* allocate(int device, std::size_t bytes);
  void free(void* data) noexcept;
  void empty_cache(int device);
  [[nodiscard]] Block* find(const void* address);
  [[nodiscard]] char* in(Copy copy, const void* address);
  /// The copy that holds what a device would.
  [[nodiscard]] Copy truth() const { return options.behind_host ? Copy::late : Copy::issued; }
  [[nodiscard]] char* real(const void* address) { return in(truth(), address); }

  HostBlock* allocate_host(std::size_t bytes);
  void free_host(HostBlock& block) noexcept;

  void configure(const Options& next);
  void finish_all();

 private:
  void report_users(const Block& block, const Clock& known);
  void reclaim(DeviceState& device);
  void poison_new(Block& block);
  void poison_late(Block& block);
  void change_truth(Block& block);

  std::int64_t allocations_ = 0, pinnings_ = 0, launches_ = 0, kernels_ = 0;  // since configure
};

Driver& driver();
using Lock = std::lock_guard<std::recursive_mutex>;

/// Throws AcceleratorError in CUDA's words.
[[noreturn]] void throw_error(const std::string& what);
/// Returns the device of an address, or -1.
[[nodiscard]] int device_of(const void* address);
/// Installs the handler of SIGSEGV unless it is there.
void handle_signals();

// ---- This thread's device and streams ----

[[nodiscard]] int& current_device();
/// Returns the id of the current stream of a device.
[[nodiscard]] int& current_stream_id(int device);
[[nodiscard]] inline int current_stream(int device) {
  return stream_number(device, current_stream_id(device));
}

}  // namespace looptorch_test::accelerator
