// SPDX-License-Identifier: MIT
// Tests data/loader: batch_maker, batch_cut, batch_source, loader_options, loader_source, open_epoch
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/watchdog.hpp"

#include <atomic>
#include <chrono>
#include <ranges>

using namespace looptorch;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::Watchdog;

namespace {

/// Sample i is the tensor [i, i * i]; counts the calls of `get`.
struct Squares {
  std::int64_t count = 10;
  std::atomic<int>* calls = nullptr;

  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    if (calls) ++*calls;
    return torch::tensor({index, index * index});
  }
};

struct Clip {
  std::string name;
  at::Tensor samples_T;
};

struct ClipBatch {
  at::Tensor samples_BT;
  std::vector<std::string> names;
};

/// A dataset with its own samples and collate; moves from the samples.
struct Clips {
  std::int64_t size() const { return 5; }
  Clip get(std::int64_t index) const {
    return {"clip " + std::to_string(index), torch::full({3}, double(index))};
  }
  ClipBatch collate(std::span<Clip> clips) const {
    ClipBatch batch;
    std::vector<at::Tensor> rows;
    for (Clip& clip : clips) {
      rows.push_back(clip.samples_T);
      batch.names.push_back(std::move(clip.name));
    }
    batch.samples_BT = at::stack(rows);
    return batch;
  }
};

struct Failing : Squares {
  at::Tensor get(std::int64_t index) const {
    if (index == 5) throw std::out_of_range("clip5.flac is cut off");
    return Squares::get(index);
  }
};

/// The first column of each batch, which holds the sample's index.
template <class Loader>
std::vector<std::vector<std::int64_t>> epoch_of(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  for (const at::Tensor& batch : loader) {
    const at::Tensor column = batch.select(1, 0).contiguous();
    batches.emplace_back(column.data_ptr<std::int64_t>(), column.data_ptr<std::int64_t>() + column.numel());
  }
  return batches;
}

using Batches = std::vector<std::vector<std::int64_t>>;
using SquaresLoader = PinnedPrefetchLoader<const Squares&>;

static_assert(std::ranges::input_range<SquaresLoader> && std::ranges::sized_range<SquaresLoader>);
static_assert(std::is_same_v<std::ranges::range_reference_t<SquaresLoader>, at::Tensor&>);
static_assert(std::is_move_constructible_v<SquaresLoader> && !std::is_copy_constructible_v<SquaresLoader>);

}  // namespace

TEST_CASE("every form of construction deduces") {
  Squares dataset;
  PinnedPrefetchLoader plain(dataset);
  PinnedPrefetchLoader options(dataset, {.batch_size = 2, .workers = 4});
  PinnedPrefetchLoader sampler(dataset, {.batch_size = 2}, RandomSampler{.seed = 1});
  const auto count = [](std::span<at::Tensor> samples) { return static_cast<int>(samples.size()); };
  PinnedPrefetchLoader collate(dataset, {.batch_size = 4}, SequentialSampler{}, count);
  PinnedPrefetchLoader temporary(Squares{.count = 3}, {.workers = 1});
  PinnedPrefetchLoader policy({.workers = 4});
  PinnedPrefetchLoader defaults;
  LoaderOptions named{.batch_size = 7};
  PinnedPrefetchLoader named_policy(named);
  static_assert(std::is_same_v<decltype(plain), SquaresLoader> &&
                std::is_same_v<decltype(options), SquaresLoader>);
  static_assert(std::is_same_v<decltype(sampler), PinnedPrefetchLoader<const Squares&, RandomSampler>>);
  static_assert(std::is_same_v<decltype(temporary), PinnedPrefetchLoader<Squares>>);
  static_assert(std::is_same_v<decltype(policy), PinnedPrefetchLoader<>>);
  static_assert(std::is_same_v<decltype(defaults), PinnedPrefetchLoader<>>);
  static_assert(std::is_same_v<decltype(named_policy), PinnedPrefetchLoader<>>);
  std::vector<int> counts;
  for (const int samples : collate) counts.push_back(samples);
  CHECK(counts == std::vector{4, 4, 2});
  CHECK(epoch_of(temporary) == Batches{{0}, {1}, {2}});
}

