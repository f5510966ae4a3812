// SPDX-License-Identifier: MIT
// SkipBadWindows: a window whose loss is not finite or spikes leaves nothing, and its samples are known.
//
// Tests redo: judge_window
// Tests loop/step: redo_state
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

SkipBadWindows quiet(double spikes = 0) {
  return {.max_skipped = 3, .spikes = spikes, .warm_up = 4, .report = [](const std::string&) {}};
}

toy::Batch constant(double value) {
  return {torch::full({2, 4}, value, torch::kDouble), torch::zeros({2}, torch::kLong)};
}

/// Batches with others in front of some.
std::vector<toy::Batch> with(std::vector<toy::Batch> batches, std::int64_t at, const toy::Batch& bad) {
  batches.insert(batches.begin() + at, bad);
  return batches;
}

struct Normed : torch::nn::Module {
  Normed() {
    register_module("norm", norm);
    register_module("last", last);
    to(torch::kDouble);
  }
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Linear last{4, 3};
};
at::Tensor normed_loss(std::shared_ptr<Normed>& net, const toy::Batch& batch) {
  return torch::nn::functional::cross_entropy(net->last(net->norm(batch.features)), batch.labels);
}

/// Samples 0 to 11 in order, of which some are NaN.
struct Samples {
  std::vector<std::int64_t> bad;
  std::int64_t size() const { return 12; }
  toy::Batch get(std::int64_t index) const {
    const bool poison = std::count(bad.begin(), bad.end(), index) > 0;
    return {torch::full({4}, poison ? NAN : 0.25 * static_cast<double>(index), torch::kDouble),
            torch::full({}, index % 3, torch::kLong)};
  }
  toy::Batch collate(std::span<toy::Batch> samples) const {
    std::vector<at::Tensor> features, labels;
    for (const auto& sample : samples) features.push_back(sample.features), labels.push_back(sample.labels);
    return {torch::stack(features), torch::stack(labels)};
  }
};

auto loader(std::vector<std::int64_t> bad, std::vector<std::int64_t> skipped = {}) {
  return PinnedPrefetchLoader(Samples{std::move(bad)}, {.batch_size = 2, .workers = 2},
                              ExcludeSamples(std::move(skipped), SequentialSampler{}));
}

/// Trains with everything that counts updates; returns the net.
template <class... Policies>
toy::Net train(const std::vector<toy::Batch>& batches, Policies... policies) {
  toy::Net net = toy::net();
  FusedAdamW optimizer(net->parameters(), {.lr = 0.01});
  Trainer trainer(net, optimizer, toy::objective, Accumulate<2>{}, ClipGradNorm{0.5},
                  ScheduleLr{.decay = InverseSqrtDecay{}, .warmup_steps = 2}, policies...);
  trainer.fit(batches);
  trainer.with_evaluated_weights([] {});
  return net;
}

}  // namespace

TEST_CASE("SkipBadWindows: a run with a bad window ends as one without that window, bit for bit") {
  const auto good = toy::batches(12);
  const double value = GENERATE(NAN, HUGE_VAL);
  const auto bad = with(with(good, 6, constant(0.5)), 6, constant(value));  // window 3 of 7
  toy::Net expected = train(good, quiet());
  toy::Net net = train(bad, quiet());
  CHECK(toy::distance(net, expected) == 0);
  toy::Net plain = train(good);
  CHECK(toy::distance(plain, expected) == 0);  // and the policy changes nothing where no window is bad
}

TEST_CASE("SkipBadWindows: counts, means and averages are as for a veto, and the sentence names the batch") {
  const auto batches = with(toy::batches(6), 3, constant(NAN));
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  std::vector<std::string> told;
  auto policy = quiet();
  policy.report = [&](const std::string& sentence) { told.push_back(sentence); };
  Trainer trainer(net, optimizer, toy::objective, policy, AverageWeights{.every = 1});
  const FitResult result = trainer.fit(batches);
  CHECK((result.steps == 7 && result.skipped == 1));
  CHECK((trainer.updates()[0].applied == 6 && std::isfinite(result.loss)));
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "skipped step 3, batch 3 of epoch 0 for update: its loss is NaN or infinite");
  const auto& windows = trainer.policy<SkipBadWindows>().windows;
  REQUIRE(windows.size() == 1);
  CHECK((windows[0].step == 3 && windows[0].first_batch == 3 && windows[0].samples.empty()));
}

TEST_CASE("SkipBadWindows: nothing of a bad window stays in the model's buffers") {
  auto net = std::make_shared<Normed>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, normed_loss, Accumulate<2>{}, quiet());
  auto batches = toy::batches(4);
  for (auto& batch : batches) batch = {torch::randn({3, 4}, torch::kDouble), torch::zeros({3}, torch::kLong)};
  trainer.fit(batches);
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : net->buffers()) before.push_back(buffer.clone());
  trainer.fit(std::vector<toy::Batch>{batches[0], constant(NAN)}, {.epochs = 2});
  CHECK(trainer.policy<SkipBadWindows>().windows.size() == 1);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(net->buffers()[i].equal(before[i]));
}

