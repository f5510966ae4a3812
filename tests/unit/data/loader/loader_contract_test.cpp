// SPDX-License-Identifier: MIT
// What the loader does with samples that fail, where it stands, what it measures, and how little it holds.
// Tests data/samplers: sampler_identity
// Tests data/loader: loader_error, loader_position, loader_stats, pinned_prefetch_loader
#include "support/precompiled.hpp"

#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/datasets/concat_dataset.hpp>
#include <looptorch/data/datasets/map_dataset.hpp>
#include <looptorch/data/datasets/subset_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>
#include <looptorch/data/samplers/weighted_sampler.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"
#include "support/watchdog.hpp"
#include "unit/data/values.hpp"

#include <ATen/autocast_mode.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <new>
#include <regex>
#include <set>

using namespace looptorch;
using testing::Watchdog;
using namespace values;

namespace {

/// Sample i is i, but for those that are broken; knows their files.
struct Files {
  std::int64_t count = 12;
  std::set<std::int64_t> broken = {};
  bool paths = true;

  std::int64_t size() const { return count; }
  std::int64_t get(std::int64_t index) const {
    if (broken.count(index)) throw std::runtime_error("cut off");
    return index;
  }
  std::filesystem::path path(std::int64_t index) const { return "clips/" + std::to_string(index) + ".flac"; }
};

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// The batches of an epoch; checks that `indices()` are theirs.
template <class Loader>
Batches epoch_of(Loader& loader, Values* numbers = nullptr) {
  Batches batches;
  for (auto batch = loader.begin(); batch != loader.end(); ++batch) {
    CHECK(std::ranges::equal(batch.indices(), *batch));
    if (numbers) numbers->push_back(batch.number());
    batches.push_back(*batch);
  }
  return batches;
}

std::vector<std::string> told(const SkippedSamples& skipped) {
  std::vector<std::string> lines;
  for (const SkippedSample& sample : skipped.first)
    lines.push_back(looptorch::message(sample.epoch, ' ', sample.batch, ' ', sample.index, ' ', sample.path,
                                       ' ', sample.message));
  return lines;
}

}  // namespace

// --- samples that fail ---

TEST_CASE("a failing sample is reported with its path, once, and the loader continues after it on request") {
  const Watchdog watchdog("failing sample");
  const std::int64_t workers = GENERATE(0, 1, 3);
  PinnedPrefetchLoader loader(Files{.broken = {4}}, {.batch_size = 3, .workers = workers}, {}, kKeep);
  Batches received;
  try {
    for (const Values& batch : loader) received.push_back(batch);
    FAIL("no exception");
  } catch (const LoaderError& error) {
    CHECK(std::string(error.what()) == "sample 4 (clips/4.flac, epoch 0, batch 1): cut off");
    CHECK(error.path == "clips/4.flac");
    CHECK((loader.position() == LoaderPosition{0, 1}));
    loader.begin_epoch(error.epoch);
    loader.skip(error.batch + 1);
  }
  for (const Values& batch : loader) received.push_back(batch);
  CHECK(received == Batches{{0, 1, 2}, {6, 7, 8}, {9, 10, 11}});
  CHECK(loader.skipped().count == 0);
}

TEST_CASE("samples that fail are skipped, and told, the same whatever the number of workers") {
  const Watchdog watchdog("skipped samples");
  const std::int64_t workers = GENERATE(0, 1, 2, 5);
  PinnedPrefetchLoader loader(Files{.broken = {1, 3, 4, 5, 11}},
                              {.batch_size = 3, .workers = workers, .on_error = OnError::skip}, {}, kKeep);
  Values numbers;
  CHECK(epoch_of(loader, &numbers) == Batches{{0, 2}, {6, 7, 8}, {9, 10}});  // {3, 4, 5} is passed over
  CHECK(numbers == Values{0, 2, 3});
  CHECK(loader.size() == 4);
  CHECK(told(loader.skipped()) ==
        std::vector<std::string>{"0 0 1 clips/1.flac cut off", "0 1 3 clips/3.flac cut off",
                                 "0 1 4 clips/4.flac cut off", "0 1 5 clips/5.flac cut off",
                                 "0 3 11 clips/11.flac cut off"});
  epoch_of(loader);
  CHECK(loader.skipped().count == 10);
  CHECK(loader.skipped().first.back().epoch == 1);
}

