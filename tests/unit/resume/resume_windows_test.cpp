// SPDX-License-Identifier: MIT
// A run that goes on with another batch size and accumulation has the same samples in every window, with
// every sampler and loader, in the middle of an epoch and at its short last window: equal up to the order of
// summation.
// Tests data/loader: regrouping
// Tests resume: saved_feed
#include "support/precompiled.hpp"

#include <looptorch/data/loader/on_device.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>
#include <looptorch/data/samplers/weighted_sampler.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using lt::detail::WindowShape;

namespace {

struct WindowBatch {
  at::Tensor features, labels;  // [B, 4], [B]
  std::vector<std::int64_t> samples;
};

constexpr std::int64_t kSamples = 44;

/// A sample with noise of its own in each epoch.
WindowBatch noisy_sample(std::int64_t index, const lt::SampleContext& context) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(context.seed);
  const double at = static_cast<double>(index);
  return {torch::tensor({std::sin(at), std::cos(2 * at), std::sin(3 * at), 1.0}, at::kDouble) +
              0.1 * torch::randn({4}, generator, at::kDouble),
          torch::tensor(index % 3),
          {index}};
}

WindowBatch stacked(std::span<WindowBatch> samples) {
  std::vector<at::Tensor> features, labels;
  std::vector<std::int64_t> indices;
  for (const WindowBatch& sample : samples) {
    features.push_back(sample.features), labels.push_back(sample.labels);
    indices.push_back(sample.samples.front());
  }
  return {torch::stack(features), torch::stack(labels), indices};
}

struct NoisySamples {
  std::set<std::int64_t> damaged = {};

  [[nodiscard]] std::int64_t size() const { return kSamples; }
  [[nodiscard]] WindowBatch get(std::int64_t index, const lt::SampleContext& context) const {
    if (damaged.count(index)) throw std::runtime_error("damaged");
    return noisy_sample(index, context);
  }
  [[nodiscard]] WindowBatch collate(std::span<WindowBatch> samples) const { return stacked(samples); }
};

struct NoisyStream {
  std::int64_t next_index = 0;

  void begin(std::int64_t) { next_index = 0; }
  std::optional<std::int64_t> next() {
    return next_index < kSamples ? std::optional(next_index++) : std::nullopt;
  }
  [[nodiscard]] WindowBatch transform(std::int64_t index, const lt::SampleContext& context) const {
    return noisy_sample(index, context);
  }
  [[nodiscard]] WindowBatch collate(std::span<WindowBatch> samples) const { return stacked(samples); }
};

/// How a run ended, and which samples were in each of its windows, each window sorted.
struct WindowsRun {
  std::vector<at::Tensor> weights;
  std::vector<std::vector<std::int64_t>> windows;
  lt::FitResult result;
  lt::SnapshotContents contents;
};

template <class Loader>
WindowsRun train_windows(Loader&& loader, std::int64_t accumulate, const std::filesystem::path& folder,
                         lt::FitOptions options, std::int64_t end = 0) {
  WindowsRun run;
  std::vector<std::int64_t> window;
  auto net = toy::net(3);
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  const auto objective = [&](toy::Net& net, const WindowBatch& batch) {
    window.insert(window.end(), batch.samples.begin(), batch.samples.end());
    return lt::Loss{.value = torch::nn::functional::cross_entropy(net(batch.features), batch.labels),
                    .weight = batch.labels.size(0)};
  };
  const auto note = [&](lt::WindowContext&) {
    std::sort(window.begin(), window.end());
    run.windows.push_back(std::exchange(window, {}));
  };
  lt::Trainer trainer(
      net, optimizer, objective, lt::Accumulate<>{accumulate}, lt::On{lt::kObserve, note},
      lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = end}},
      lt::SnapshotEvery{.folder = folder, .steps = options.resume.empty() ? 1 : 0, .keep = 0});
  run.result = trainer.fit(loader, options);
  run.contents = trainer.snapshot();
  for (const auto& weight : net->parameters()) run.weights.push_back(weight.detach().clone());
  return run;
}

