// SPDX-License-Identifier: MIT
// What a resumed fit takes for its data, for its snapshot and for an error, where each could be mistaken.
// Tests resume: resume
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <cstdio>
#include <filesystem>
#include <forward_list>
#include <functional>
#include <iterator>
#include <limits>
#include <ranges>
#include <span>
#include <string>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::bits_equal;
using looptorch::testing::TemporaryFolder;

namespace {

/// A toy net with snapshots in a folder, and averages where asked for.
struct Job {
  explicit Job(const fs::path& folder, bool average = false, std::int64_t steps = 0)
      : trainer(net, optimizer, toy::objective, lt::When{average, lt::AverageWeights{}},
                lt::SnapshotEvery{.folder = folder, .steps = steps, .keep = 0, .on_signals = false}) {}

  toy::Net net = toy::net();
  lt::FusedSGD optimizer{net->parameters(), {.lr = 0.1}};
  lt::Trainer<toy::Net, lt::Update<lt::FusedSGD, decltype(&toy::objective)>, lt::When<lt::AverageWeights>,
              lt::SnapshotEvery>
      trainer;
};

/// Samples that follow from their index.
struct Samples {
  std::int64_t count;
  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] toy::Batch get(std::int64_t index) const {
    return {torch::full({4}, 0.1 * static_cast<double>(index), torch::kDouble), torch::tensor(index % 3)};
  }
  [[nodiscard]] toy::Batch collate(std::span<toy::Batch> samples) const {
    std::vector<at::Tensor> features, labels;
    for (const toy::Batch& sample : samples)
      features.push_back(sample.features), labels.push_back(sample.labels);
    return {torch::stack(features), torch::stack(labels)};
  }
};

/// A range that can be gone through once, and remembers which batches it gave.
struct Stream {
  struct Iterator {
    using iterator_concept = std::input_iterator_tag;
    using value_type = toy::Batch;
    using difference_type = std::ptrdiff_t;
    Stream* stream;
    const toy::Batch& operator*() const {
      stream->given.push_back(stream->next);
      return stream->batches[stream->next];
    }
    Iterator& operator++() { return ++stream->next, *this; }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return it.stream->next >= it.stream->batches.size();
    }
  };
  Iterator begin() { return {this}; }
  static std::default_sentinel_t end() { return {}; }

  std::vector<toy::Batch> batches = toy::batches(8);
  std::size_t next = 0;
  std::vector<std::size_t> given = {};
};

/// Fails where a run is written down, and the disk has no part in it.
struct FailsToSave {
  struct State {};
  void state_dict(lt::StateDict&, State&) const { throw lt::NonFiniteLoss("no number", 0, 0, 0, 0, {}); }
  void load_state_dict(const lt::StateDict&, State&) const {}
};

}  // namespace

TEST_CASE("a loader over other data, in other batches or another order is refused") {
  TemporaryFolder folder, other;
  const auto fit = [&](std::int64_t samples, std::int64_t batch_size, std::uint64_t seed,
                       lt::FitOptions how) {
    Job job(how.resume.empty() ? folder.path() : other.path());
    job.trainer.fit(lt::PinnedPrefetchLoader(Samples{samples}, {.batch_size = batch_size},
                                             lt::RandomSampler{.seed = seed}),
                    how);
  };
  fit(50, 4, 1, {.max_steps = 5});
  const lt::FitOptions resumed{.max_steps = 6, .resume = folder / "step-00000005"};
  CHECK_THROWS_WITH(fit(49, 4, 1, resumed), Contains("49") && Contains("50"));
  CHECK_THROWS_WITH(fit(50, 4, 2, resumed), Contains("seed"));
  CHECK_THROWS_WITH(fit(26, 2, 1, resumed), Contains("batch_size is 2 here, 4 in the snapshot"));
  CHECK_NOTHROW(fit(50, 4, 1, resumed));
}

TEST_CASE("a single-pass range that is given to a resumed fit begins with what the first fit had seen") {
  TemporaryFolder folder;
  Stream first, rest;
  Job(folder.path()).trainer.fit(first, {.max_steps = 3});
  Job(folder.path()).trainer.fit(rest, {.max_steps = 5, .resume = folder.path()});
  CHECK(rest.given == std::vector<std::size_t>{3, 4});
}

TEST_CASE("a range of unknown size continues from each of its batches, an epoch's edge included") {
  const auto batches = toy::batches(4);
  const std::forward_list<toy::Batch> unsized(batches.begin(), batches.end());
  static_assert(!std::ranges::sized_range<decltype(unsized)>);
  TemporaryFolder folder;
  const lt::FitOptions whole{.epochs = 3};
  Job uncut(folder.path(), true, 1);
  CHECK(uncut.trainer.fit(unsized, whole).steps == 12);
  const auto end = uncut.trainer.snapshot();
  for (const auto& snapshot : lt::list_snapshots(folder.path())) {
    INFO("from step " << snapshot.step);
    TemporaryFolder other;
    Job job(other.path(), true);
    lt::FitOptions how = whole;
    how.resume = snapshot.path;
    const auto result = job.trainer.fit(unsized, how);
    CHECK(result.steps == 12);
    CHECK(result.epochs == 3);
    CHECK(bits_equal(job.trainer.snapshot(), end));
  }
}