TEST_CASE("batches keep their numbers and positions where samples are skipped") {
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Files{.broken = {3, 4, 5}},
                              {.batch_size = 3, .workers = workers, .on_error = OnError::skip}, {}, kKeep);
  auto batch = loader.begin();
  CHECK((loader.position() == LoaderPosition{0, 0}));
  ++batch;
  CHECK((loader.position() == LoaderPosition{0, 2}));  // batch 1 is done with
  loader.begin_epoch(0);
  loader.skip(loader.position().batch);
  loader.begin_epoch(0);
  loader.skip(2);
  CHECK(epoch_of(loader) == Batches{{6, 7, 8}, {9, 10, 11}});
  loader.begin_epoch(0);
  loader.skip(1);
  CHECK(epoch_of(loader) == Batches{{6, 7, 8}, {9, 10, 11}});
}

TEST_CASE("a batch that cannot be collated is skipped whole") {
  const auto no_fives = [](std::span<std::int64_t> samples) {
    for (const std::int64_t sample : samples)
      if (sample == 5) throw std::runtime_error("ragged");
    return kKeep(samples);
  };
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Files{.broken = {4}},
                              {.batch_size = 3, .workers = workers, .on_error = OnError::skip}, {}, no_fives);
  CHECK(epoch_of(loader) == Batches{{0, 1, 2}, {6, 7, 8}, {9, 10, 11}});
  CHECK(told(loader.skipped()) ==
        std::vector<std::string>{
            "0 1 4 clips/4.flac cut off",
            "0 1 3 clips/3.flac batch 1 of epoch 0 (samples 3, 5) could not be collated: ragged",
            "0 1 5 clips/5.flac batch 1 of epoch 0 (samples 3, 5) could not be collated: ragged"});
}

TEST_CASE("an epoch of which nothing can be had is an error, and an empty one is not") {
  Files all{.count = 4, .broken = {0, 1, 2, 3}};
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(all, {.batch_size = 2, .workers = workers, .on_error = OnError::skip}, {},
                              kKeep);
  CHECK_THROWS_WITH(loader.begin(), "every sample of epoch 0 failed; the first, sample 0: cut off");
  CHECK(loader.skipped().count == 4);
  loader.skip(1);
  CHECK(loader.begin() == loader.end());  // what was left of this epoch is not all of it
  PinnedPrefetchLoader empty(Files{.count = 0}, {.on_error = OnError::skip}, {}, kKeep);
  CHECK(empty.begin() == empty.end());
}

TEST_CASE("running out of memory is never skipped") {
  struct Hungry : Files {
    std::int64_t get(std::int64_t index) const {
      if (index == 1) throw std::bad_alloc();
      if (index == 2) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
      return index;
    }
  };
  PinnedPrefetchLoader loader(Hungry{}, {.workers = 1, .on_error = OnError::skip}, {}, kKeep);
  for (const std::int64_t bad : {1, 2}) {
    loader.begin_epoch(0);
    loader.skip(bad);
    CHECK_THROWS_AS(loader.begin(), LoaderError);
  }
  CHECK(loader.skipped().count == 0);
}

TEST_CASE("memory that LibTorch's CPU allocator cannot get is never skipped") {
  struct Hungry : Files {
    std::int64_t get(std::int64_t index) const {
      if (index == 1) torch::empty({std::int64_t(1) << 60}, at::kByte);
      return index;
    }
  };
  PinnedPrefetchLoader loader(Hungry{}, {.workers = 1, .on_error = OnError::skip}, {}, kKeep);
  auto batch = loader.begin();
  CHECK_THROWS_AS(++batch, LoaderError);
  CHECK(loader.skipped().count == 0);
}