/// The run that goes on is the one that was not cut, and its last snapshot counts as that one's does.
void check_same(const WindowsRun& uncut, const WindowsRun& resumed, std::int64_t cut) {
  INFO("cut at " << cut);
  CHECK(resumed.windows ==
        std::vector(uncut.windows.begin() + static_cast<std::ptrdiff_t>(cut), uncut.windows.end()));
  for (std::size_t i = 0; i < uncut.weights.size(); ++i)
    CHECK((uncut.weights[i] - resumed.weights[i]).abs().max().item<double>() < 1e-12);
  CHECK(resumed.result.loss == Approx(uncut.result.loss).epsilon(1e-12));
  CHECK(resumed.result.steps == uncut.result.steps);
  for (const char* part : {"loader", "micro_batches", "batch_size", "run.progress", "listed"}) {
    const auto here = resumed.contents.state.under(part), there = uncut.contents.state.under(part);
    CHECK(lt::detail::compare_values(here, there, part, "the uncut run").empty());
  }
}

/// Cuts a run of one shape after each of its windows, and goes on with the other.
template <class Make>
void check_windows(const Make& make, WindowShape from, WindowShape to, std::int64_t max_steps = 14) {
  INFO(lt::detail::describe(from) << " read as " << lt::detail::describe(to));
  TemporaryFolder folder;
  lt::FitOptions whole{.epochs = 3, .max_steps = max_steps};
  if constexpr (std::ranges::sized_range<decltype(make(1))>) whole.max_steps.reset();
  const auto uncut = train_windows(make(from.batch_size), from.micro_batches, folder.path(), whole);
  REQUIRE(uncut.result.steps > 8);
  const auto snapshots = lt::list_snapshots(folder.path());
  for (const auto& snapshot : snapshots) {
    if (snapshot.step == uncut.result.steps) continue;
    TemporaryFolder other;
    lt::FitOptions options = whole;
    options.resume = snapshot.path;
    const auto resumed = train_windows(make(to.batch_size), to.micro_batches, other.path(), options);
    check_same(uncut, resumed, snapshot.step);
    REQUIRE(resumed.result.resumed->changed.size() == 1);
    CHECK(resumed.result.resumed->changed[0] == "a window of " + lt::detail::describe(from) + " is read as " +
                                                    lt::detail::describe(to) + ", the same samples");
  }
}

/// Makes loaders of a dataset by batch size.
template <class Order>
auto ordered(Order order, lt::LoaderOptions options = {.workers = 1}, NoisySamples data = {}) {
  return [=](std::int64_t batch_size) {
    lt::LoaderOptions with = options;
    with.batch_size = batch_size, with.seed = 5;
    return lt::PinnedPrefetchLoader(NoisySamples(data), with, order);
  };
}

std::vector<std::int64_t> lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < kSamples; ++i) lengths.push_back(10 + 7 * (i % 9));
  return lengths;
}

auto by_length(std::int64_t budget) {
  return [=](std::int64_t batch_size) {
    const lt::LengthBucketSampler sampler(lengths(), {.budget = budget, .batch_size = batch_size, .seed = 4});
    return lt::PinnedPrefetchLoader(NoisySamples(), {.workers = 1, .seed = 5}, sampler);
  };
}

}  // namespace

TEST_CASE("windows stay with smaller and larger batches, sequential and shuffled") {
  check_windows(ordered(lt::SequentialSampler{}), {1, 8}, {8, 1});
  check_windows(ordered(lt::RandomSampler{.seed = 2}), {1, 8}, {2, 4});
  check_windows(ordered(lt::RandomSampler{.seed = 2}), {8, 1}, {1, 8});
  check_windows(ordered(lt::RandomSampler{.seed = 2}), {2, 6}, {3, 4});
  check_windows(ordered(lt::RandomSampler{.seed = 2}, {.workers = 2, .drop_last = true}), {1, 8}, {8, 1});
}