TEST_CASE("a copy of a snapshot under another name is one") {
  TemporaryFolder folder, other;
  Job(folder.path()).trainer.fit(toy::batches(4), {.max_steps = 3});
  fs::copy(folder / "step-00000003", other / "best");
  Job job(other / "new");
  const auto result = job.trainer.fit(toy::batches(4), {.max_steps = 4, .resume = other / "best"});
  CHECK(result.resumed->step == 3);
}

TEST_CASE("a folder with later snapshots is refused before the model is touched") {
  TemporaryFolder folder;
  Job(folder.path(), false, 2).trainer.fit(toy::batches(4), {.max_steps = 4});
  Job job(folder.path());
  const auto before = job.net->first->weight.detach().clone();
  CHECK_THROWS_AS(job.trainer.fit(toy::batches(4), {.max_steps = 6, .resume = folder / "step-00000002"}),
                  lt::UsageError);
  CHECK(before.equal(job.net->first->weight));
}

TEST_CASE("a fit that goes back to an earlier snapshot of its Trainer says that it trained") {
  TemporaryFolder folder, apart;
  Job job(folder.path());
  const auto batches = toy::batches(4);
  job.trainer.fit(batches, {.max_steps = 2});
  CHECK(job.trainer.fit(batches, {.epochs = 1}).status == lt::FitStatus::completed);
  fs::rename(folder / "step-00000004", apart / "later");
  CHECK(job.trainer.fit(batches, {.epochs = 1, .resume = folder / "step-00000002"}).status ==
        lt::FitStatus::completed);
  CHECK(job.trainer.fit(batches, {.epochs = 1, .resume = folder / "step-00000004"}).status ==
        lt::FitStatus::nothing_left);
}

TEST_CASE("weights of another type are a difference") {
  TemporaryFolder folder, other;
  Job(folder.path()).trainer.fit(toy::batches(4), {.max_steps = 2});
  Job job(other.path());
  job.net->to(torch::kFloat);
  CHECK_THROWS_WITH(job.trainer.fit(toy::batches(4), {.max_steps = 4, .resume = folder.path()}),
                    Contains("is Float here, Double in the snapshot"));
}

TEST_CASE("made-up states are refused and nothing is touched") {
  TemporaryFolder folder, other;
  Job(folder.path(), true).trainer.fit(toy::batches(4), {.max_steps = 2});
  const auto intact = lt::read_snapshot(folder / "step-00000002");
  const auto averages = [&](std::int64_t updates) {
    return [=](lt::SnapshotContents& contents) {
      for (const auto& [key, value] : intact.state.values())
        if (key.ends_with("state.updates")) contents.state.set(key, updates);
    };
  };
  const std::vector<std::function<void(lt::SnapshotContents&)>> changes{
      [](auto& it) {
        it.state.set("random.cpu", torch::full_like(it.state.template get<at::Tensor>("random.cpu"), 255));
      },
      [](auto& it) { it.state.set("random.cpu", at::Tensor()); },
      [](auto& it) { it.state.set("run.progress.batch", std::int64_t{-3}); },
      [](auto& it) { it.state.set("surplus", torch::ones({2})); },
      [](auto& it) {  // a size that cannot be counted up to
        it.optimizer.set("size", std::int64_t{1} << 60);
        it.optimizer.set("nobody", std::int64_t{1});
      },
      averages(-1),
      averages(std::int64_t{1} << 50),
  };
  for (const auto& change : changes) {
    INFO("change " << &change - changes.data());
    auto contents = intact;
    change(contents);
    Job job(other.path(), true);
    const auto before = job.net->first->weight.detach().clone();
    CHECK_THROWS_AS(job.trainer.restore(contents), lt::Error);
    CHECK(before.equal(job.net->first->weight));
  }
}

TEST_CASE(
    "tensors that the model lacks or has more, and random numbers of a device that is not here, are named") {
  TemporaryFolder folder, other;
  Job(folder.path()).trainer.fit(toy::batches(4), {.max_steps = 2});
  auto contents = lt::read_snapshot(folder / "step-00000002");
  contents.model["third.bias"] = contents.model.extract("second.bias").mapped();
  contents.state.set("random.cuda:7", torch::zeros({16}, torch::kByte));
  Job job(other.path());
  CHECK_THROWS_WITH(job.trainer.restore(contents),
                    Contains("1 missing: second.bias") && Contains("1 surplus: third.bias") &&
                        Contains("random numbers: drawn on cuda:7, which is not here"));
  CHECK(job.trainer.progress().step == 0);
  CHECK(job.trainer.restore(contents, false).differences.size() == 2);
  CHECK(job.trainer.progress().step == 2);
}