TEST_CASE("batches follow the sampler whatever the number of workers, epoch after epoch") {
  const Watchdog watchdog("order of batches");
  const Squares dataset{.count = 23};
  const auto epochs = [&dataset](std::int64_t workers, std::int64_t prefetch) {
    PinnedPrefetchLoader loader(dataset, {.batch_size = 4, .workers = workers, .prefetch = prefetch},
                                RandomSampler{.seed = 3});
    return std::vector{epoch_of(loader), epoch_of(loader), epoch_of(loader)};
  };
  const auto expected = epochs(0, 2);
  CHECK(expected[0].size() == 6);
  CHECK(expected[0].back().size() == 3);
  CHECK(expected[0] != expected[1]);
  std::vector<std::int64_t> flat;
  for (const auto& batch : expected[2]) flat.insert(flat.end(), batch.begin(), batch.end());
  CHECK(flat == RandomSampler{.seed = 3}.order(2, 23));
  for (const std::int64_t workers : {1, 2, 4, 40}) CHECK(epochs(workers, workers % 3) == expected);
}

TEST_CASE("size, drop_last, and batches larger than the data") {
  const Squares dataset{.count = 5};
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(dataset, {.batch_size = 2, .workers = workers});
  CHECK(loader.size() == 3);
  CHECK(epoch_of(loader) == Batches{{0, 1}, {2, 3}, {4}});
  PinnedPrefetchLoader dropping(dataset, {.batch_size = 2, .workers = workers, .drop_last = true});
  CHECK(std::ranges::size(dropping) == 2);
  CHECK(epoch_of(dropping) == Batches{{0, 1}, {2, 3}});
  PinnedPrefetchLoader large(dataset, {.batch_size = 8, .workers = workers});
  CHECK(large.size() == 1);
  CHECK(epoch_of(large) == Batches{{0, 1, 2, 3, 4}});
  PinnedPrefetchLoader none(dataset, {.batch_size = 8, .workers = workers, .drop_last = true});
  CHECK(none.size() == 0);
  CHECK(epoch_of(none).empty());
  PinnedPrefetchLoader empty(Squares{.count = 0}, {.workers = workers});
  CHECK(empty.size() == 0);
  CHECK(empty.begin() == empty.end());
}

TEST_CASE("begin_epoch and skip choose where the next epoch starts") {
  const Watchdog watchdog("begin_epoch and skip");
  std::atomic<int> calls = 0;
  const Squares dataset{.count = 10, .calls = &calls};
  const std::int64_t workers = GENERATE(0, 3);
  PinnedPrefetchLoader loader(dataset, {.batch_size = 3, .workers = workers}, RandomSampler{.seed = 5});
  const std::vector whole{epoch_of(loader), epoch_of(loader), epoch_of(loader)};
  loader.begin_epoch(1);
  loader.skip(2);
  calls = 0;
  CHECK(epoch_of(loader) == Batches(whole[1].begin() + 2, whole[1].end()));
  CHECK(calls == 4);                    // 3 + 1 samples: the skipped ones were not touched
  CHECK(epoch_of(loader) == whole[2]);  // the next epoch, whole
  loader.skip(3);
  loader.begin_epoch(0);  // in either order
  CHECK(epoch_of(loader) == Batches(whole[0].begin() + 3, whole[0].end()));
  loader.skip(4);
  CHECK(epoch_of(loader).empty());
  CHECK_THROWS_WITH(loader.skip(5), "PinnedPrefetchLoader: cannot skip 5 of 4 batches");
  CHECK_THROWS_AS(loader.skip(-1), UsageError);
  CHECK_THROWS_WITH(loader.begin_epoch(-1), "PinnedPrefetchLoader: epoch -1 is negative");
}

TEST_CASE("a dataset's own collate makes the batches, and may move from the samples") {
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Clips{}, {.batch_size = 3, .workers = workers});
  std::vector<std::string> names;
  for (ClipBatch& batch : loader) {
    CHECK(batch.samples_BT.size(1) == 3);
    const ClipBatch mine = std::move(batch);  // a batch may be kept
    names.insert(names.end(), mine.names.begin(), mine.names.end());
  }
  CHECK(names == std::vector<std::string>{"clip 0", "clip 1", "clip 2", "clip 3", "clip 4"});
}

TEST_CASE("a failing sample arrives once, in its place, with index and cause") {
  const Watchdog watchdog("failing sample");
  const std::int64_t workers = GENERATE(0, 1, 4);
  PinnedPrefetchLoader loader(Failing{}, {.batch_size = 2, .workers = workers});
  int received = 0;
  try {
    for ([[maybe_unused]] auto& batch : loader) ++received;
    FAIL("no exception");
  } catch (const LoaderError& error) {
    CHECK(std::string(error.what()) == "sample 5 (epoch 0, batch 2): clip5.flac is cut off");
    CHECK((error.sample == 5 && error.batch == 2 && error.epoch == 0));
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
  }
  CHECK(received == 2);

  loader.skip(2);
  CHECK_THROWS_AS(loader.begin(), LoaderError);  // the first batch fails in begin
  loader.skip(3);
  CHECK(epoch_of(loader) == Batches{{6, 7}, {8, 9}});  // and the loader goes on
}