TEST_CASE("windows stay with weighted and shared samplers, and on a device") {
  const std::vector<double> weights(kSamples, 1.0);
  check_windows(ordered(lt::WeightedSampler(weights, {.seed = 3})), {2, 4}, {8, 1});
  check_windows(ordered(lt::DistributedSampler({.rank = 1, .world_size = 2}, lt::RandomSampler{.seed = 2})),
                {1, 8}, {4, 2}, 8 + 1);
  const auto moved = [](std::int64_t batch_size) {
    return lt::OnDevice(ordered(lt::RandomSampler{.seed = 2})(batch_size), at::kCPU,
                        [](WindowBatch batch) { return batch; });
  };
  check_windows(moved, {1, 8}, {8, 1});
}

TEST_CASE("windows stay with batches by length, which are cut and never joined") {
  check_windows(by_length(0), {1, 8}, {8, 1});
  check_windows(by_length(0), {2, 6}, {6, 2}, 10);
  check_windows(by_length(200), {1, 8}, {4, 2});
  const auto shared = [](std::int64_t batch_size) {
    const lt::LengthBucketSampler sampler(lengths(), {.batch_size = batch_size, .seed = 4});
    return lt::PinnedPrefetchLoader(NoisySamples(), {.workers = 1, .seed = 5},
                                    lt::DistributedSampler({.rank = 1, .world_size = 2}, sampler));
  };
  check_windows(shared, {1, 8}, {8, 1}, 9);
}

TEST_CASE("windows stay with streams") {
  const auto stream = [](std::int64_t batch_size) {
    return lt::PinnedPrefetchLoader(NoisyStream(), {.batch_size = batch_size, .workers = 2, .seed = 5},
                                    lt::ShuffleBuffer{.size = 10, .seed = 1});
  };
  check_windows(stream, {1, 8}, {8, 1});
  check_windows(stream, {4, 2}, {2, 4});
}

namespace {

/// A stream that saves its position, and counts what is read of it.
struct SavingStream : NoisyStream {
  std::shared_ptr<std::atomic<std::int64_t>> reads = std::make_shared<std::atomic<std::int64_t>>(0);

  std::optional<std::int64_t> next() {
    const auto index = NoisyStream::next();
    *reads += index ? 1 : 0;
    return index;
  }
  [[nodiscard]] lt::StateDict state_dict() const {
    lt::StateDict state;
    state.set("next", next_index);
    return state;
  }
  void load_state_dict(const lt::StateDict& state) { next_index = state.get<std::int64_t>("next"); }
};

}  // namespace

TEST_CASE("a resumed fit reads a stream from the window on at which the snapshot stands") {
  const std::int64_t accumulate = GENERATE(1, 2);
  const bool is_moved = GENERATE(false, true);
  const SavingStream stream;
  const lt::LoaderOptions options{.batch_size = 4, .workers = 2, .prefetch = 3, .seed = 5};
  constexpr std::int64_t kEnd = 30;  // of the schedule: a stream has no length
  const auto train = [&](const std::filesystem::path& folder, const lt::FitOptions& fit) {
    auto loader = lt::PinnedPrefetchLoader(SavingStream(stream), options);
    if (!is_moved) return train_windows(loader, accumulate, folder, fit, kEnd);
    return train_windows(lt::OnDevice(std::move(loader), at::kCPU, [](WindowBatch batch) { return batch; }),
                         accumulate, folder, fit, kEnd);
  };
  TemporaryFolder folder;
  const auto uncut = train(folder.path(), {.epochs = 2});
  const std::int64_t windows = (kSamples / 4 + accumulate - 1) / accumulate;
  REQUIRE(uncut.result.steps == 2 * windows);
  for (std::int64_t cut = 1; cut < 2 * windows; ++cut) {
    TemporaryFolder other;
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(cut));
    *stream.reads = 0;
    const auto resumed = train(other.path(), {.epochs = 2, .resume = folder / name});
    check_same(uncut, resumed, cut);
    for (std::size_t i = 0; i < uncut.weights.size(); ++i) CHECK(resumed.weights[i].equal(uncut.weights[i]));
    const std::int64_t done = std::min(cut % windows * accumulate * 4, kSamples);
    const bool ends_short = cut == windows && kSamples / 4 % accumulate != 0;  // the stream has ended by then
    const std::int64_t left = (cut < windows || ends_short ? 2 : 1) * kSamples - done;
    CHECK(*stream.reads <= left + 4);  // the window's last batch is read again
  }
}