TEST_CASE("SkipBadWindows: a bad first window leaves no unit of weights") {
  const auto trained = [](bool with_bad) {
    torch::manual_seed(5);
    std::vector<toy::Batch> batches;
    for (const std::int64_t size : {5, 7, 3, 6, 5, 9, 7, 3})
      batches.push_back(
          {torch::randn({size, 4}, torch::kDouble), torch::randint(0, 3, {size}, torch::kLong)});
    const toy::Batch bad{torch::full({3, 4}, NAN, torch::kDouble), torch::zeros({3}, torch::kLong)};
    if (with_bad) batches.insert(batches.begin(), 2, bad);
    toy::Net net = toy::net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, toy::objective, Accumulate<2>{}, quiet());
    trainer.fit(batches);
    return net->first->weight.detach().clone();
  };
  CHECK(trained(true).equal(trained(false)));
}

TEST_CASE("SkipBadWindows: buffers that changed their type since the last fit are put back in it") {
  auto net = std::make_shared<Normed>();
  net->to(torch::kFloat);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, normed_loss, quiet());
  std::vector<toy::Batch> batches{{torch::randn({3, 4}), torch::zeros({3}, torch::kLong)}};
  trainer.fit(batches);
  net->to(torch::kDouble);
  batches[0].features = torch::randn({3, 4}, torch::kDouble);
  trainer.fit(batches);
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : net->buffers()) before.push_back(buffer.clone());
  trainer.fit(std::vector<toy::Batch>{constant(NAN)});
  CHECK(trainer.policy<SkipBadWindows>().windows.size() == 1);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(net->buffers()[i].equal(before[i]));
}

TEST_CASE("SkipBadWindows: a buffer that a bad window has lengthened gets its former length back") {
  auto net = std::make_shared<Normed>();
  at::Tensor& table = net->register_buffer("table", torch::ones({2, 1}, torch::kDouble));
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto objective = [&](std::shared_ptr<Normed>& net, const toy::Batch& batch) {
    const std::int64_t rows = batch.features.size(0);
    if (table.size(0) < rows) table.set_data(torch::full({rows, 1}, 2, torch::kDouble));
    return normed_loss(net, {batch.features * table.narrow(0, 0, rows), batch.labels});
  };
  const toy::Batch bad{torch::full({5, 4}, NAN, torch::kDouble), torch::zeros({5}, torch::kLong)};
  Trainer trainer(net, sgd, objective, quiet(), Autopsy{.report = [](const std::string&) {}});
  trainer.fit(std::vector{constant(1), bad, constant(2)});
  CHECK(trainer.progress().skipped == 1);
  CHECK(table.equal(torch::ones({2, 1}, torch::kDouble)));
}

TEST_CASE("SkipBadWindows: after too many bad windows a further fit trains on good ones") {
  auto batches = toy::batches(4);
  batches[1].features = torch::full_like(batches[1].features, NAN);
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, toy::objective,
                  SkipBadWindows{.max_skipped = 0, .report = [](const std::string&) {}});
  CHECK_THROWS_AS(trainer.fit(batches), looptorch::TooManyBadWindows);
  CHECK_NOTHROW(trainer.fit(batches));  // the rest of the epoch
  CHECK(trainer.progress().step == 4);
}

TEST_CASE("SkipBadWindows: a loss far above the running mean is a spike; without `spikes` it is none") {
  std::vector<toy::Batch> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(constant(0.1 + 0.01 * (i % 3)));
  batches = with(batches, 6, {constant(0.1).features, torch::ones({2}, torch::kLong)});
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    return net(batch.features).pow(2).mean() + batch.features.mean() + 100.0 * batch.labels[0].item<double>();
  };
  for (const double spikes : {0.0, 6.0}) {
    toy::Net net = toy::net();
    torch::optim::SGD optimizer(net->parameters(), 1e-3);
    Trainer trainer(net, optimizer, objective, quiet(spikes));
    trainer.fit(batches);
    const auto& state = trainer.policy<SkipBadWindows>();
    CHECK(state.losses[0].count == (spikes == 0 ? 9 : 8));
    REQUIRE(state.windows.size() == (spikes == 0 ? 0U : 1U));
    if (spikes > 0) CHECK(state.windows[0].step == 6);
  }
}

