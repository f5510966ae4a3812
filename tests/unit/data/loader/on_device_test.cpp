// SPDX-License-Identifier: MIT
// Transforms of whole batches, on a CPU: where a batch is, it stays. tests/device/loader_test.cpp has the rest.
#include "support/precompiled.hpp"

#include <looptorch/audio/log_mel.hpp>
#include <looptorch/data/loader/on_device.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "support/watchdog.hpp"

#include <ranges>

using namespace looptorch;
using testing::Watchdog;

namespace {

/// Sample i is 600 sound samples, of which the first is i.
struct Sounds {
  std::int64_t size() const { return 7; }
  at::Tensor get(std::int64_t index) const {
    at::Tensor sound = torch::sin(torch::arange(600, torch::kFloat) * (0.01 * double(index + 1)));
    sound[0] = double(index);
    return sound;
  }
};

PinnedPrefetchLoader<Sounds, RandomSampler> sounds(std::int64_t workers, std::int64_t batch_size = 3) {
  return {Sounds{}, {.batch_size = batch_size, .workers = workers, .seed = 5}, RandomSampler{.seed = 2}};
}

using Firsts =
    decltype(OnDevice(sounds(0), at::kCPU, [](const at::Tensor& batch) { return batch.select(1, 0); }));
static_assert(std::ranges::input_range<Firsts> && std::ranges::sized_range<Firsts>);

}  // namespace

TEST_CASE("a transform gets whole batches, and gives features as one by one") {
  const Watchdog watchdog("batched log-mel");
  const audio::LogMel log_mel({.max_samples = 600});
  const std::int64_t workers = GENERATE(0, 2);
  auto plain = sounds(workers);
  OnDevice mels(sounds(workers), at::kCPU, log_mel);
  CHECK(mels.size() == 3);
  auto mel = mels.begin();
  for (const at::Tensor& sound : plain) {
    REQUIRE(mel != mels.end());
    REQUIRE(mel->sizes() == at::IntArrayRef({sound.size(0), 80, 3}));
    for (std::int64_t row = 0; row < sound.size(0); ++row) {
      CHECK(torch::equal((*mel)[row], log_mel(sound[row])));
      CHECK(mel.indices()[std::size_t(row)] == sound[row][0].item<std::int64_t>());
    }
    ++mel;
  }
  CHECK(mel == mels.end());
  CHECK_THROWS_AS(*mel, UsageError);
}

TEST_CASE("what a transform draws depends on seed, epoch and sample only") {
  const auto draws = [](std::int64_t workers, std::int64_t batch_size) {
    OnDevice drawn(sounds(workers, batch_size), at::kCPU, [](const at::Tensor&, const BatchContext& context) {
      std::vector<std::pair<std::int64_t, std::uint64_t>> seeds;
      for (std::size_t row = 0; row < context.indices.size(); ++row) {
        CHECK(context.sample(row).epoch == 4);
        seeds.emplace_back(context.indices[row], context.sample(row).seed);
      }
      return seeds;
    });
    drawn.begin_epoch(4);
    std::vector<std::pair<std::int64_t, std::uint64_t>> all;
    for (const auto& seeds : drawn) all.insert(all.end(), seeds.begin(), seeds.end());
    std::ranges::sort(all);
    return all;
  };
  const auto expected = draws(0, 1);
  CHECK(expected.size() == 7);
  CHECK(expected[0].second != expected[1].second);
  CHECK(expected[3].second !=
        sample_context(5, 4, 3).seed);  // a dataset below that draws must not draw alike
  CHECK(draws(2, 3) == expected);
}

TEST_CASE("a loader with a transform has the loader's positions, statistics and contract") {
  auto loader = sounds(1);
  OnDevice doubled(loader, at::kCPU, [](const at::Tensor& batch) { return batch * 2; });
  static_assert(std::is_same_v<decltype(doubled)::Batch, at::Tensor>);
  auto batch = doubled.begin();
  ++batch;
  CHECK(batch.number() == 1);
  CHECK((doubled.position() == LoaderPosition{0, 1}));
  CHECK(doubled.stats().batches == 2);
  CHECK(doubled.shared_stats().get() == loader.shared_stats().get());
  auto other = sounds(0);
  OnDevice second(other, at::kCPU, [](const at::Tensor& batch) { return batch * 2; });
  second.load_state_dict(doubled.state_dict());
  CHECK(torch::equal(*second.begin(), *batch));
  CHECK(doubled.identity().values().size() == 5);
  CHECK(doubled.skipped().count == 0);
  CHECK(doubled.options().batch_size == 3);
  doubled.begin_epoch(0);
  doubled.skip(3);
  CHECK(doubled.begin() == doubled.end());
}