TEST_CASE("windows hold the same samples where some of them cannot be read") {
  // A window's last ones, an epoch's last ones, and all of a window.
  const NoisySamples data{.damaged = {6, 7, 9, 12, 16, 17, 18, 19, 20, 21, 22, 23, 42, 43}};
  const lt::LoaderOptions skipping{.workers = 1, .on_error = lt::OnError::skip};
  check_windows(ordered(lt::SequentialSampler{}, skipping, data), {1, 8}, {8, 1});
  check_windows(ordered(lt::SequentialSampler{}, skipping, data), {8, 1}, {4, 2});
}

TEST_CASE("a resumed run plans as many steps as the uninterrupted one, whatever cannot be read") {
  const NoisySamples data{.damaged = {6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 42, 43}};
  const lt::LoaderOptions skipping{.workers = 1, .on_error = lt::OnError::skip};
  const auto make = ordered(lt::RandomSampler{.seed = 2}, skipping, data);
  TemporaryFolder folder;
  const lt::FitOptions whole{.epochs = 3};
  const auto uncut = train_windows(make(2), 1, folder.path(), whole);
  REQUIRE(uncut.result.steps < 3 * kSamples / 2);
  for (const auto& snapshot : lt::list_snapshots(folder.path())) {
    if (snapshot.step % 6 != 0) continue;
    TemporaryFolder other;
    lt::FitOptions options = whole;
    options.resume = snapshot.path;
    const auto resumed = train_windows(make(2), 1, other.path(), options);
    INFO("cut at " << snapshot.step);
    for (std::size_t i = 0; i < uncut.weights.size(); ++i) CHECK(uncut.weights[i].equal(resumed.weights[i]));
    for (const char* part : {"run.progress", "policies"})
      CHECK(lt::detail::compare_values(resumed.contents.state.under(part), uncut.contents.state.under(part),
                                       part, "the uncut run")
                .empty());
  }
}

TEST_CASE("a run whose batches were cut is resumed by any others, also as it began") {
  constexpr std::int64_t kEnd = 20;  // of the schedule, whatever ends a fit
  TemporaryFolder folder, second, third;
  const auto make = by_length(0);
  const lt::FitOptions whole{.epochs = 2};
  const auto uncut = train_windows(make(8), 1, folder.path(), whole, kEnd);
  auto options = whole;
  options.resume = folder / "step-00000002", options.max_steps = 4;
  (void)train_windows(make(1), 8, second.path(), options, kEnd);
  options.resume = second.path(), options.max_steps = 7;
  (void)train_windows(make(2), 4, third.path(), options, kEnd);
  options.resume = third.path(), options.max_steps.reset();
  TemporaryFolder last;
  const auto resumed = train_windows(make(8), 1, last.path(), options, kEnd);
  check_same(uncut, resumed, 7);
  CHECK(resumed.result.resumed->changed.empty());
}

TEST_CASE("later fits of a run whose batches are cut cut those of a new loader") {
  TemporaryFolder folder, other;
  const lt::FitOptions whole{.max_steps = 9};
  const auto uncut = train_windows(by_length(0)(8), 1, folder.path(), whole, 20);
  auto net = toy::net(3);
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<std::int64_t> seen;
  const auto objective = [&](toy::Net& net, const WindowBatch& batch) {
    seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
    return net(batch.features).square().mean();
  };
  const lt::LengthBucketSampler sampler(lengths(), {.batch_size = 1, .seed = 4});
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<8>{},
                      lt::PinnedPrefetchLoader({.workers = 1, .seed = 5}, sampler),
                      lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 20}},
                      lt::SnapshotEvery{.folder = other.path()});
  (void)trainer.fit(NoisySamples(), {.max_steps = 4, .resume = folder / "step-00000002"});
  (void)trainer.fit(NoisySamples(), {.max_steps = 9});
  std::vector<std::int64_t> expected;
  for (std::size_t i = 2; i < 9; ++i)
    expected.insert(expected.end(), uncut.windows[i].begin(), uncut.windows[i].end());
  std::size_t begin = 0;
  for (std::size_t i = 2; i < 9; begin += uncut.windows[i++].size())
    std::sort(
        seen.begin() + static_cast<std::ptrdiff_t>(begin),
        seen.begin() + static_cast<std::ptrdiff_t>(std::min(begin + uncut.windows[i].size(), seen.size())));
  CHECK(seen == expected);
  CHECK(trainer.snapshot().state.get<std::int64_t>("micro_batches") == 1);
  CHECK(trainer.snapshot().state.get<std::int64_t>("run.progress.batch") == 3);
}