TEST_CASE("the end follows an exception") {
  PinnedPrefetchLoader loader(Failing{}, {.batch_size = 5, .workers = 2});
  auto batch = loader.begin();
  CHECK_THROWS_AS(++batch, LoaderError);
  CHECK(batch == loader.end());
  ++batch;
  CHECK(batch == loader.end());
}

TEST_CASE("a failing collate names the batch and its samples") {
  struct Ragged : Squares {
    at::Tensor get(std::int64_t index) const { return torch::zeros({index + 1}); }
  };
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Ragged{}, {.batch_size = 2, .workers = workers});
  CHECK_THROWS_WITH(loader.begin(),
                    StartsWith("batch 0 of epoch 0 (samples 0, 1) could not be collated: stack expects"));
  PinnedPrefetchLoader large(Ragged{}, {.batch_size = 10, .workers = workers});
  CHECK_THROWS_WITH(large.begin(),
                    StartsWith("batch 0 of epoch 0 (samples 0, 1, 2, 3, 4, 5, 6, 7, ...) could not"));
}

TEST_CASE("an exception of any type is reported") {
  struct Odd : Squares {
    at::Tensor get(std::int64_t index) const { throw index; }
  };
  PinnedPrefetchLoader loader(Odd{}, {.workers = 1});
  CHECK_THROWS_WITH(loader.begin(), EndsWith(": an exception that does not derive from std::exception"));
}

TEST_CASE("wrong options are refused with their value") {
  const Squares dataset;
  CHECK_THROWS_WITH((PinnedPrefetchLoader(dataset, {.batch_size = 0})),
                    "PinnedPrefetchLoader: batch_size is 0; it must be at least 1");
  CHECK_THROWS_WITH((PinnedPrefetchLoader(dataset, {.workers = -1})),
                    "PinnedPrefetchLoader: workers is -1; it must be 0 (inline) or more");
  CHECK_THROWS_WITH((PinnedPrefetchLoader(dataset, {.prefetch = -2})),
                    "PinnedPrefetchLoader: prefetch is -2; it must be 0 or more");
  CHECK_THROWS_WITH((PinnedPrefetchLoader(dataset, {.starving = 20})),
                    "PinnedPrefetchLoader: starving is 20; it must be between 0 and 1");
}

TEST_CASE("a sampler may visit a part of the data, but must keep to what it announced and to the data") {
  struct EveryThird {
    std::vector<std::int64_t> order(std::int64_t, std::int64_t size) const {
      std::vector<std::int64_t> indices;
      for (std::int64_t i = 0; i < size; i += 3) indices.push_back(i);
      return indices;
    }
    std::int64_t count(std::int64_t size) const { return (size + 2) / 3; }
  };
  struct Unannounced {
    std::vector<std::int64_t> order(std::int64_t, std::int64_t) const { return {1, 2}; }
  };
  struct Outside {
    std::vector<std::int64_t> order(std::int64_t, std::int64_t size) const {
      return std::vector<std::int64_t>(static_cast<std::size_t>(size), size);
    }
  };
  const Squares dataset;
  PinnedPrefetchLoader third(dataset, {.batch_size = 3}, EveryThird{});
  CHECK(third.size() == 2);
  CHECK(epoch_of(third) == Batches{{0, 3, 6}, {9}});
  PinnedPrefetchLoader unannounced(dataset, {}, Unannounced{});
  CHECK_THROWS_WITH(
      unannounced.begin(),
      "PinnedPrefetchLoader: the sampler gave 2 indices, announced were 10: an order of another "
      "length than the dataset's needs `count(size)`");
  PinnedPrefetchLoader outside(dataset, {}, Outside{});
  CHECK_THROWS_WITH(outside.begin(),
                    "PinnedPrefetchLoader: the sampler gave index 10 for a dataset of 10 samples");
}

namespace {

/// A large dataset whose samples take a while; knows how many calls are in progress.
struct Slow {
  std::atomic<int>* calls;
  std::atomic<int>* running;
  std::int64_t size() const { return 1'000'000; }
  at::Tensor get(std::int64_t index) const {
    ++*calls;
    ++*running;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --*running;
    return torch::tensor({index});
  }
};

}  // namespace