TEST_CASE("the list of what was skipped has an end, the count has none") {
  SkippedSamples skipped;
  for (int i = 0; i < 3; ++i) skipped.add(std::vector<SkippedSample>(700));
  CHECK(skipped.count == 2100);
  CHECK(skipped.first.size() == SkippedSamples::kListed);
}

TEST_CASE("datasets of datasets tell the path of the file below") {
  const testing::TemporaryFolder folder;
  const Files files{.broken = {4}};
  const auto error_of = [](const auto& set) {
    PinnedPrefetchLoader loader(set, {.batch_size = 30, .workers = 0}, {}, kKeep);
    try {
      loader.begin();
    } catch (const LoaderError& error) {
      return error.path;
    }
    return std::string("no error");
  };
  CHECK(error_of(MapDataset(files, [](std::int64_t sample) { return sample; })) == "clips/4.flac");
  CHECK(error_of(SubsetDataset(files, {1, 4})) == "clips/4.flac");
  CHECK(error_of(ConcatDataset(Files{}, files)) == "clips/4.flac");
  struct Pathless {
    std::int64_t size() const { return 1; }
    std::int64_t get(std::int64_t) const { throw std::runtime_error("nowhere"); }
  };
  CHECK(error_of(ConcatDataset(files, Pathless{})) == "clips/4.flac");
  CHECK(error_of(ConcatDataset(Pathless{}, files)).empty());
  const CachedDataset cached(files, {.folder = folder / "cache", .settings = "files"},
                             [](std::int64_t index) { return std::to_string(index); });
  CHECK(error_of(cached) == "clips/4.flac");
}

TEST_CASE("a cause that names the path need not be given it twice, and a path that fails hides no cause") {
  struct Telling : Files {
    std::int64_t get(std::int64_t) const { throw std::runtime_error("clips/0.flac is cut off"); }
  };
  struct Lost : Files {
    std::int64_t get(std::int64_t) const { throw std::runtime_error("cut off"); }
    std::filesystem::path path(std::int64_t) const { throw std::logic_error("no path"); }
  };
  CHECK_THROWS_WITH(PinnedPrefetchLoader(Telling{}, {}, {}, kKeep).begin(),
                    "sample 0 (epoch 0, batch 0): clips/0.flac is cut off");
  CHECK_THROWS_WITH(PinnedPrefetchLoader(Lost{}, {}, {}, kKeep).begin(),
                    "sample 0 (epoch 0, batch 0): cut off");
}

// --- where a loader stands ---

namespace {

/// Interrupts an epoch at each batch, restores its state in a fresh loader with other workers and compares.
template <class Make>
void check_restoring(const Make& make) {
  auto whole_loader = make(0);
  whole_loader.begin_epoch(2);
  const Batches third = epoch_of(whole_loader), fourth = epoch_of(whole_loader);
  for (const std::int64_t workers : {0, 1, 3}) {
    auto first = make(workers);
    first.begin_epoch(2);
    auto batch = first.begin();
    for (std::int64_t done = 0; batch != first.end(); ++batch, ++done) {
      CHECK((first.position() == LoaderPosition{2, done}));  // the batch in hand is not done with
      auto second = make((workers + 1) % 4);
      second.load_state_dict(first.state_dict());
      CHECK((second.position() == LoaderPosition{2, done}));
      CHECK(epoch_of(second) == Batches(third.begin() + done, third.end()));
      CHECK(epoch_of(second) == fourth);
    }
    CHECK((first.position() == LoaderPosition{3, 0}));
  }
}

}  // namespace

TEST_CASE("a restored loader gives the same remaining batches, with every sampler and number of workers") {
  const Watchdog watchdog("restored loader", std::chrono::seconds(60));
  const auto with = [](auto sampler, LoaderOptions options) {
    return [sampler, options](std::int64_t workers) {
      LoaderOptions threaded = options;
      threaded.workers = workers;
      return PinnedPrefetchLoader(Files{}, threaded, sampler, kKeep);
    };
  };
  const Values lengths{5, 9, 2, 7, 7, 3, 8, 1, 6, 4, 9, 2};
  check_restoring(with(SequentialSampler{}, {.batch_size = 5}));
  check_restoring(with(RandomSampler{.seed = 4}, {.batch_size = 5, .drop_last = true}));
  check_restoring(with(WeightedSampler(std::vector<double>(12, 1.0), {.draws = 17}), {.batch_size = 4}));
  check_restoring(with(LengthBucketSampler(lengths, {.budget = 20, .longest_first = true}), {}));
  check_restoring(
      with(DistributedSampler({.rank = 1, .world_size = 2}, RandomSampler{3}), {.batch_size = 2}));
}