TEST_CASE("a snapshot whose state is of another step than it says is refused, with both named") {
  TemporaryFolder folder, made, other;
  Job(folder.path(), true).trainer.fit(toy::batches(4), {.max_steps = 2});
  auto contents = lt::read_snapshot(folder / "step-00000002");
  contents.step = 7;
  lt::write_snapshot(made.path(), contents);
  Job job(other.path(), true);
  const auto before = job.net->first->weight.detach().clone();
  const auto why = Contains("a snapshot of step 7 holds the state of a run at step 2");
  CHECK_THROWS_WITH(job.trainer.fit(toy::batches(4), {.max_steps = 9, .resume = made.path()}), why);
  CHECK_THROWS_WITH(job.trainer.restore(contents, false), why);
  CHECK_THROWS_AS(job.trainer.restore(contents), lt::SnapshotError);
  CHECK(before.equal(job.net->first->weight));
  CHECK(job.trainer.progress().step == 0);
}

TEST_CASE("what policies only show comes back: the last evaluation, the rate, the means of the epoch") {
  const auto batches = toy::batches(8);
  TemporaryFolder folder, other;
  const auto data = toy::batches(2);
  std::vector<lt::WeightedSum> totals;
  struct Shown {
    lt::Evaluation last;
    std::int64_t at_step;
    double ratio;
  };
  // Each run's trainer is asked what it shows before it goes on, and prints its lines into `file`.
  const auto run = [&](const fs::path& into, std::FILE* file, const std::string& name,
                       const fs::path& resume) {
    toy::Net net = toy::net();
    lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
    const auto note = [&](lt::WindowContext& window) {
      totals.push_back(window.run.updates()[0].loss.totals());
    };
    lt::Trainer trainer(
        net, optimizer, toy::objective, lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 8},
        lt::Validate{data, {.every = 2, .name = name}}, lt::ShowProgress{.out = file, .line_seconds = 1e9},
        lt::On{lt::kObserve, note}, lt::SnapshotEvery{.folder = into, .on_signals = false});
    using Validated = lt::Validate<const std::vector<toy::Batch>&>;
    const auto shown = [&]() -> Shown {
      const auto& validate = trainer.template policy<Validated>();
      return {*validate.last, validate.at_step, trainer.template policy<lt::ScheduleLr>().ratio};
    };
    if (resume.empty()) {
      trainer.fit(batches, {.max_steps = 3});
      return shown();
    }
    trainer.restore(lt::read_snapshot(resume));
    const Shown before = shown();
    trainer.fit(batches, {.max_steps = 4, .resume = resume});
    return before;
  };
  std::FILE* file = std::tmpfile();
  const Shown first = run(folder.path(), file, "validation", {});
  CHECK(first.at_step == 2);
  CHECK(first.ratio != 1.0);
  std::rewind(file);
  const Shown resumed = run(other.path(), file, "validation", folder / "step-00000003");
  CHECK(resumed.last.loss == first.last.loss);
  CHECK(resumed.last.metrics == first.last.metrics);
  CHECK(resumed.last.weight == first.last.weight);
  CHECK(resumed.last.batches == 2);
  CHECK(resumed.at_step == first.at_step);
  CHECK(resumed.ratio == first.ratio);

  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  REQUIRE(totals.size() == 4);
  const lt::WeightedSum window{totals[3].sum - totals[2].sum, totals[3].weight - totals[2].weight};
  CHECK_THAT(text, Contains("step 4/4  loss " + lt::detail::number_text(window.mean()) + "  "));
  std::fclose(file);

  TemporaryFolder third;
  CHECK_THROWS_WITH(
      run(third.path(), stderr, "test", folder / "step-00000003"),
      Contains("this is the state of a Validate named validation, not of a Validate named test"));
}

TEST_CASE("averages come back in the layout of the weights, so that an evaluation has the same bits") {
  TemporaryFolder folder;
  torch::manual_seed(1);
  std::vector<at::Tensor> data;
  for (int i = 0; i < 4; ++i) data.push_back(torch::randn({2, 8, 9, 9}));
  const auto evaluation = [&](lt::FitOptions how) {
    torch::manual_seed(0);
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(8, 8, 3));
    net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.1});
    lt::Trainer trainer(
        net, optimizer, [](torch::nn::Conv2d& net, const at::Tensor& x) { return net(x).pow(2).mean(); },
        lt::AverageWeights{}, lt::SnapshotEvery{.folder = folder.path()});
    trainer.fit(data, how);
    return trainer.evaluate(data).loss;
  };
  const double uncut = evaluation({.max_steps = 2});
  CHECK(uncut == evaluation({.max_steps = 2, .resume = folder.path()}));
}

TEST_CASE("OnSnapshotError::warn leaves the run's own errors alone") {
  TemporaryFolder folder;
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
  lt::Trainer trainer(
      net, optimizer, toy::objective, FailsToSave{},
      lt::SnapshotEvery{.folder = folder.path(), .steps = 2, .on_error = lt::OnSnapshotError::warn});
  CHECK_THROWS_AS(trainer.fit(toy::batches(4), {.epochs = 1}), lt::NonFiniteLoss);
}
