// SPDX-License-Identifier: MIT
// Streams of unknown length: read by one worker at a time, transformed by all of them.
// Tests data/loader: stream_source
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/watchdog.hpp"
#include "unit/data/values.hpp"

#include <atomic>
#include <chrono>
#include <numeric>
#include <ranges>
#include <set>

using namespace looptorch;
using testing::Watchdog;
using namespace values;

namespace {

/// 0, 1, ... up to `count`, once.
struct Once {
  std::int64_t count = 10;
  std::int64_t at = 0;
  std::optional<std::int64_t> next() { return at < count ? std::optional(at++) : std::nullopt; }
};

/// Again in each epoch, from 100 times its number on; notices when two threads read at once.
struct Again {
  std::int64_t count = 10;
  std::int64_t fails_at = -1;
  std::int64_t at = 0, first = 0;
  std::atomic<int>* reading = nullptr;
  std::atomic<int>* read = nullptr;

  void begin(std::int64_t epoch) {
    at = 0;
    first = 100 * epoch;
  }
  std::optional<std::int64_t> next() {
    if (reading && ++*reading != 1) std::terminate();
    if (read) ++*read;
    if (at == 3) std::this_thread::sleep_for(std::chrono::microseconds(300));
    const std::optional<std::int64_t> value =
        at < count ? std::optional(first + at++) : std::optional<std::int64_t>();
    if (reading) --*reading;
    if (value == first + fails_at) throw std::runtime_error("the connection is gone");
    return value;
  }
};

/// Doubles in the workers, and draws there.
struct Transforming : Again {
  std::set<std::int64_t> broken = {};
  std::pair<std::int64_t, std::uint64_t> transform(std::int64_t value, const SampleContext& context) const {
    if (broken.count(value)) throw std::runtime_error("cut off");
    if (value % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
    return {2 * value, context.seed};
  }
  std::vector<std::pair<std::int64_t, std::uint64_t>> collate(
      std::span<std::pair<std::int64_t, std::uint64_t>> samples) const {
    return {samples.begin(), samples.end()};
  }
};

template <class Loader>
Batches epoch_of(Loader& loader) {
  Batches batches;
  for (const Values& batch : loader) batches.push_back(batch);
  return batches;
}

static_assert(StreamDataset<Once> && !StreamDataset<const Once> && !Dataset<Once>);
static_assert(!RestartableStream<Once> && RestartableStream<Again>);
using OnceLoader = decltype(PinnedPrefetchLoader(Once{}, {}, SequentialSampler{}, kKeep));
using AgainLoader = decltype(PinnedPrefetchLoader(Again{}, {}, SequentialSampler{}, kKeep));
static_assert(std::ranges::input_range<OnceLoader> && !std::ranges::sized_range<OnceLoader>);
template <class Loader>
concept CanBeginEpochs = requires(Loader& loader) {
  loader.begin_epoch(1);
};
static_assert(!CanBeginEpochs<OnceLoader> && CanBeginEpochs<AgainLoader>);

}  // namespace

TEST_CASE("a stream comes in order whatever the number of workers, read by one at a time") {
  const Watchdog watchdog("stream");
  const std::int64_t workers = GENERATE(0, 1, 2, 7);
  std::atomic<int> reading = 0;
  PinnedPrefetchLoader loader(Again{.count = 8, .reading = &reading}, {.batch_size = 3, .workers = workers},
                              {}, kKeep);
  CHECK(epoch_of(loader) == Batches{{0, 1, 2}, {3, 4, 5}, {6, 7}});
  CHECK(epoch_of(loader) == Batches{{100, 101, 102}, {103, 104, 105}, {106, 107}});
  CHECK((loader.position() == LoaderPosition{2, 0}));
  PinnedPrefetchLoader dropping(Again{.count = 8}, {.batch_size = 3, .workers = workers, .drop_last = true},
                                {}, kKeep);
  CHECK(epoch_of(dropping) == Batches{{0, 1, 2}, {3, 4, 5}});
  PinnedPrefetchLoader empty(Again{.count = 0}, {.workers = workers}, {}, kKeep);
  CHECK(empty.begin() == empty.end());
}

TEST_CASE("a stream is held by reference where it has a name, and read by the loader alone") {
  Once stream;
  PinnedPrefetchLoader loader(stream, {.batch_size = 4, .workers = 2}, {}, kKeep);
  static_assert(
      std::is_same_v<decltype(loader),
                     PinnedPrefetchLoader<Once&, SequentialSampler, std::remove_const_t<decltype(kKeep)>>>);
  CHECK(epoch_of(loader) == Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  CHECK(stream.at == 10);
}

TEST_CASE("a stream that cannot begin again says so") {
  PinnedPrefetchLoader loader(Once{}, {.batch_size = 4, .workers = 1}, {}, kKeep);
  for ([[maybe_unused]] const Values& batch : loader) break;
  CHECK_THROWS_WITH(loader.begin(),
                    "PinnedPrefetchLoader: this stream was read once and cannot begin again; give it "
                    "`begin(std::int64_t epoch)`");
}

TEST_CASE("workers transform a stream's samples, each with a seed of its own") {
  const Watchdog watchdog("transformed stream");
  const auto all = [](std::int64_t workers, std::int64_t batch_size) {
    PinnedPrefetchLoader loader(Transforming{{.count = 20}},
                                {.batch_size = batch_size, .workers = workers, .seed = 5});
    loader.begin_epoch(1);
    std::vector<std::pair<std::int64_t, std::uint64_t>> samples;
    for (const auto& batch : loader) samples.insert(samples.end(), batch.begin(), batch.end());
    return samples;
  };
  const auto expected = all(0, 1);
  REQUIRE(expected.size() == 20);
  for (std::int64_t i = 0; i < 20; ++i) {
    CHECK(expected[i].first == 2 * (100 + i));
    CHECK(expected[i].second == sample_context(5, 1, i).seed);
  }
  CHECK(all(1, 3) == expected);
  CHECK(all(4, 3) == expected);
}

TEST_CASE("transforms run side by side") {
  const Watchdog watchdog("parallel transforms");
  struct Meeting : Again {
    std::atomic<int>* inside;
    std::int64_t transform(std::int64_t value) const {
      ++*inside;
      while (*inside < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until three have met
      return value;
    }
  };
  std::atomic<int> inside = 0;
  PinnedPrefetchLoader loader(Meeting{{.count = 3}, &inside}, {.workers = 3}, {}, kKeep);
  CHECK(epoch_of(loader) == Batches{{0}, {1}, {2}});
}

TEST_CASE("a buffer shuffles a stream anew in each epoch, and holds no more than its size") {
  const Watchdog watchdog("shuffled stream");
  std::atomic<int> read = 0;
  const auto epochs = [&read](std::int64_t workers, ShuffleBuffer buffer) {
    PinnedPrefetchLoader loader(Again{.count = 50, .read = &read}, {.batch_size = 4, .workers = workers},
                                buffer, kKeep);
    return std::pair{epoch_of(loader), epoch_of(loader)};
  };
  const auto expected = epochs(0, {.size = 10, .seed = 3});
  for (const std::int64_t workers : {1, 4}) CHECK(epochs(workers, {.size = 10, .seed = 3}) == expected);
  CHECK(epochs(0, {.size = 10, .seed = 4}) != expected);
  Values flat, second;
  for (const Values& batch : expected.first) flat.insert(flat.end(), batch.begin(), batch.end());
  for (const Values& batch : expected.second) second.insert(second.end(), batch.begin(), batch.end());
  for (std::int64_t& value : second) value -= 100;
  CHECK(flat != second);
  for (std::size_t i = 0; i < flat.size(); ++i) CHECK(flat[i] < static_cast<std::int64_t>(i) + 10);
  Values sorted = flat, all(50);
  std::iota(all.begin(), all.end(), 0);
  CHECK(sorted != all);
  std::ranges::sort(sorted);
  CHECK(sorted == all);
  CHECK(epochs(0, {.size = 0}).first.front() == Values{0, 1, 2, 3});

  read = 0;
  PinnedPrefetchLoader first(Again{.count = 50, .read = &read}, {.batch_size = 4, .workers = 0},
                             ShuffleBuffer{.size = 10}, kKeep);
  auto batch = first.begin();
  CHECK(read == 13);  // the buffer filled, then one for one
  CHECK(std::ranges::equal(batch.indices(), *batch));
  CHECK_THROWS_WITH(PinnedPrefetchLoader(Once{}, {}, ShuffleBuffer{.size = -1}, kKeep),
                    "ShuffleBuffer: size is -1; it must be 0 or more");
}

TEST_CASE("a stream that has ended is not asked again") {
  struct Ends {
    int left = 6;
    bool ended = false;
    std::optional<std::int64_t> next() {
      if (ended) throw std::logic_error("asked behind its end");
      ended = left == 0;
      return ended ? std::optional<std::int64_t>() : std::optional<std::int64_t>(left--);
    }
  };
  const std::int64_t workers = GENERATE(0, 2);
  const auto count = [&](auto order) {
    PinnedPrefetchLoader loader(Ends{}, {.batch_size = 2, .workers = workers}, order, kKeep);
    std::size_t samples = 0;
    for (const Values& batch : loader) samples += batch.size();
    return samples;
  };
  CHECK(count(SequentialSampler{}) == 6);
  CHECK(count(ShuffleBuffer{.size = 4}) == 6);
  CHECK(count(StreamShard{.rank = 1, .world_size = 4}) == 2);
}

TEST_CASE("a stream that has failed is not read on") {
  const Watchdog watchdog("failed stream");
  std::atomic<int> read = 0;
  for (const std::int64_t workers : {0, 4}) {
    read = 0;
    PinnedPrefetchLoader loader(Again{.count = 1000, .fails_at = 5, .read = &read},
                                {.batch_size = 2, .workers = workers, .prefetch = 8}, {}, kKeep);
    CHECK_THROWS_WITH(epoch_of(loader), Catch::Contains("the connection is gone"));
    CHECK(read == 6);
  }
}

TEST_CASE("a stream is read past what is skipped, and a position restored") {
  const Watchdog watchdog("skipped stream");
  const auto make = [](std::int64_t workers, std::int64_t size = 10) {
    return PinnedPrefetchLoader(Again{.count = 50}, {.batch_size = 4, .workers = workers},
                                ShuffleBuffer{.size = size, .seed = 3}, kKeep);
  };
  auto whole = make(0);
  whole.begin_epoch(1);
  const Batches expected = epoch_of(whole);
  for (const std::int64_t workers : {0, 2, 3}) {
    auto first = make(workers);
    first.begin_epoch(1);
    auto batch = first.begin();
    for (std::int64_t done = 0; batch != first.end(); ++batch, ++done) {
      CHECK(batch.number() == done);
      auto second = make(2 - workers / 2);
      second.load_state_dict(first.state_dict());
      CHECK(epoch_of(second) == Batches(expected.begin() + done, expected.end()));
    }
  }
  auto other = make(0, 20);
  CHECK_THROWS_WITH(
      other.load_state_dict(whole.state_dict()),
      Catch::Contains("ShuffleBuffer, size 20, seed 3 here, ShuffleBuffer, size 10, seed 3 in the state"));
  auto beyond = make(1);
  beyond.skip(1000);
  CHECK(beyond.begin() == beyond.end());
  CHECK_THROWS_WITH(beyond.skip(-1), "PinnedPrefetchLoader: cannot skip -1 of a stream's batches");
}

TEST_CASE(
    "a transform that fails is reported or skipped by the sample's number; a stream that fails has ended") {
  const Watchdog watchdog("failing stream");
  const std::int64_t workers = GENERATE(0, 1, 3);
  const Transforming broken{{.count = 7}, {2, 3, 5}};
  PinnedPrefetchLoader failing(Transforming(broken), {.batch_size = 2, .workers = workers});
  auto batch = failing.begin();
  CHECK_THROWS_WITH(++batch, "sample 2 (epoch 0, batch 1): cut off");
  CHECK(batch == failing.end());
  PinnedPrefetchLoader skipping(Transforming(broken),
                                {.batch_size = 2, .workers = workers, .on_error = OnError::skip});
  Values sizes, firsts;
  for (auto it = skipping.begin(); it != skipping.end(); ++it) {
    sizes.push_back(std::ssize(*it));
    firsts.push_back(it.indices().front());
  }
  CHECK(sizes == Values{2, 1, 1});
  CHECK(firsts == Values{0, 4, 6});
  CHECK(skipping.skipped().count == 3);
  CHECK(skipping.skipped().first[2].index == 5);

  const OnError on_error = GENERATE(OnError::fail, OnError::skip);
  PinnedPrefetchLoader gone(Again{.count = 9, .fails_at = 5},
                            {.batch_size = 2, .workers = workers, .on_error = on_error}, {}, kKeep);
  Batches received;
  try {
    for (const Values& values : gone) received.push_back(values);
    FAIL("no exception");
  } catch (const LoaderError& error) {
    CHECK(std::string(error.what()) == "the stream failed in batch 2 of epoch 0: the connection is gone");
    CHECK((error.batch == 2 && error.sample == -1));
  }
  CHECK(received == Batches{{0, 1}, {2, 3}});
}

TEST_CASE("a stream's beginning is waited for, its turns are no work, and far is not long") {
  const Watchdog watchdog("slow stream");
  struct Slow {
    int at = 0;
    void begin(std::int64_t) {
      at = 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::optional<std::int64_t> next() {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return at < 20 ? std::optional<std::int64_t>(at++) : std::nullopt;
    }
  };
  PinnedPrefetchLoader loader(Slow{}, {.workers = 4}, {}, kKeep);
  epoch_of(loader);
  CHECK(loader.stats().wait_seconds >= 0.05 + 20 * 0.005);
  const auto& seconds = loader.stats().worker_seconds;
  CHECK(std::accumulate(seconds.begin(), seconds.end(), 0.0) < 2 * loader.stats().wait_seconds);
  loader.skip(std::int64_t(1) << 60);
  CHECK(loader.begin() == loader.end());
}

TEST_CASE("leaving a stream early waits for one sample") {
  const Watchdog watchdog("left stream");
  struct Endless {
    std::int64_t at = 0;
    std::optional<at::Tensor> next() {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return torch::tensor({at++});
    }
  };
  const std::int64_t workers = GENERATE(0, 1, 4);
  std::chrono::steady_clock::time_point left;
  {
    PinnedPrefetchLoader loader(Endless{}, {.batch_size = 10, .workers = workers});
    for (const at::Tensor& batch : loader) {
      CHECK(batch.sizes() == at::IntArrayRef{10, 1});
      break;
    }
    PinnedPrefetchLoader other(Endless{}, {.batch_size = 10, .workers = workers});
    auto batch = other.begin();
    left = std::chrono::steady_clock::now();
  }
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - left).count() <
        0.15);  // a batch: 0.2
}

TEST_CASE("the policy form loads streams too") {
  const PinnedPrefetchLoader policy({.batch_size = 4, .workers = 1}, ShuffleBuffer{.size = 0}, kKeep);
  Once stream;
  auto loader = policy.make(stream);
  CHECK(epoch_of(loader) == Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
}

namespace {

/// Numbers that can be gone on from; counts what is read.
struct Resumable : Again {
  StateDict state_dict() const {
    StateDict state;
    state.set("at", at);
    state.set("first", first);
    return state;
  }
  void load_state_dict(const StateDict& state) {
    at = state.get<std::int64_t>("at");
    first = state.get<std::int64_t>("first");
  }
  std::pair<std::int64_t, std::uint64_t> transform(std::int64_t value, const SampleContext& context) const {
    return {value, context.seed};
  }
};
static_assert(ResumableStream<Resumable> && !ResumableStream<Again>);

const auto kKeepPairs = [](std::span<std::pair<std::int64_t, std::uint64_t>> samples) {
  return std::vector(samples.begin(), samples.end());
};

template <class Stream, class Order>
auto all_of(Stream stream, const LoaderOptions& options, const Order& order) {
  PinnedPrefetchLoader loader(std::move(stream), options, order, kKeep);
  Values all;
  for (const Values& batch : loader) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

}  // namespace

TEST_CASE("a stream that fails to begin continues at the saved position when it is asked again") {
  struct FailsOnce : Resumable {
    std::shared_ptr<bool> fails = std::make_shared<bool>(true);
    void load_state_dict(const StateDict& state) {
      if (std::exchange(*fails, false)) throw std::runtime_error("the network is down");
      Resumable::load_state_dict(state);
    }
  };
  const LoaderOptions options{.batch_size = 4};
  PinnedPrefetchLoader first(Resumable{{.count = 12}}, options, StreamShard{}, kKeepPairs);
  auto batch = first.begin();
  ++batch;
  PinnedPrefetchLoader second(FailsOnce{{{.count = 12}}}, options, StreamShard{}, kKeepPairs);
  second.load_state_dict(first.state_dict());
  CHECK_THROWS(second.begin());
  auto again = second.begin();
  CHECK(again.number() == 1);
  CHECK((*again).front().first == 4);
}

TEST_CASE("a stream that tells where it stands continues there, with the same samples and draws") {
  const Watchdog watchdog("resumed stream");
  const std::int64_t workers = GENERATE(0, 1, 4), share = GENERATE(0, 1);
  const StreamShard order{.rank = share, .world_size = 1 + share};
  std::atomic<int> read = 0;
  const auto loader = [&] {
    Resumable stream{{.count = 40}};
    stream.read = &read;
    return PinnedPrefetchLoader(std::move(stream), {.batch_size = 3, .workers = workers, .seed = 5}, order,
                                kKeepPairs);
  };
  auto whole = loader();
  whole.begin_epoch(2);
  std::vector<std::vector<std::pair<std::int64_t, std::uint64_t>>> batches;
  std::vector<StateDict> states;
  for (auto batch = whole.begin(); batch != whole.end(); ++batch) {
    states.push_back(whole.state_dict());  // this batch is not done with
    batches.push_back(*batch);
  }
  REQUIRE(batches.size() == std::size_t(share == 0 ? 14 : 7));
  for (std::size_t done = 0; done < batches.size(); ++done) {
    auto resumed = loader();
    resumed.load_state_dict(states[done]);
    if (done > 0) CHECK(resumed.state_dict().contains("stream.stream.at"));
    read = 0;
    std::size_t at = done;
    for (const auto& batch : resumed) CHECK(batch == batches.at(at++));
    CHECK(at == batches.size());
    const auto left = 40 - 3 * (1 + share) * std::int64_t(done);
    CHECK(read == left + (share == 0 || left % 2 == 0));  // and the end
    CHECK(resumed.position() == LoaderPosition{3, 0});
    if (done == 3) {  // and the next epoch is whole
      auto next = loader();
      next.begin_epoch(3);
      auto expected = next.begin();
      for (const auto& batch : resumed) {
        CHECK(batch == *expected);
        ++expected;
      }
      CHECK(expected == next.end());
    }
  }
}

TEST_CASE("where samples lie in a buffer, a stream is read past what is done") {
  const auto loader = [] {
    return PinnedPrefetchLoader(Resumable{{.count = 20}}, {.batch_size = 4, .workers = 1},
                                ShuffleBuffer{.size = 5, .seed = 1}, kKeepPairs);
  };
  auto whole = loader();
  auto batch = whole.begin();
  ++batch;
  const StateDict state = whole.state_dict();
  CHECK(state.under("stream").empty());
  auto resumed = loader();
  resumed.load_state_dict(state);
  CHECK(*resumed.begin() == *batch);
}

TEST_CASE("ranks share a stream: disjoint, complete, or even, each sample with its number in the whole") {
  const Watchdog watchdog("stream shares");
  for (const std::int64_t world : {1, 2, 3, 7})
    for (const std::int64_t count : {0, 1, 6, 20, 21})
      for (const bool even : {false, true})
        for (const std::int64_t buffer : {0, 4}) {
          CAPTURE(world, count, even, buffer);
          Values all;
          for (std::int64_t rank = 0; rank < world; ++rank) {
            const StreamShard share{rank, world, even, {.size = buffer, .seed = 3}};
            const Values mine = all_of(Once{count}, {.batch_size = 2, .workers = 2}, share);
            CHECK(std::ranges::all_of(mine, [&](auto value) { return value % world == rank; }));
            if (even) CHECK(std::ssize(mine) == count / world);
            all.insert(all.end(), mine.begin(), mine.end());
          }
          std::ranges::sort(all);
          Values expected(std::size_t(even ? count / world * world : count));
          std::iota(expected.begin(), expected.end(), 0);
          CHECK(all == expected);
        }
  PinnedPrefetchLoader loader(Once{6}, {.batch_size = 2}, StreamShard{.rank = 1, .world_size = 2}, kKeep);
  const auto first = loader.begin();
  CHECK(std::ranges::equal(first.indices(), Values{1, 3}));
  CHECK_THROWS_WITH(PinnedPrefetchLoader(Once{}, {}, StreamShard{.rank = 2, .world_size = 2}, kKeep),
                    "StreamShard: rank 2 of world size 2");
}