TEST_CASE("a position survives leaving the loop, and the end of an epoch is the beginning of the next") {
  PinnedPrefetchLoader loader(Files{}, {.batch_size = 5, .workers = 1}, {}, kKeep);
  CHECK((loader.position() == LoaderPosition{0, 0}));
  for ([[maybe_unused]] const Values& batch : loader)
    if (loader.position().batch == 1) break;
  CHECK((loader.position() == LoaderPosition{0, 1}));
  const StateDict state = loader.state_dict();
  epoch_of(loader);  // epoch 1
  CHECK((loader.position() == LoaderPosition{2, 0}));
  auto open = loader.begin();
  loader.load_state_dict(state);
  CHECK_THROWS_AS(++open, UsageError);  // an open epoch has ended
  CHECK(open == loader.end());
  CHECK(epoch_of(loader) == Batches{{5, 6, 7, 8, 9}, {10, 11}});
  CHECK((loader.position() == LoaderPosition{1, 0}));
}

TEST_CASE("a begin() within the loop leaves the current batch, and advancing the loop throws") {
  const Watchdog watchdog("nested begin");
  const std::int64_t workers = GENERATE(0, 1, 3);
  PinnedPrefetchLoader loader(Files{}, {.batch_size = 5, .workers = workers}, {}, kKeep);
  Batches outer, inner;
  const auto loop = [&] {
    for (const Values& batch : loader) {
      inner = epoch_of(loader);
      for ([[maybe_unused]] const Values& first : loader) break;
      outer.push_back(batch);
    }
  };
  CHECK_THROWS_WITH(loop(), Catch::Contains("give each reader, such as Validate beside fit"));
  CHECK(outer == Batches{{0, 1, 2, 3, 4}});
  CHECK(inner == Batches{{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11}});
  CHECK((loader.position() == LoaderPosition{2, 0}));  // of the epoch that was begun last
  CHECK(epoch_of(loader).size() == 3);
}

TEST_CASE("an epoch that was ended twice still says so, and moves nothing") {
  PinnedPrefetchLoader loader(Files{}, {.workers = 1}, {}, kKeep);
  auto open = loader.begin();
  ++open;
  loader.load_state_dict(loader.state_dict());  // ends it
  const auto fresh = loader.begin();            // and so does this
  CHECK_THROWS_AS(++open, UsageError);
  CHECK((loader.position() == LoaderPosition{0, 1}));
}

TEST_CASE(
    "the reader's autocast and inference mode do not reach the samples, whatever the number of workers") {
  struct Products {
    std::int64_t size() const { return 1; }
    at::Tensor get(std::int64_t) const { return torch::mm(torch::ones({4, 4}), torch::ones({4, 4})); }
  };
  const std::int64_t workers = GENERATE(0, 1);
  PinnedPrefetchLoader loader(Products{}, {.workers = workers});
  const c10::InferenceMode inference;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor batch = *loader.begin();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(batch.scalar_type() == at::kFloat);
  CHECK_FALSE(batch.is_inference());
}