TEST_CASE("a transform that fails is reported with its batch, once, and the next batch follows") {
  OnDevice picky(sounds(1), at::kCPU, [at_batch = std::make_shared<int>()](const at::Tensor& batch) {
    if ((*at_batch)++ == 1) throw std::runtime_error("no room");
    return batch;
  });
  auto batch = picky.begin();
  CHECK_THROWS_WITH(++batch, "batch 1 of epoch 0 could not be transformed: no room");
  CHECK_THROWS_AS(*batch, UsageError);
  ++batch;
  CHECK(batch.number() == 2);
  CHECK(batch->size(0) == 1);
}

TEST_CASE(
    "a transform that fails at the first batch is thrown by begin(), once, and the loader continues behind") {
  const Watchdog watchdog("first transform");
  int calls = 0;
  const auto loader = [&](std::int64_t workers) {
    return OnDevice(sounds(workers), at::kCPU, [&calls](const at::Tensor& batch) {
      if (calls++ == 0) throw std::out_of_range("no room");
      return batch;
    });
  };
  const std::int64_t workers = GENERATE(0, 2);
  auto picky = loader(workers);
  picky.begin_epoch(3);
  std::vector<std::int64_t> numbers;
  try {
    for (auto batch = picky.begin(); batch != picky.end(); ++batch) numbers.push_back(batch.number());
    FAIL("no exception");
  } catch (const LoaderError& error) {
    CHECK(std::string(error.what()) == "batch 0 of epoch 3 could not be transformed: no room");
    CHECK((error.epoch == 3 && error.batch == 0 && error.sample == -1));
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    CHECK((picky.position() == LoaderPosition{3, 0}));  // the batch is not done with
    CHECK(calls == 1);
    picky.begin_epoch(error.epoch);
    picky.skip(error.batch + 1);
  }
  for (auto batch = picky.begin(); batch != picky.end(); ++batch) numbers.push_back(batch.number());
  CHECK(numbers == std::vector<std::int64_t>{1, 2});

  calls = 0;
  torch::nn::Linear net(600, 1);
  torch::optim::SGD sgd(net->parameters(), 1e-3);
  Trainer trainer(net, sgd,
                  [](torch::nn::Linear& net, const at::Tensor& batch) { return net(batch).pow(2).mean(); });
  auto fitted = loader(workers);
  CHECK_THROWS_WITH(trainer.fit(fitted, {.epochs = 1}),
                    "batch 0 of epoch 0 could not be transformed: no room");
  CHECK(trainer.fit(fitted, {.epochs = 1}).steps == 3);  // nothing was done: fit begins there again
}

TEST_CASE("a begin() within the loop leaves the transformed batch in hand") {
  OnDevice same(sounds(1), at::kCPU, [](const at::Tensor& batch) { return batch; });
  auto outer = same.begin();
  const at::Tensor before = outer->clone();
  for ([[maybe_unused]] const at::Tensor& inner : same) {
  }
  CHECK(torch::equal(*outer, before));
  CHECK(outer.number() == 0);
  CHECK_THROWS_WITH(++outer, Catch::Contains("a loader of its own"));
  CHECK_THROWS_AS(*outer, UsageError);
  CHECK(outer == same.end());
}

TEST_CASE("it may be moved while an epoch is open") {
  const auto twice = [](const at::Tensor& batch) { return batch * 2; };
  std::optional first(OnDevice(sounds(1), at::kCPU, twice));
  auto batch = first->begin();
  const auto second = std::move(*first);
  first.reset();
  ++batch;
  CHECK(batch.number() == 1);
}

TEST_CASE("transforms see no gradients, and fit takes their batches") {
  torch::nn::Linear net(600, 1);
  torch::optim::SGD sgd(net->parameters(), 1e-3);
  bool gradients = false;
  Trainer trainer(net, sgd,
                  [](torch::nn::Linear& net, const at::Tensor& batch) { return net(batch).pow(2).mean(); });
  const auto scale = [&gradients](const at::Tensor& batch) {
    gradients |= torch::GradMode::is_enabled();
    return batch * 0.1;
  };
  const auto result = trainer.fit(OnDevice(sounds(2), at::kCPU, scale), {.epochs = 3});
  CHECK(result.steps == 9);
  CHECK_FALSE(gradients);
}