TEST_CASE("SkipBadWindows: a spike in the first window that is judged is skipped, and none before it") {
  const auto spike = GENERATE(3, 4);
  std::vector<toy::Batch> batches;
  for (int i = 0; i < 7; ++i) batches.push_back(constant(i == spike ? 50 : 0.1 + 0.01 * (i % 3)));
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    return 0 * net(batch.features).mean() + batch.features.mean();
  };
  Trainer trainer(net, optimizer, objective, quiet(6));  // judged from the fifth window on
  trainer.fit(batches);
  const auto& windows = trainer.policy<SkipBadWindows>().windows;
  REQUIRE(windows.size() == (spike == 4 ? 1U : 0U));
  if (spike == 4) CHECK(windows[0].step == 4);
}

TEST_CASE("SkipBadWindows: the list has the samples at fault, and ExcludeSamples leaves them out") {
  TemporaryFolder folder;
  const auto list = folder / "bad.txt";
  add_to_sample_list(list, {11});  // of an earlier run
  auto policy = quiet();
  policy.list = list;
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, toy::objective, Accumulate<2>{}, policy);
  trainer.fit(loader({5}));
  CHECK(trainer.policy<SkipBadWindows>().windows[0].samples == std::vector<std::int64_t>{4, 5});
  CHECK(read_sample_list(list) == std::vector<std::int64_t>{4, 5, 11});
  Trainer clean(net, optimizer, toy::objective, Accumulate<2>{});
  CHECK(clean.fit(loader({5}, read_sample_list(list))).skipped == 0);
  CHECK(clean.progress().samples == 9);
}

TEST_CASE("SkipBadWindows: a list that gets no samples, since no loader made the batches, is reported") {
  TemporaryFolder folder;
  const auto list = folder / "bad.txt";
  auto batches = toy::batches(2);
  batches[1] = constant(NAN);
  std::vector<std::string> told;
  auto policy = quiet();
  policy.list = list;
  policy.report = [&](const std::string& sentence) { told.push_back(sentence); };
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, toy::objective, policy);
  trainer.fit(batches);
  REQUIRE(told.size() == 2);
  CHECK(told[1] == list.string() + " gets no samples of step 1: only the batches of a loader know theirs");
  CHECK(read_sample_list(list).empty());
}

TEST_CASE("SkipBadWindows: too many bad windows end the run with a typed error") {
  auto batches = toy::batches(9);
  for (const std::size_t i : {1U, 3U, 5U, 7U}) batches[i] = constant(NAN);
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, toy::objective, quiet());
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const TooManyBadWindows& error) {
    CHECK(error.windows.size() == 4);
    CHECK_THAT(error.what(), Catch::Contains("4 windows") && Catch::Contains("at most 3") &&
                                 Catch::Contains("step 7, batch 7 of epoch 0"));
  }
  CHECK(trainer.progress().step == 8);
  for (const at::Tensor& parameter : net->parameters()) CHECK(parameter.isfinite().all().item<bool>());
}

TEST_CASE("SkipBadWindows: with several updates, the one whose loss is bad is skipped, the other is made") {
  toy::Net a = toy::net(1), b = toy::net(2);
  torch::optim::SGD first(a->parameters(), 0.1), second(b->parameters(), 0.1);
  const auto bad = [](toy::Net& net, const toy::Batch& batch) { return toy::objective(net, batch); };
  const auto fine = [b](toy::Net&, const toy::Batch& batch) mutable {
    return toy::objective(b, {batch.features.nan_to_num(), batch.labels});
  };
  Trainer trainer(a, Update{first, bad}, Update{second, fine}, Accumulate<2>{}, quiet());
  const FitResult result = trainer.fit(with(toy::batches(7), 3, constant(NAN)));
  CHECK((trainer.updates()[0].applied == 3 && trainer.updates()[1].applied == 4));
  CHECK((result.skipped == 1 && trainer.policy<SkipBadWindows>().windows.size() == 1));
  const auto& losses = trainer.policy<SkipBadWindows>().losses;
  CHECK((losses[0].count == 3 && losses[1].count == 4));
}

TEST_CASE("SkipBadWindows: a window that is bad for two updates counts once") {
  toy::Net a = toy::net(1), b = toy::net(2);
  torch::optim::SGD first(a->parameters(), 0.1), second(b->parameters(), 0.1);
  const auto of_a = [](toy::Net& net, const toy::Batch& batch) { return toy::objective(net, batch); };
  const auto of_b = [b](toy::Net&, const toy::Batch& batch) mutable { return toy::objective(b, batch); };
  Trainer trainer(a, Update{first, of_a}, Update{second, of_b}, quiet());
  trainer.fit(with(with(toy::batches(4), 3, constant(NAN)), 1, constant(NAN)));
  const auto& state = trainer.policy<SkipBadWindows>();
  REQUIRE(state.windows.size() == 2);
  CHECK((state.windows[0].step == 1 && state.windows[1].step == 4));
  CHECK((state.losses[0].count == 4 && state.losses[1].count == 4));
}