TEST_CASE("a state of other batches is refused, with both sides, and nothing is changed") {
  const auto refusal = [](const auto& saved, auto&& mine) {
    mine.begin_epoch(7);
    std::string text = "none";
    try {
      mine.load_state_dict(saved.state_dict());
    } catch (const StateError& error) {
      text = error.what();
      CHECK((mine.position() == LoaderPosition{7, 0}));
    }
    return text;
  };
  const auto loader = [](LoaderOptions options, auto sampler, std::int64_t count = 12) {
    return PinnedPrefetchLoader(Files{.count = count}, options, sampler, kKeep);
  };
  const std::string others = "this state is of a loader with other batches, and cannot be resumed from: ";
  const auto saved = loader({.batch_size = 4}, RandomSampler{.seed = 1});
  CHECK(refusal(saved, loader({.batch_size = 4, .workers = 5, .prefetch = 0, .pin = false},
                              RandomSampler{1})) == "none");
  CHECK(
      refusal(saved, loader({.batch_size = 8}, RandomSampler{2})) ==
      others +
          "batch_size is 8 here, 4 in the state; sampler is RandomSampler, seed 2 here, RandomSampler, seed 1 "
          "in the state");
  CHECK(refusal(saved, loader({.batch_size = 4}, SequentialSampler{})) ==
        others + "sampler is SequentialSampler here, RandomSampler, seed 1 in the state");
  CHECK(refusal(saved, loader({.batch_size = 4}, RandomSampler{1}, 13)) ==
        others + "dataset is 13 samples here, 12 samples in the state");
  CHECK(refusal(saved, loader({.batch_size = 4, .drop_last = true}, RandomSampler{1})) ==
        others + "drop_last is true here, false in the state");
  CHECK(refusal(saved, loader({.batch_size = 4, .seed = 3}, RandomSampler{1})) ==
        others + "seed is 3 here, 0 in the state");
  const auto weighted = [&](double last) {
    return loader({}, WeightedSampler({1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, last}, {.seed = 3}));
  };
  CHECK(refusal(weighted(1), weighted(1)) == "none");
  CHECK(refusal(weighted(1), weighted(2)).find("weights") != std::string::npos);
  const auto bucketed = [&](std::int64_t last) {
    return loader({},
                  LengthBucketSampler({20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, last}, {.budget = 40}));
  };
  CHECK(refusal(bucketed(9), bucketed(9)) == "none");
  CHECK(refusal(bucketed(9), bucketed(8)) == "none");  // the same batches
  CHECK(refusal(bucketed(9), bucketed(25)).find("lengths") != std::string::npos);
  const auto ranked = [&](std::int64_t rank, std::int64_t world) {
    return loader({}, DistributedSampler({.rank = rank, .world_size = world, .uneven = Uneven::repeat},
                                         RandomSampler{1}));
  };
  CHECK(refusal(ranked(0, 2), ranked(1, 2)) == "none");  // all ranks stand at the same place
  CHECK(refusal(ranked(0, 2), ranked(0, 3))
            .find("world_size 2, uneven repeat of RandomSampler, seed 1 in the state") != std::string::npos);
  CHECK(looptorch::detail::compare_values(saved.identity(), saved.state_dict().under("loader"), "", "")
            .empty());
}

TEST_CASE("a sampler of one's own is known by its type and what numbers it holds") {
  struct Backwards {
    std::int64_t stride = 1;
    std::vector<std::int64_t> order(std::int64_t, std::int64_t size) const {
      return std::vector<std::int64_t>(static_cast<std::size_t>(size), 0);
    }
  };
  const auto identity = [](std::int64_t stride) {
    return PinnedPrefetchLoader(Files{}, {}, Backwards{stride}, kKeep).identity().get<std::string>("sampler");
  };
  CHECK(identity(1).find("Backwards, 1") != std::string::npos);
  CHECK(identity(1) != identity(2));
  struct Weighed {
    double budget = 0;
    float share = 0;
  };
  const auto weighed = [](double budget, float share = 0.1F) {
    return looptorch::detail::sampler_identity(Weighed{budget, share});
  };
  CHECK(weighed(1234567) != weighed(1234570));
  CHECK(weighed(0.1) != weighed(std::nextafter(0.1, 1)));
  CHECK_THAT(weighed(0.5), Catch::EndsWith(", 0.5, 0.1"));
}

