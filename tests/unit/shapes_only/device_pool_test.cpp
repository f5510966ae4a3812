// SPDX-License-Identifier: MIT
// What CUDA's caching allocator would hold, by its own rules (c10/cuda/CUDACachingAllocator.cpp).
// tests/device/memory_prediction_test.cpp compares it with an allocator in use.
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/shapes_only/device_pool.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>

#include "support/catch.hpp"

#include <ATen/ops/empty.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace {

using looptorch::HostMemory;
using looptorch::detail::shapes::DevicePool;
using Place = HostMemory::Place;

constexpr std::int64_t kMiB = 1 << 20;

struct Blocks {
  DevicePool pool;
  std::array<char, 16 + HostMemory::kHead> keys{};

  /// Returns where the memory of a tensor in the block would begin.
  [[nodiscard]] const void* data(std::size_t key) const { return &keys.at(key) + HostMemory::kHead; }
  void take(std::size_t key, std::size_t bytes, Place place = Place::computed) {
    pool.allocate(&keys.at(key), bytes, place);
  }
  void drop(std::size_t key) { pool.free(&keys.at(key)); }
  [[nodiscard]] std::int64_t allocated() const { return pool.read().allocated; }
  [[nodiscard]] std::int64_t reserved() const { return pool.read().reserved; }
};

}  // namespace

TEST_CASE("A device's blocks: sizes of blocks and segments") {
  const auto after = [](std::size_t bytes) {
    Blocks blocks;
    blocks.take(0, bytes);
    return blocks.pool.read();
  };
  CHECK(after(1).allocated == 512);
  CHECK(after(1).reserved == 2 * kMiB);
  CHECK(after(513).allocated == 1024);
  CHECK(after(kMiB).reserved == 2 * kMiB);
  CHECK(after(kMiB + 1).reserved == 20 * kMiB);
  CHECK(after(10 * kMiB - 512).reserved == 20 * kMiB);
  CHECK(after(10 * kMiB).reserved == 10 * kMiB);
  CHECK(after(11 * kMiB).reserved == 12 * kMiB);
  CHECK(after(11 * kMiB).allocated == 12 * kMiB);  // what is left, 1 MiB, is not split off
  CHECK(after(10 * kMiB + 1).allocated == 10 * kMiB + 512);
  CHECK(after(0).reserved == 0);
}

TEST_CASE("A device's blocks are reused, best fit first, and join again") {
  Blocks blocks;
  for (const std::size_t key : {0, 1, 2, 3}) blocks.take(key, 512 * 1024);  // fill one segment of 2 MiB
  CHECK(blocks.reserved() == 2 * kMiB);
  blocks.drop(0), blocks.drop(2);
  blocks.take(4, 600 * 1024);  // larger than either of the holes
  CHECK(blocks.reserved() == 4 * kMiB);
  blocks.take(5, 512 * 1024);
  CHECK(blocks.reserved() == 4 * kMiB);
  blocks.drop(5), blocks.drop(1);
  blocks.take(6, 1024 * 1024);  // the two that were freed beside each other
  CHECK(blocks.reserved() == 4 * kMiB);
  CHECK(blocks.allocated() == 1024 * 1024 + 512 * 1024 + 600 * 1024);

  blocks.pool.reset_peak();
  for (const std::size_t key : {3, 4, 6}) blocks.drop(key);
  blocks.drop(7);  // none of its blocks
  CHECK(blocks.allocated() == 0);
  CHECK(blocks.pool.read().peak == 1024 * 1024 + 512 * 1024 + 600 * 1024);
  CHECK(blocks.reserved() == 4 * kMiB);
  CHECK(blocks.pool.read().peak_reserved == 4 * kMiB);
}

TEST_CASE("A device's blocks are packed without gaps, the named ones first, as when a model moves to it") {
  constexpr std::size_t kBytes = 700 * 1024;  // of which a segment holds two
  Blocks blocks;
  for (const std::size_t key : {0, 1, 2, 3, 4, 5}) blocks.take(key, kBytes);
  for (const std::size_t key : {0, 2}) blocks.drop(key);
  CHECK(blocks.reserved() == 6 * kMiB);
  blocks.pool.repack({blocks.data(5), blocks.data(1), blocks.data(2)});
  CHECK(blocks.reserved() == 4 * kMiB);
  CHECK(blocks.allocated() == 4 * kBytes);
  blocks.drop(5), blocks.drop(1);  // a segment's two
  blocks.take(6, 1024 * 1024), blocks.take(7, 1024 * 1024);
  CHECK(blocks.reserved() == 4 * kMiB);
  blocks.drop(3);
  blocks.take(8, kBytes + 512);
  CHECK(blocks.reserved() == 6 * kMiB);
}

TEST_CASE("A device's blocks: batches that are copied have segments of their own, and the host's have none") {
  Blocks blocks;
  blocks.take(0, 512);
  blocks.take(1, 512, Place::copied);
  CHECK(blocks.reserved() == 4 * kMiB);
  blocks.take(2, 512, Place::host);
  CHECK(blocks.allocated() == 1024);
}

TEST_CASE("ShapesOnly of an accelerator reads as one, and of a CPU as a CPU") {
  const looptorch::MemoryCounter counter(at::kCPU);
  {
    const looptorch::ShapesOnly shapes_only(looptorch::ShapesOf::accelerator);
    const auto large = at::empty({3'000'000}), small = at::empty({3});
    CHECK(counter.read().allocated == 12 * kMiB + 512);
    CHECK(counter.read().reserved == 12 * kMiB + 2 * kMiB);
    const HostMemory::PlaceScope on_host(Place::host);
    const auto elsewhere = at::empty({3'000'000});
    CHECK(counter.read().allocated == 12 * kMiB + 512);
  }
  {
    const looptorch::ShapesOnly shapes_only;
    const auto before = counter.read().allocated;
    const auto tensor = at::empty({3'000'000});
    CHECK(counter.read().allocated == before + 12'000'000);
    CHECK(counter.read().reserved == counter.read().allocated);
  }
}
