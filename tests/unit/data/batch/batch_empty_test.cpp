// SPDX-License-Identifier: MIT
// The memory that batches are collated into: as many slots as batches exist at once, used again and again.
// Where CUDA is, LibTorch's pinned memory serves; tests/device/loader_test.cpp has that.
// Tests data/batch: batch_memory_pool
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"
#include "support/watchdog.hpp"
#include "unit/memory/recompute/support/live_bytes.hpp"

#include <deque>
#include <set>

using namespace looptorch;
using checkpointed::LiveBytes;
using looptorch::detail::BatchMemoryPool;
using testing::Watchdog;

namespace {

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// The pool's memory, counted.
struct Heap {
  static inline std::int64_t live = 0, until_failure = -1;
  static BatchMemoryPool::Memory allocate(std::size_t bytes) {
    if (until_failure >= 0 && until_failure-- == 0) throw std::bad_alloc();
    live += static_cast<std::int64_t>(bytes);
    return {new std::byte[bytes], [bytes](std::byte* memory) {
              live -= static_cast<std::int64_t>(bytes);
              delete[] memory;
            }};
  }
};

std::shared_ptr<BatchMemoryPool> pool_of_heap() { return std::make_shared<BatchMemoryPool>(&Heap::allocate); }

bool has(const BatchMemoryPool& pool, std::int64_t slots, std::int64_t bytes, std::int64_t allocations,
         std::int64_t reuses) {
  const auto counts = pool.counts();
  CAPTURE(counts.slots, counts.bytes, counts.allocations, counts.reuses);
  CHECK(counts.bytes == Heap::live);
  return counts.slots == slots && counts.bytes == bytes && counts.allocations == allocations &&
         counts.reuses == reuses;
}

constexpr LoaderOptions kPlain{.pin = false};
constexpr std::int64_t kElements = 1000, kBatch = 4, kBytes = kBatch * kElements * 4;

/// Sample i is full of i; all of them are there from the beginning, so that only batches take memory.
struct Ready {
  explicit Ready(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) samples.push_back(torch::full({kElements}, double(i)));
  }
  std::int64_t size() const { return std::ssize(samples); }
  at::Tensor get(std::int64_t index) const { return samples[static_cast<std::size_t>(index)]; }
  std::vector<at::Tensor> samples;
};

/// The samples of batch `number`; makes no tensor.
bool holds(const at::Tensor& batch, std::int64_t number) {
  const float* const values = batch.const_data_ptr<float>();
  for (std::int64_t i = 0; i < batch.numel(); ++i)
    if (values[i] != float(number * kBatch + i / kElements)) return false;
  return batch.numel() == kBatch * kElements;
}

/// Waits until `live` is `bytes`, as the watchdog allows, and checks that it stays so.
void settle(const LiveBytes& live, std::int64_t bytes) {
  while (live.now() < bytes) pause(1);
  pause(20);
  CHECK(live.now() == bytes);
}

}  // namespace

// --- the pool ---

TEST_CASE("a block is given out again, and grows without having old and new memory at once") {
  const auto pool = pool_of_heap();
  auto block = pool->take(0, 100);
  const void* const first = block->data();
  CHECK(has(*pool, 1, 100, 1, 0));
  block.reset();
  CHECK(has(*pool, 1, 100, 1, 0));
  block = pool->take(0, 60);
  CHECK(block->data() == first);
  CHECK(has(*pool, 1, 100, 1, 1));
  const auto second = pool->take(0, 100);
  CHECK(second->data() != first);
  CHECK(has(*pool, 2, 200, 2, 1));
  block.reset();
  block = pool->take(0, 300);
  CHECK(has(*pool, 2, 400, 3, 1));
}

TEST_CASE("tensors of a batch have memory of their own, and a slot is all of them") {
  const auto pool = pool_of_heap();
  auto large = pool->take(0, 1000);
  const auto small = pool->take(1, 10);
  CHECK(has(*pool, 1, 1010, 2, 0));
  large.reset();
  large = pool->take(0, 1000);  // though the small one is kept
  CHECK(has(*pool, 1, 1010, 2, 1));
  const auto next = pool->take(1, 10);
  CHECK(has(*pool, 2, 1020, 3, 1));
}

TEST_CASE("memory that cannot be had leaves a pool that continues") {
  const auto pool = pool_of_heap();
  pool->take(0, 100).reset();
  Heap::until_failure = 0;
  CHECK_THROWS_AS(pool->take(0, 200), std::bad_alloc);
  Heap::until_failure = -1;
  CHECK(has(*pool, 1, 0, 1, 0));
  const auto block = pool->take(0, 200);
  CHECK(has(*pool, 1, 200, 2, 0));
}