TEST_CASE("a state that lacks something, or stands nowhere, is refused") {
  PinnedPrefetchLoader loader(Files{}, {.batch_size = 4}, {}, kKeep);
  CHECK_THROWS_WITH(loader.load_state_dict({}),
                    Catch::Contains("batch_size is 4 here, nothing in the state"));
  StateDict state = loader.state_dict();
  state.set("batch", 4);
  CHECK_THROWS_WITH(loader.load_state_dict(state),
                    "a loader's state stands at batch 4 of epoch 0, which does not exist");
  state.set("batch", 0);
  state.set("epoch", -1);
  CHECK_THROWS_AS(loader.load_state_dict(state), StateError);
  state.set("epoch", "two");
  CHECK_THROWS_AS(loader.load_state_dict(state), StateError);
}

// --- what it measures ---

namespace {

struct Slow {
  std::int64_t count = 8;
  int milliseconds = 10;
  std::int64_t size() const { return count; }
  std::int64_t get(std::int64_t index) const {
    pause(milliseconds);
    return index;
  }
};

}  // namespace

TEST_CASE("waiting, the queue's depth and the workers' time are measured") {
  const Watchdog watchdog("measured waiting");
  PinnedPrefetchLoader starving(Slow{}, {.workers = 1}, {}, kKeep);
  for ([[maybe_unused]] const Values& batch : starving) {
  }
  const LoaderStats starved = starving.stats();
  CHECK(starved.batches == 8);
  CHECK(starved.waited_for >= 4);
  CHECK(starved.wait_seconds >= 0.04);
  CHECK(starved.wait_share() > 0.5);
  CHECK(starved.queue_depth() < 1);
  REQUIRE(starved.worker_seconds.size() == 1);
  CHECK(starved.worker_seconds[0] >= 0.075);

  PinnedPrefetchLoader feeding(Slow{.milliseconds = 0}, {.workers = 2, .prefetch = 2}, {}, kKeep);
  for ([[maybe_unused]] const Values& batch : feeding) pause(20);
  CHECK(feeding.stats().use_seconds >= 0.16);
  CHECK(feeding.stats().wait_share() < 0.3);
  CHECK(feeding.stats().queue_depth() > 1);

  PinnedPrefetchLoader inline_(Slow{}, {.workers = 0}, {}, kKeep);
  for ([[maybe_unused]] const Values& batch : inline_) {
  }
  CHECK(inline_.stats().waited_for == 8);
  CHECK(inline_.stats().wait_seconds >= 0.08);
  CHECK(inline_.stats().worker_seconds.empty());
}

TEST_CASE("measurements add up over epochs, and a part of them can be told") {
  PinnedPrefetchLoader loader(Slow{.count = 4, .milliseconds = 2}, {.workers = 1}, {}, kKeep);
  const auto shared = loader.shared_stats();
  for ([[maybe_unused]] const Values& batch : loader) {
  }
  const LoaderStats first = loader.stats();
  for ([[maybe_unused]] const Values& batch : loader) {
  }
  const LoaderStats second = loader.stats().since(first);
  CHECK((first.batches == 4 && second.batches == 4 && loader.stats().batches == 8));
  CHECK(second.wait_seconds >= 0.005);
  CHECK(second.worker_seconds[0] >= 0.008);
  CHECK(second.worker_seconds[0] < loader.stats().worker_seconds[0]);
  CHECK(shared->batches == 8);
  CHECK(LoaderStats{}.wait_share() == 0);
}

TEST_CASE("a part of the measurements is the difference of every sum, and has what is held now") {
  const LoaderStats earlier{.batches = 1,
                            .asked = 2,
                            .waited_for = 3,
                            .wait_seconds = 4,
                            .use_seconds = 5,
                            .skipped = 6,
                            .queued = 7,
                            .worker_seconds = {8},
                            .slots = 9,
                            .slot_bytes = 10,
                            .slot_allocations = 11,
                            .slot_reuses = 12};
  const LoaderStats later{.batches = 101,
                          .asked = 202,
                          .waited_for = 303,
                          .wait_seconds = 404,
                          .use_seconds = 505,
                          .skipped = 606,
                          .queued = 707,
                          .worker_seconds = {808, 900},
                          .slots = 19,
                          .slot_bytes = 20,
                          .slot_allocations = 1111,
                          .slot_reuses = 1212};
  const LoaderStats part = later.since(earlier);
  CHECK((part.batches == 100 && part.asked == 200 && part.waited_for == 300));
  CHECK((part.wait_seconds == 400 && part.use_seconds == 500));
  CHECK((part.skipped == 600 && part.queued == 700));
  CHECK(part.worker_seconds == std::vector<double>{800, 900});
  CHECK((part.slots == 19 && part.slot_bytes == 20));
  CHECK((part.slot_allocations == 1100 && part.slot_reuses == 1200));
  CHECK((part.wait_share() == 400.0 / 900 && part.queue_depth() == 3.5));
}