TEST_CASE("SkipBadWindows: what fp16's loss scale skips is no finding, and other policies compose") {
  torch::manual_seed(0);
  torch::nn::Linear net(4, 3);
  FusedAdamW optimizer(net->parameters());
  const auto objective = [](torch::nn::Linear& net, const toy::Batch& batch) {
    return Loss{.value = torch::nn::functional::cross_entropy(net(batch.features), batch.labels),
                .weight = batch.labels.size(0)};
  };
  std::vector<toy::Batch> batches;
  for (int i = 0; i < 6; ++i) batches.push_back({torch::randn({2, 4}), torch::zeros({2}, torch::kLong)});
  batches[3].features.fill_(HUGE_VAL);
  Trainer trainer(net, optimizer, objective, Autocast<fp16>{.initial_scale = 16}, quiet(3));
  const FitResult result = trainer.fit(batches);
  CHECK((result.skipped == 1 && trainer.policy<SkipBadWindows>().windows.empty()));
  CHECK(trainer.policy<SkipBadWindows>().losses[0].count == 5);

  Trainer retrying(net, optimizer, objective, RetryOnOom{}, quiet(3));
  CHECK(retrying.fit(batches).skipped == 1);
  CHECK(retrying.policy<SkipBadWindows>().windows.size() == 1);
}

TEST_CASE("SkipBadWindows: a resumed run continues bit for bit, with its statistics and windows") {
  const auto batches = with(with(toy::batches(16), 12, constant(NAN)), 3, constant(NAN));
  const auto run = [&](toy::Net& net, std::int64_t steps, const std::filesystem::path& from,
                       const TemporaryFolder& folder) {
    FusedAdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer, toy::objective, quiet(50), SnapshotEvery{folder / "run"});
    FitOptions options{.max_steps = steps};
    if (!from.empty()) options.resume = from;
    trainer.fit(batches, options);
    return trainer.policy<SkipBadWindows>();
  };
  TemporaryFolder one, two;
  toy::Net whole = toy::net(), half = toy::net(), rest = toy::net(7);
  const auto expected = run(whole, 18, {}, one);
  run(half, 8, {}, two);
  const auto found = run(rest, 18, two / "run", two);
  CHECK(toy::distance(whole, rest) == 0);
  CHECK(
      (expected.losses[0].count == found.losses[0].count && expected.losses[0].mean == found.losses[0].mean));
  CHECK(expected.losses[0].variance == found.losses[0].variance);
  REQUIRE((found.windows.size() == 2 && expected.windows.size() == 2));
  CHECK((found.windows[0].step == 3 && found.windows[1].step == 13));
}

TEST_CASE("SkipBadWindows: options out of range are refused") {
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto refused = [&](SkipBadWindows policy, const char* why) {
    Trainer trainer(net, optimizer, toy::objective, std::move(policy));
    CHECK_THROWS_WITH(trainer.fit(toy::batches(2)), Catch::Contains(why));
  };
  refused({.max_skipped = -1}, "max_skipped must be at least 0, got -1");
  refused({.spikes = NAN}, "spikes must be a number of deviations or 0 for never, got nan");
  refused({.warm_up = 1}, "warm_up must be at least 2, got 1");
  refused({.history = 0}, "history must be at least 2, got 0");
  refused({.list = "/nowhere/bad.txt"}, "/nowhere/bad.txt");
}

TEST_CASE("SkipBadWindows: a switched-off policy and a callers' own loop") {
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer off(net, optimizer, toy::objective, When{false, quiet()});
  CHECK_THROWS_AS(off.fit(std::vector{constant(NAN)}), NonFiniteLoss);
  Trainer own(net, optimizer, toy::objective, quiet());
  own.step(constant(NAN));
  own.step(constant(0.5));
  own.finish_window();
  CHECK((own.progress().skipped == 1 && own.policy<SkipBadWindows>().windows.size() == 1));
}

TEST_CASE("SkipBadWindows: statistics that were taken by other rules are refused, by any of them") {
  const SkipBadWindows mine{.spikes = 3, .warm_up = 4, .history = 5};
  SkipBadWindows::State state;
  StateDict saved;
  mine.state_dict(saved, state);
  CHECK_NOTHROW(mine.load_state_dict(saved, state));
  for (const SkipBadWindows& other : {SkipBadWindows{.spikes = 4, .warm_up = 4, .history = 5},
                                      SkipBadWindows{.spikes = 3, .warm_up = 6, .history = 5},
                                      SkipBadWindows{.spikes = 3, .warm_up = 4, .history = 6}})
    CHECK_THROWS_WITH(other.load_state_dict(saved, state), Catch::Contains("the judgement of spikes"));
}