TEST_CASE("what was not needed between two trims is freed, and what is in use is not") {
  const auto pool = pool_of_heap();
  std::vector<BatchMemoryPool::Lease> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(pool->take(0, 10));
  blocks.resize(2);
  pool->trim();
  CHECK(has(*pool, 5, 50, 5, 0));  // so many were in use at once
  blocks.push_back(pool->take(0, 10));
  pool->trim();
  CHECK(has(*pool, 3, 30, 5, 1));
  blocks.clear();
  pool->trim();
  pool->trim();
  CHECK(has(*pool, 0, 0, 5, 1));
}

TEST_CASE("a block outlives its pool, which keeps nothing for it") {
  auto pool = pool_of_heap();
  auto block = pool->take(0, 100);
  pool->take(0, 50).reset();
  pool.reset();
  CHECK(Heap::live == 100);
  static_cast<char*>(block->data())[99] = 1;
  block.reset();
  CHECK(Heap::live == 0);
}

// --- batch_empty ---

TEST_CASE("batch_empty is at::empty, in the open slot's memory where there is one") {
  const auto same = [](at::IntArrayRef sizes, const at::TensorOptions& options) {
    const at::Tensor mine = batch_empty(sizes, options), theirs = at::empty(sizes, options);
    CHECK(mine.sizes() == theirs.sizes());
    CHECK(mine.strides() == theirs.strides());
    CHECK(mine.dtype() == theirs.dtype());
    CHECK(mine.device() == theirs.device());
    CHECK(mine.key_set() == theirs.key_set());
    CHECK(mine.storage().nbytes() == theirs.storage().nbytes());
    CHECK(mine.storage().resizable() == theirs.storage().resizable());
  };
  const auto message = [](at::IntArrayRef sizes, const at::TensorOptions& options, auto&& empty) {
    try {
      empty(sizes, options);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("no error");
  };
  using Sizes = std::vector<std::int64_t>;
  const auto at_empty = [](const auto&... arguments) { return at::empty(arguments...); };
  const auto check_all = [&] {
    same({2, 3}, {});
    same({}, at::kLong);
    same({0, 4}, at::kBool);
    same({2, 3, 4, 5}, at::TensorOptions(at::kHalf).memory_format(at::MemoryFormat::ChannelsLast));
    same({7}, at::TensorOptions(at::kMeta));
    same({2}, at::kQInt8);
    for (const Sizes& sizes : {Sizes{-1}, Sizes{1L << 40, 1L << 40}}) {
      CHECK(message(sizes, {}, batch_empty) != "no error");
      CHECK(message(sizes, {}, batch_empty) == message(sizes, {}, at_empty));
    }
    const at::TensorOptions graded = at::TensorOptions().requires_grad(true);
    CHECK(message({2}, graded, batch_empty) == message({2}, graded, at_empty));
    const c10::InferenceMode inference;
    same({2}, {});
  };
  check_all();
  const auto pool = looptorch::detail::make_batch_memory_pool();
  {
    const looptorch::detail::SlotScope scope(*pool, false);
    check_all();
  }
  CHECK(pool->counts().allocations == 4);  // those that hold something on the CPU
  CHECK(pool->counts().slots == 1);
}

TEST_CASE("a collate within a collate leaves the outer one its slot") {
  const auto outer = pool_of_heap(), inner = pool_of_heap();
  {
    const looptorch::detail::SlotScope slot(*outer, /*pins=*/false);
    const at::Tensor first = batch_empty({4});
    {
      const looptorch::detail::SlotScope other(*inner, /*pins=*/false);
      const at::Tensor within = batch_empty({8});
      CHECK(inner->counts().bytes == 32);
    }
    const at::Tensor second = batch_empty({2});  // the next position of the outer batch
    CHECK(outer->counts().slots == 1);
    CHECK(outer->counts().bytes == 16 + 8);
  }
  (void)batch_empty({2});
  CHECK(outer->counts().bytes == 16 + 8);
}

TEST_CASE("where at::empty fills memory, so that what depends on it is noticed, so does batch_empty") {
  const auto pool = looptorch::detail::make_batch_memory_pool();
  {
    const looptorch::detail::SlotScope scope(*pool, false);
    batch_empty({4}).fill_(7);
  }
  at::globalContext().setDeterministicAlgorithms(true, true);
  {
    const looptorch::detail::SlotScope scope(*pool, false);
    CHECK(batch_empty({4}).isnan().all().item<bool>());
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("a tensor in a slot may be resized, and its slot is free then") {
  const auto pool = looptorch::detail::make_batch_memory_pool();
  at::Tensor tensor;
  {
    const looptorch::detail::SlotScope scope(*pool, false);
    tensor = batch_empty({2, 3}, at::kLong);
  }
  tensor.fill_(7);
  tensor.resize_({400});
  CHECK(tensor.slice(0, 0, 6).eq(7).all().item<bool>());
  const auto block = pool->take(0, 48);
  CHECK(pool->counts().reuses == 1);
}

// --- the loader ---

TEST_CASE("bytes in memory are exactly those of workers + prefetch batches and the window that is kept") {
  const Watchdog watchdog("bytes of batches", std::chrono::seconds(60));
  const std::int64_t workers = GENERATE(0, 1, 3), window = GENERATE(1, 4);
  const std::int64_t prefetch = 2, slots = (workers ? workers + prefetch : 0) + window;
  const Ready ready(120);
  const LiveBytes live;
  std::set<const void*> places;
  {
    LoaderOptions options = kPlain;
    options.batch_size = kBatch, options.workers = workers, options.prefetch = prefetch;
    PinnedPrefetchLoader loader(ready, options);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::deque<at::Tensor> kept;  // as several updates keep them
      for (auto batch = loader.begin(); batch != loader.end(); ++batch) {
        kept.push_back(std::move(*batch));
        places.insert(kept.back().data_ptr());
        if (std::ssize(kept) < window) continue;
        if (batch.number() == 2 * window - 1) settle(live, slots * kBytes);
        const auto first = batch.number() + 1 - window;
        for (std::int64_t i = 0; i < window; ++i)
          CHECK(holds(kept[std::size_t(i)], first + i));  // batches that are kept are not overwritten
        kept.clear();
      }
      const LoaderStats& stats = loader.stats();
      CHECK(stats.slots == slots);
      CHECK(stats.slot_bytes == slots * kBytes);
      CHECK(stats.slot_allocations == slots);  // from the first epoch on: everything later is reuse
      CHECK(stats.slot_reuses == (epoch + 1) * 30 - slots);
      CHECK(live.now() == slots * kBytes);
    }
    CHECK(live.peak() == slots * kBytes);
    CHECK(std::ssize(places) <= slots);
  }
  CHECK(live.now() == 0);
}

TEST_CASE("workers hold the samples of one batch each, beside the slots") {
  const Watchdog watchdog("bytes of samples");
  struct Made {
    std::int64_t size() const { return 400; }
    at::Tensor get(std::int64_t index) const { return torch::full({kElements}, double(index)); }
  };
  const std::int64_t workers = GENERATE(0, 3);
  const LiveBytes live;
  LoaderOptions options = kPlain;
  options.batch_size = kBatch, options.workers = workers;
  PinnedPrefetchLoader loader(Made{}, options);
  for ([[maybe_unused]] const at::Tensor& batch : loader) {
  }
  const std::int64_t slots = (workers ? workers + 2 : 0) + 1;
  CHECK(live.peak() <= (slots + std::max<std::int64_t>(workers, 1)) * kBytes);
  CHECK(live.peak() >= 2 * kBytes);
  CHECK(live.now() == loader.stats().slot_bytes);
  CHECK(loader.stats().slots <= slots);
}

TEST_CASE("a batch outlives its loader, and takes its own memory only") {
  const Ready ready(40);
  const LiveBytes live;
  at::Tensor batch;
  {
    PinnedPrefetchLoader loader(ready, {.batch_size = kBatch, .workers = 2, .pin = false});
    auto at = loader.begin();
    batch = *++at;
  }
  CHECK(live.now() == kBytes);
  CHECK(batch[3][kElements - 1].item<float>() == 7);
  batch = at::Tensor();
  CHECK(live.now() == 0);
}

namespace {

struct Parts {
  at::Tensor large, small;
};

/// Two tensors of a batch, both in its slot; the second one is the batch's first sample.
struct InParts : Ready {
  using Ready::Ready;
  Parts collate(std::span<at::Tensor> samples) const {
    Parts parts{batch_empty({std::ssize(samples), kElements}), batch_empty({1})};
    at::stack_out(parts.large, at::TensorList(samples.data(), samples.size()));
    parts.small.copy_(samples[0].slice(0, 0, 1));
    return parts;
  }
};

}  // namespace

TEST_CASE("a kept tensor does not keep the rest of its batch alive") {
  const InParts parts(100);
  const LiveBytes live;
  PinnedPrefetchLoader loader(parts, {.batch_size = 2, .workers = 2, .pin = false});
  std::vector<at::Tensor> kept;
  for (const Parts& batch : loader) kept.push_back(batch.small);
  CHECK(live.now() <= 5 * 2 * kElements * 4 + 50 * 4);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].item<float>() == float(2 * i));
  CHECK(loader.stats().slots == 50);
  kept.clear();
  for (int epoch = 0; epoch < 2; ++epoch) loader.begin();  // they need few
  CHECK(loader.stats().slots <= 5);
}