TEST_CASE("requests, waits and the queue's lengths add up over epochs") {
  const Watchdog watchdog("counts of two epochs");
  PinnedPrefetchLoader inline_(Slow{.count = 3, .milliseconds = 0}, {.workers = 0}, {}, kKeep);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    for ([[maybe_unused]] const Values& batch : inline_) {
    }
    CHECK((inline_.stats().asked == 3 * epoch && inline_.stats().waited_for == 3 * epoch));
  }

  // One worker, which begins a sample once those before it are ready, and makes none after `last`.
  std::atomic<std::int64_t> begun = 0, last = 0;
  struct Gated {
    std::atomic<std::int64_t>*begun, *last;
    std::int64_t size() const { return 6; }
    std::int64_t get(std::int64_t index) const {
      *begun = index;
      begun->notify_all();
      for (std::int64_t seen = *last; seen < index; seen = *last) last->wait(seen);
      return index;
    }
  };
  const auto make_up_to = [&](std::int64_t index) {
    last = index;
    last.notify_all();
    for (std::int64_t seen = begun; index < 5 && seen <= index; seen = begun) begun.wait(seen);
  };
  PinnedPrefetchLoader ahead(Gated{&begun, &last}, {.workers = 1, .prefetch = 5}, {}, kKeep);
  const auto request = [&](auto& batch) {
    const LoaderStats before = ahead.stats();
    ++batch;
    return ahead.stats().since(before);
  };
  {
    auto batch = ahead.begin();
    CHECK(ahead.stats().queued <= 1);
    make_up_to(4);
    for (int ready = 4; ready > 0; --ready) {
      const LoaderStats of_one = request(batch);
      CHECK((of_one.asked == 1 && of_one.queued == ready && of_one.waited_for == 0));
    }
    make_up_to(5);
    CHECK(request(batch).queued <= 1);
  }
  const LoaderStats first = ahead.stats();
  CHECK((first.asked == 6 && first.queued >= 4 + 3 + 2 + 1 && first.queued <= 4 + 3 + 2 + 1 + 2));
  begun = last = 0;
  auto batch = ahead.begin();  // of the second epoch
  CHECK((ahead.stats().since(first).asked == 1 && ahead.stats().since(first).queued <= 1));
  CHECK((ahead.stats().since(first).waited_for >= 0 && ahead.stats().since(first).waited_for <= 1));
  CHECK(ahead.stats().worker_seconds[0] >= first.worker_seconds[0]);
  make_up_to(3);
  CHECK(request(batch).queued == 3);
  CHECK(ahead.stats().since(first).asked == 2);
  make_up_to(5);
}

TEST_CASE("a loop that starves is warned once on stderr, unless the option forbids it") {
  const auto told = [](LoaderOptions options, int epochs) {
    const testing::CapturedStderr captured;
    PinnedPrefetchLoader loader(Slow{.count = 22, .milliseconds = 50}, options, {}, kKeep);
    for (int epoch = 0; epoch < epochs; ++epoch)
      for ([[maybe_unused]] const Values& batch : loader) {
      }
    CHECK(loader.stats().warned_data_bound == !captured.text().empty());
    return captured.text();
  };
  const std::string line = told({.workers = 1}, 2);
  INFO(line);
  CHECK(std::regex_match(
      line, std::regex("looptorch: a loader of 22 samples: the data cannot keep up: [0-9]+ % of the time was "
                       "spent waiting for it \\(workers: 1, busy [0-9]+ %\\)\\. What helps: "
                       ".*CachedDataset.*LengthBucketSampler.*docs/loader.md#waiting\n")));
  CHECK(told({.workers = 1, .starving = 1}, 1).empty());
  CHECK(told({.batch_size = 2, .workers = 1}, 1).empty());  // too few batches to tell
}

