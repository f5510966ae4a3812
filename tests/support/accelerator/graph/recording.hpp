// SPDX-License-Identifier: MIT
// A captured graph of the simulated accelerator: holds kernels that were issued to a stream and did not run,
// and issues them at each replay. Memory that was allocated during the capture stays the graph's, at the same
// addresses, even if the program frees it. Graphs of a pool share what they have freed.
#pragma once

#include "support/accelerator/driver.hpp"

#include <ATen/ThreadLocalState.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {

/// An access to memory by a recorded kernel.
struct RecordedAccess {
  const char* data;
  std::size_t bytes;
  bool writes;
};

struct RecordedKernel {
  const std::string* name;
  std::vector<RecordedAccess> accesses;
  std::function<void(Copy)> run;
};

/// Memory that the graphs of a pool have freed. The next one that is recorded takes it, as from LibTorch's
/// allocator, so a replay overwrites what later graphs have left there.
class GraphPool {
 public:
  GraphPool() = default;
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  void give(void* data) { free_.insert(data); }
  /// Takes a block of at least so many bytes, and of at most twice as many, that `is_other` allows; null if
  /// there is none.
  [[nodiscard]] char* take(std::size_t bytes, const std::function<bool(void*)>& is_other);

 private:
  std::set<void*> free_;
};

class Recording {
 public:
  static constexpr std::size_t kSeedBytes = 16;

  /// Sets the graph's seed, in `seed` on the device, on the stream that is recorded.
  Recording(int device, int stream, std::shared_ptr<void> generator, std::shared_ptr<GraphPool> pool,
            char* seed);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  [[nodiscard]] int stream() const { return stream_; }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<void>& generator() const { return generator_; }

  void add(RecordedKernel kernel) { kernels_.push_back(std::move(kernel)); }
  /// Something was asked for that cannot be recorded: nothing comes of the recording.
  void invalidate() { invalid_ = true; }
  [[nodiscard]] bool is_invalid() const { return invalid_; }
  /// Takes a block that was allocated meanwhile.
  void own(char* data) { memory_.insert(data); }
  /// Takes a block that another graph of the pool has freed; null if none fits.
  [[nodiscard]] char* reuse(std::size_t bytes);
  /// True for a block of the graph, which the program has freed: it stays.
  bool keep(void* data);

  /// Adds a draw from a generator's state, which must be the one that the graph knows, at an offset from the
  /// state of each replay. Returns the draw's number.
  int add_draw(const void* state, std::uint64_t offset);
  /// Ends the recording: each replay advances the state by what the recording has drawn.
  void end();

  /// Sets the seed and issues all kernels, on a stream, with new random numbers.
  void replay(int stream);

 private:
  void set_seed(int stream) const;

  int device_, stream_;
  std::shared_ptr<void> generator_;
  std::shared_ptr<GraphPool> pool_;
  char* seed_;
  std::vector<RecordedKernel> kernels_;
  std::vector<std::uint64_t> draws_;  // their offsets
  std::uint64_t advance_ = 0;
  std::set<void*> memory_, freed_;
  bool invalid_ = false;
};

/// Returns the recording of this thread's current stream of a device; null if nothing is recorded there.
[[nodiscard]] Recording* recording_here(int device);
/// True while something of a device is recorded: its allocator then neither waits nor releases memory.
[[nodiscard]] bool is_recording(int device);
/// True if a recording, ended or not, keeps a block that the program has freed.
[[nodiscard]] bool is_kept_by_recording(void* data);
/// Throws CUDA's error for what cannot be recorded, if this thread's current stream of a device is recorded.
void refuse_in_recording(int device, const char* what);
/// Returns a random seed of the replay under way.
[[nodiscard]] std::uint64_t replayed_seed(int number);

}  // namespace looptorch_test::accelerator