TEST_CASE("slots grow with their batches, up to the largest") {
  struct Growing {
    std::int64_t size() const { return 60; }
    at::Tensor get(std::int64_t index) const { return torch::full({1 + index}, double(index)); }
  };
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Growing{}, {.workers = workers, .pin = false}, RandomSampler{.seed = 3});
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (auto batch = loader.begin(); batch != loader.end(); ++batch)
      CHECK(batch->eq(double(batch.indices()[0])).all().item<bool>());
    CHECK(loader.stats().slots <= (workers ? workers + 2 : 0) + 1);
    CHECK(loader.stats().slot_bytes <= loader.stats().slots * 60 * 4);
  }
  if (workers == 0) CHECK(loader.stats().slot_bytes == 60 * 4);
  CHECK(loader.stats().slot_allocations < 60);
}

TEST_CASE("a batch that cannot be collated gives its slot back") {
  struct Failing : InParts {
    using InParts::InParts;
    Parts collate(std::span<at::Tensor> samples) const {
      Parts parts = InParts::collate(samples);
      if (parts.small.item<float>() > 1) throw std::runtime_error("ragged");
      return parts;
    }
  };
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Failing(100),
                              {.batch_size = 2, .workers = workers, .pin = false, .on_error = OnError::skip});
  for ([[maybe_unused]] const Parts& batch : loader) {
  }
  CHECK(loader.skipped().count == 98);
  CHECK(loader.stats().slots <= (workers ? workers + 2 : 0) + 1);
}