TEST_CASE("leaving the loop, destroying the loader and beginning again end an open epoch at once") {
  const Watchdog watchdog("leaving an epoch");
  std::atomic<int> calls = 0, running = 0;
  const std::int64_t workers = GENERATE(0, 3);
  const auto quiet = [&] {
    const int before = calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return running == 0 && calls == before;
  };
  {
    PinnedPrefetchLoader loader(Slow{&calls, &running}, {.batch_size = 100, .workers = workers});
    for (const at::Tensor& batch : loader) {
      CHECK(batch.size(0) == 100);
      break;
    }
    CHECK(quiet());  // left early

    auto first = loader.begin();
    auto second = loader.begin();
    CHECK((*first)[99].item<std::int64_t>() == 99);               // what its reader has in hand stays
    CHECK_THROWS_WITH(++first, EndsWith("a loader of its own"));  // its reader would miss the rest in silence
    CHECK_THROWS_WITH(*first, EndsWith("this iterator's epoch has ended"));
    CHECK(first == loader.end());
    CHECK_THROWS_AS(++first, UsageError);
    CHECK((*second)[0].item<std::int64_t>() == 0);
  }
  std::optional<PinnedPrefetchLoader<Slow>> loader;
  loader.emplace(Slow{&calls, &running}, LoaderOptions{.batch_size = 100, .workers = workers});
  auto orphan = loader->begin();
  loader.reset();
  CHECK(quiet());
  CHECK((*orphan)[99].item<std::int64_t>() == 99);  // outlives the loader without harm
  CHECK_THROWS_WITH(++orphan, Contains("is gone"));
  CHECK(orphan == std::default_sentinel);
}

TEST_CASE("a loader may be moved while an epoch is open") {
  const Watchdog watchdog("moved loader");
  PinnedPrefetchLoader loader(Squares{}, {.batch_size = 4, .workers = 2});
  auto batch = loader.begin();
  PinnedPrefetchLoader moved(std::move(loader));
  CHECK((*++batch)[0][0].item<std::int64_t>() == 4);
  CHECK(epoch_of(moved).size() == 3);
  CHECK_THROWS_AS(++batch, UsageError);
}

TEST_CASE("workers use one intra-op thread each and leave everybody else's number alone") {
  struct Threads : Squares {
    at::Tensor get(std::int64_t) const {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      at::parallel_for(0, 2, 1, [](std::int64_t, std::int64_t) {});  // would bring back the default
      return torch::tensor({at::get_num_threads()});
    }
  };
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  const std::int64_t workers = GENERATE(0, 1, 3);
  PinnedPrefetchLoader loader(Threads{}, {.batch_size = 2, .workers = workers});
  for (const at::Tensor& batch : loader) CHECK(batch.eq(1).all().item<bool>());
  CHECK(at::get_num_threads() == 3);
  int later = 0;
  std::thread([&later] { later = at::get_num_threads(); }).join();
  CHECK(later == 3);
  at::set_num_threads(before);
}

TEST_CASE("batches are pinned where CUDA is available, unless told otherwise, and need no gradient") {
  struct Parameters : Squares {
    at::Tensor weight = torch::ones({2}, torch::requires_grad());
    at::Tensor get(std::int64_t index) const { return weight * double(index); }
  };
  for (const bool pin : {true, false}) {
    PinnedPrefetchLoader loader(Parameters{}, {.workers = 1, .pin = pin});
    const at::Tensor batch = *loader.begin();
    CHECK(batch.is_pinned() == (pin && torch::cuda::is_available()));
    CHECK_FALSE(batch.requires_grad());
  }
}

TEST_CASE("the policy form makes loaders with its options, sampler and collate") {
  const Squares dataset{.count = 6};
  const auto sum = [](std::span<at::Tensor> samples) { return static_cast<std::int64_t>(samples.size()); };
  const PinnedPrefetchLoader policy({.batch_size = 4, .workers = 1}, RandomSampler{.seed = 9}, sum);
  auto loader = policy.make(dataset);
  static_assert(std::is_same_v<decltype(loader)::Batch, std::int64_t>);
  CHECK(policy.options().batch_size == 4);
  CHECK(loader.size() == 2);
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : loader) sizes.push_back(size);
  CHECK(sizes == std::vector<std::int64_t>{4, 2});
  auto owning = PinnedPrefetchLoader({.batch_size = 5}).make(Squares{.count = 7});
  CHECK(epoch_of(owning) == Batches{{0, 1, 2, 3, 4}, {5, 6}});
}