TEST_CASE("batches by length that cannot be cut so are refused, and begin the epoch anew on request") {
  TemporaryFolder folder, other;
  (void)train_windows(by_length(0)(4), 3, folder.path(), {.max_steps = 2});
  const lt::FitOptions resume{.max_steps = 5, .resume = folder.path()};
  CHECK_THROWS_WITH(
      train_windows(by_length(0)(6), 2, other.path(), resume),
      Contains(
          "a window is 2 micro-batches of 6 samples here, 3 micro-batches of 4 samples in the snapshot; the "
          "windows of samples cannot be kept: the sampler decides which samples share a batch of up to 4, "
          "and such batches cannot be cut into batches of 6; the epoch begins anew") &&
          Contains("--resume-changed"));
  auto changed = resume;
  changed.resume_changed = true;
  const auto run = train_windows(by_length(0)(6), 2, other.path(), changed);
  CHECK(run.result.steps == 5);
  CHECK(run.contents.state.get<std::int64_t>("run.progress.batch") == 6);
  CHECK(run.contents.state.get<std::int64_t>("micro_batches") == 2);
}

TEST_CASE("a window of another number of samples is refused, and continues at the same sample on request") {
  TemporaryFolder folder, other;
  const auto make = ordered(lt::SequentialSampler{});
  (void)train_windows(make(8), 1, folder.path(), {.max_steps = 2});
  lt::FitOptions resume{.max_steps = 3, .resume = folder.path()};
  try {
    (void)train_windows(make(4), 4, other.path(), resume);
    FAIL("it was not refused");
  } catch (const lt::SnapshotMismatch& error) {
    CHECK(error.settings_only);
    REQUIRE(error.differences.size() == 1);
    CHECK(error.differences[0] ==
          "a window is 4 micro-batches of 4 samples here, 1 micro-batch of 8 samples in the snapshot");
  }
  resume.resume_changed = true;
  const auto run = train_windows(make(4), 4, other.path(), resume);
  CHECK(run.windows == std::vector<std::vector<std::int64_t>>{
                           {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}});
  CHECK(run.result.resumed->changed ==
        std::vector<std::string>{"a window: 1 micro-batch of 8 samples -> 4 micro-batches of 4 samples"});
  // As a hook of an epoch's shorter last window saves the run: none of its samples is left for other batches.
  TemporaryFolder of_epoch, at_end;
  (void)train_windows(make(8), 1, of_epoch.path(), {.max_steps = 6});
  lt::SnapshotContents contents = lt::read_snapshot(of_epoch / "step-00000006");
  for (const auto& [key, value] : {std::pair("epoch", 0), std::pair("batch", 6), std::pair("epoch_begin", 0)})
    contents.state.set(std::string("run.progress.") + key, value);
  lt::write_snapshot(at_end.path(), contents);
  const lt::FitOptions ended{.epochs = 1, .resume = at_end.path(), .resume_changed = true};
  for (const std::int64_t batch_size : {7, 32, 40}) {
    TemporaryFolder last;
    const auto after = train_windows(make(batch_size), 1, last.path(), ended);
    CHECK(after.windows.empty());
    CHECK(after.result.epochs == 1);
  }
  CHECK_THROWS_WITH(
      train_windows(ordered(lt::RandomSampler{})(1), 8, folder.path(), resume),
      Contains("the loader's sampler is RandomSampler, seed 0 here, SequentialSampler in the snapshot"));
}