TEST_CASE("streams are collated into slots, too") {
  struct Numbers {
    std::int64_t at = 0;
    void begin(std::int64_t) { at = 0; }
    std::optional<at::Tensor> next() {
      return at < 60 ? std::optional(torch::full({kElements}, double(at++))) : std::nullopt;
    }
  };
  PinnedPrefetchLoader loader(Numbers{}, {.batch_size = 2, .workers = 2, .pin = false});
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const at::Tensor& batch : loader) CHECK(batch.is_contiguous());
  const LoaderStats stats = loader.stats();
  CHECK(stats.slots <= 5);
  // 90 batches. An epoch may happen to need fewer slots than the next one: those are freed, and made again.
  CHECK(stats.slot_allocations <= 3 * 5);
  CHECK(stats.slot_allocations + stats.slot_reuses == 90);
}

TEST_CASE("samples that do not fit a slot are stacked as at::stack does") {
  struct Mixed {
    std::int64_t size() const { return 2; }
    at::Tensor get(std::int64_t index) const {
      return index == 0 ? torch::ones({2}, at::kInt) : torch::full({2}, 0.5, at::kDouble);
    }
  };
  PinnedPrefetchLoader loader(Mixed{}, {.batch_size = 2, .workers = 1, .pin = false});
  const at::Tensor batch = *loader.begin();
  CHECK(batch.equal(torch::tensor({{1.0, 1.0}, {0.5, 0.5}}, at::kDouble)));
  CHECK(loader.stats().slots == 0);
}

TEST_CASE("a window of several updates keeps its batches' slots, and no more") {
  struct Rows {
    std::int64_t size() const { return 120; }
    at::Tensor get(std::int64_t index) const { return torch::full({4}, 0.01 * double(index), at::kDouble); }
  };
  auto net = toy::net();
  torch::optim::SGD first(net->parameters(), 0.01), second(net->parameters(), 0.01);
  const auto objective = [](toy::Net& net, const at::Tensor& batch) { return net(batch).pow(2).mean(); };
  Trainer trainer(net, Update{first, objective}, Update{second, objective}, Accumulate<5>{});
  PinnedPrefetchLoader loader(Rows{}, {.batch_size = 2, .workers = 1, .prefetch = 1, .pin = false});
  trainer.fit(loader, {.epochs = 2});
  CHECK(loader.stats().slots >= 5);
  CHECK(loader.stats().slots <= 1 + 1 + 5);
  CHECK(loader.stats().slot_allocations <= 1 + 1 + 5);
  CHECK(loader.stats().slot_reuses >= 120 - 7);
}
