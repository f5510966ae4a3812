// SPDX-License-Identifier: MIT
// A simulated accelerator for tests: two devices, "sim:0" and "sim:1", with memory, streams, events, pinned
// host memory, generators, autocast and a caching allocator. A test that links looptorch_test_accelerator has
// them in LibTorch. The CPU's kernels compute, so results equal the CPU's bit for bit. Copies arrive as late
// as a correct program allows. Each access is checked against the order that streams, events and waits
// establish, and each wait of the host is counted.
#pragma once

#include <looptorch/base/device/older_libtorch.hpp>

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {

using looptorch::detail::AcceleratorError;

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline constexpr int kMaxDevices = 2;

/// How the devices behave. Failures count from the `configure` that asks for them: 1 is the first, 0 is
/// never. With LOOPTORCH_DEVICE_SEED set, a program begins behind the host, with that seed.
struct Options {
  /// 0 to kMaxDevices. LibTorch's engine makes one thread a device at the first backward of the process: call
  /// it with all devices before a test that has fewer.
  int devices = kMaxDevices;
  /// Kernels and copies wait in a queue a stream. They run when a wait needs them, or when the seed says so.
  bool behind_host = false;
  /// Selects one of the orders that streams and events allow. Used with `behind_host`.
  std::uint64_t seed = 0;
  /// If false, copies between devices that are no plain copies of bytes use temporaries, as CUDA's do.
  bool peer_access = true;
  /// Memory of each device in bytes; 0 is as much as there are addresses. Beyond it c10::OutOfMemoryError is
  /// thrown.
  std::size_t cap_bytes = 0;
  /// Bytes of each device beyond the cap, which other processes hold.
  std::size_t others_bytes = 0;
  /// Counts every device as used from the start.
  bool contexts_created = false;
  /// Every allocation of pinned memory throws AcceleratorError.
  bool pinning_fails = false;
  /// The n-th allocation of device memory throws c10::OutOfMemoryError.
  std::int64_t fail_allocation_at = 0;
  /// The n-th allocation of pinned memory throws AcceleratorError.
  std::int64_t fail_pinning_at = 0;
  /// The n-th kernel or copy is refused at once with AcceleratorError; the next ones work.
  std::int64_t fail_launch_at = 0;
  /// The n-th kernel fails on its device. As with CUDA, later calls for that device throw
  /// AcceleratorError until the next `configure`: the very next one, or with `behind_host` those after
  /// the kernel's turn has come.
  std::int64_t fail_kernel_at = 0;
};

/// Waits for all devices, clears their errors, and applies `options`. Memory keeps its contents.
void configure(const Options& options);
[[nodiscard]] Options options();

/// Applies options while it lives.
class With {
 public:
  explicit With(const Options& options) : before_(accelerator::options()) { configure(options); }
  ~With() { configure(before_); }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  Options before_;
};

/// What the host asked of the devices. Waits are counted where CUDA's host would stop.
struct Counts {
  std::int64_t kernels = 0;
  std::int64_t fallbacks = 0;  ///< Kernels without a registration of their own: the CPU's operator serves.
  std::int64_t launches = 0;   ///< Kernels and copies: what `fail_launch_at` counts.
  /// Kernels and copies that LibTorch would launch on CUDA for the same calls: dispatch/cuda_launches.hpp.
  std::int64_t cuda_launches = 0;
  std::int64_t allocations = 0;  ///< Requests for device memory, cached or not.
  std::int64_t pinnings = 0;     ///< Requests for pinned memory.
  std::int64_t contexts = 0;     ///< Devices that came into use.

  std::int64_t copies = 0;   ///< Asynchronous copies: the sum of the next four.
  std::int64_t uploads = 0;  ///< From pinned memory.
  std::int64_t pageable_uploads =
      0;                         ///< From other memory, which the driver copies once more; the host goes on.
  std::int64_t downloads = 0;    ///< To pinned memory.
  std::int64_t peer_copies = 0;  ///< Between devices.
  /// Uploads and downloads that may run beside a kernel: one was issued before that they need not wait for.
  std::int64_t copies_beside = 0;
  /// Uploads and downloads for which the next kernel of the device does not wait.
  std::int64_t copies_passed = 0;

  std::int64_t host_waits = 0;       ///< Waits for a stream or device: the sum of the next six.
  std::int64_t items = 0;            ///< Tensor::item and comparisons that need it.
  std::int64_t blocking_copies = 0;  ///< Tensor::to, cpu, copy_ without non_blocking.
  std::int64_t pageable_downloads =
      0;  ///< With non_blocking, but to memory that is not pinned: CUDA waits silently.
  std::int64_t dynamic_results = 0;  ///< Operators whose result's size the host needs: nonzero, equal, ...
  std::int64_t stream_waits = 0;
  std::int64_t device_waits = 0;

  std::int64_t event_waits = 0;  ///< Event::synchronize.
  std::int64_t stall_waits =
      0;  ///< Those of event_waits with no kernel issued to the device since the record.
  std::int64_t event_queries = 0;  ///< Event::query and Stream::query: the host goes on.

  /// Returns what happened between `earlier` and this.
  [[nodiscard]] Counts since(const Counts& earlier) const;
  /// Returns "kernels 3, items 1, ...", without the zeros.
  [[nodiscard]] std::string text() const;
};

/// Returns what happened since the program began.
[[nodiscard]] Counts counts();

/// The fewest kernels that keep a device busy while the host wakes up from a wait.
inline constexpr std::int64_t kBusyKernels = 16;
/// Returns how often this thread has waited for an event with fewer than kBusyKernels issued behind it. Waits
/// for events with fewer than that between them count as one.
[[nodiscard]] std::int64_t idling_event_waits();

/// Counts while it lives.
class CountWaits {
 public:
  CountWaits();
  [[nodiscard]] Counts counts() const { return accelerator::counts().since(before_); }
  /// Returns a sentence a wait: "item in aten::add.Tensor". With LOOPTORCH_TRACE_WAITS set, a stack follows.
  [[nodiscard]] std::vector<std::string> waits() const;
  /// Returns how often each operator ran.
  [[nodiscard]] std::map<std::string, std::int64_t> operators() const;

 private:
  Counts before_;
  std::size_t waits_before_;
  std::map<std::string, std::int64_t> operators_before_;
};

/// While it lives, a wait of any thread throws c10::Error instead.
class NoWaits {
 public:
  enum class Events { allowed, refused };
  explicit NoWaits(Events events = Events::allowed);
  ~NoWaits();
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  bool refuses_events_;
};

/// Returns sentences about accesses that were not ordered, or reached memory that was freed; 100 at most.
[[nodiscard]] std::vector<std::string> violations();
/// Returns them and forgets them.
[[nodiscard]] std::vector<std::string> take_violations();

[[nodiscard]] inline c10::Device device(int index = 0) {
  return {kDeviceType, static_cast<c10::DeviceIndex>(index)};
}
/// Blocks until a device is idle, and counts as a wait.
void synchronize(c10::Device device);
/// Finishes everything on all devices. Counts as no wait.
void finish_all();

/// Returns the bytes of a device's memory that tensors use, rounded as CUDA's allocator rounds.
[[nodiscard]] std::int64_t allocated_bytes(int device);
/// Returns the bytes of pinned memory in use.
[[nodiscard]] std::int64_t pinned_bytes();
/// Returns the address at which a test may read what a device pointer names. The pointer itself is protected.
[[nodiscard]] void* readable(const void* device_pointer);

}  // namespace looptorch_test::accelerator