// --- how little it holds and does ---

TEST_CASE("batches in memory never exceed workers + prefetch and those that the consumer keeps") {
  const Watchdog watchdog("bound of batches");
  struct Counted {
    std::shared_ptr<int> token;
  };
  std::atomic<int> most = 0;
  const auto origin = std::make_shared<int>();
  const auto collate = [&](std::span<std::int64_t>) {
    Counted batch{origin};
    int seen = most, live = static_cast<int>(origin.use_count()) - 1;
    while (seen < live && !most.compare_exchange_weak(seen, live)) {
    }
    return batch;
  };
  {
    PinnedPrefetchLoader loader(Files{.count = 300}, {.workers = 3, .prefetch = 2}, {}, collate);
    auto batch = loader.begin();
    while (origin.use_count() - 1 < 3 + 2 + 1) pause(1);
    pause(20);  // a consumer that does not read: nothing more is made
    CHECK(origin.use_count() - 1 == 3 + 2 + 1);
    std::vector<Counted> window;  // as several updates keep one
    for (; batch != loader.end(); ++batch) {
      window.push_back(std::move(*batch));
      if (window.size() == 4) window.clear();
    }
  }
  CHECK(most <= 3 + 2 + 4);
  CHECK(origin.use_count() == 1);
}

TEST_CASE("no thread uses the processor while the consumer or the workers wait") {
  const Watchdog watchdog("busy waiting");
  const auto processor_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  PinnedPrefetchLoader full(Files{}, {.workers = 4, .prefetch = 2}, {}, kKeep);
  auto batch = full.begin();  // the workers fill the ring, and wait
  pause(20);
  double before = processor_seconds();
  pause(200);
  CHECK(processor_seconds() - before < 0.02);
  PinnedPrefetchLoader slow(Slow{.count = 2, .milliseconds = 200}, {.workers = 2}, {}, kKeep);
  before = processor_seconds();
  slow.begin();  // the consumer waits
  CHECK(processor_seconds() - before < 0.02);
}

TEST_CASE("destruction in mid-epoch waits for one sample, not for a batch") {
  const Watchdog watchdog("destruction");
  const Slow slow{.count = 1000, .milliseconds = 20};
  const std::int64_t workers = GENERATE(1, 4);
  std::optional loader(PinnedPrefetchLoader(slow, {.batch_size = 25, .workers = workers}, {}, kKeep));
  auto batch = loader->begin();
  pause(5);
  const auto begin = std::chrono::steady_clock::now();
  loader.reset();
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() <
        0.25);  // a batch: 0.5
  CHECK_THROWS_AS(++batch, UsageError);
}

TEST_CASE("a batch need not be assignable, but movable without exceptions") {
  struct Fixed {
    const std::int64_t count;
    std::unique_ptr<int> owned;
  };
  const auto collate = [](std::span<std::int64_t> samples) { return Fixed{std::ssize(samples), {}}; };
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Files{}, {.batch_size = 5, .workers = workers}, {}, collate);
  Values counts;
  for (const Fixed& batch : loader) counts.push_back(batch.count);
  CHECK(counts == Values{5, 5, 2});
}

TEST_CASE("more workers than samples, and batches larger than the data, change nothing") {
  const Watchdog watchdog("many workers");
  const std::int64_t workers = GENERATE(0, 1, 16);
  PinnedPrefetchLoader loader(Files{.count = 3}, {.batch_size = 2, .workers = workers}, {}, kKeep);
  for (int epoch = 0; epoch < 20; ++epoch) CHECK(epoch_of(loader) == Batches{{0, 1}, {2}});
  PinnedPrefetchLoader large(Files{.count = 3}, {.batch_size = 100, .workers = workers}, {}, kKeep);
  CHECK(epoch_of(large) == Batches{{0, 1, 2}});
}
