// SPDX-License-Identifier: MIT
// A run on several ranks is the run of one process that takes the batches of all: compared with a Trainer in
// the same process, to 1e-12.
//
// Tests loop: ranks, agreed_means
// Tests loop/step: agree_on_window, together
// Tests distributed: group_ranks, process_group, gradient_buckets
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace data_parallel_test {

using Batches = std::vector<toy::Batch>;

/// Returns the share of a rank: of each window of `all`, given as windows of `window` batches, every size-th.
Batches share_of(const Batches& all, std::size_t window, std::size_t rank, std::size_t size) {
  Batches mine;
  for (std::size_t begin = 0; begin < all.size(); begin += window * size)
    for (std::size_t i = begin; i < std::min(begin + window * size, all.size()); ++i)
      if ((i - begin) / window == rank) mine.push_back(all[i]);
  return mine;
}

struct Scenario {
  std::string name;
  std::size_t batches, window;
  lt::FitOptions options;
  bool overlap = true;
};

TEST_CASE("rank: equal to one process", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  const std::vector<Scenario> scenarios{
      {"even", 4 * size, 1, {.epochs = 2}},
      {"uneven", 4 * size + 1, 1, {.epochs = 3}},
      {"one batch in all", 1, 1, {.epochs = 3}},
      {"accumulated", 6 * size * 2 - 1, 2, {.epochs = 2}},
      {"a short window", 3 * size + 2, 3, {.epochs = 2}},
      {"by steps", 5 * size, 1, {.max_steps = 7}},
      {"without overlap", 4 * size + 1, 2, {.epochs = 2}, false},
  };
  for (const Scenario& scenario : scenarios) {
    CAPTURE(scenario.name, rank, size);
    const Batches all = toy::batches(static_cast<std::int64_t>(scenario.batches));
    const Batches mine = share_of(all, scenario.window, rank, size);
    const auto window = static_cast<std::int64_t>(scenario.window);

    toy::Net one = toy::net();
    torch::optim::AdamW reference(one->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer alone(one, reference, toy::objective,
                      lt::Accumulate<>{window * static_cast<std::int64_t>(size)}, lt::ClipGradNorm{0.5});
    const lt::FitResult expected = alone.fit(all, scenario.options);

    toy::Net net = toy::net(static_cast<std::uint64_t>(rank));  // rank 0's model is everybody's
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<>{window}, lt::ClipGradNorm{0.5},
                        lt::DataParallel{.bucket_bytes = 100, .overlap = scenario.overlap});
    const lt::FitResult result = trainer.fit(mine, scenario.options);
    CHECK(toy::distance(one, net) < 1e-12);
    CHECK(result.loss == Approx(expected.loss).epsilon(1e-12));
    CHECK(result.steps == expected.steps);
    CHECK(result.epochs == expected.epochs);
    CHECK(trainer.progress().samples == alone.progress().samples);
    CHECK(trainer.policy<lt::DataParallel>().size == static_cast<std::int64_t>(size));
  }
}

/// Two updates of one model, each of its own layer.
struct SecondLayerOnly {
  at::Tensor operator()(toy::Net& net, const toy::Batch& batch) const {
    return net(batch.features).square().mean();
  }
};

TEST_CASE("rank: several updates", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  const Batches all = toy::batches(6 * static_cast<std::int64_t>(size) - 1);
  const auto train = [&](toy::Net& net, const Batches& batches, std::int64_t window, auto... policies) {
    torch::optim::SGD first(net->first->parameters(), 0.05), second(net->second->parameters(), 0.05);
    lt::Trainer trainer(net, lt::Update(first, toy::objective),
                        lt::Update(second, SecondLayerOnly{}, {.every = 2}), lt::Accumulate<>{window},
                        policies...);
    return trainer.fit(batches, {.epochs = 2});
  };
  toy::Net one = toy::net(), net = toy::net();
  const auto expected = train(one, all, 2 * static_cast<std::int64_t>(size));
  const auto result = train(net, share_of(all, 2, rank, size), 2, lt::DataParallel{});
  CHECK(toy::distance(one, net) < 1e-12);
  CHECK(result.losses[1] == Approx(expected.losses[1]).epsilon(1e-12));
}

TEST_CASE("rank: an overflow is everybody's", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  net->to(torch::kFloat);
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    const at::Tensor loss =
        net->second(torch::tanh(net->first(batch.features.to(torch::kFloat)))).square().mean();
    return batch.labels.size(0) == 1 && ranks::rank() == 1 ? loss * 1e37 : loss;  // inf once it is scaled
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Autocast<lt::fp16>{.initial_scale = 1024},
                      lt::DataParallel{});
  const Batches batches = toy::batches(8);
  const auto overflows = std::count_if(batches.begin(), batches.end(),
                                       [](const toy::Batch& batch) { return batch.labels.size(0) == 1; });
  CHECK(trainer.fit(batches).skipped == overflows);
  CHECK(std::isfinite(net->first->weight.sum().item<double>()));
}

TEST_CASE("rank: evaluations and stops", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  const Batches all = toy::batches(7 * static_cast<std::int64_t>(size) - 2), held_out = toy::batches(5, 9);
  const auto train = [&](toy::Net& net, const Batches& batches, const Batches& validation,
                         std::int64_t window, auto... policies) {
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.3));
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<>{window},
                        lt::Validate{validation, lt::ValidateOptions{.every = 2}},
                        lt::StopEarly{.patience = 2}, policies...);
    const auto result = trainer.fit(batches, {.epochs = 50});
    return std::pair(result, *trainer.metrics().find("validation.loss"));
  };
  toy::Net one = toy::net(), net = toy::net();
  const auto [expected, loss] = train(one, all, held_out, static_cast<std::int64_t>(size));
  const auto [result, loss_of_ranks] =
      train(net, share_of(all, 1, rank, size), share_of(held_out, 1, rank, size), 1, lt::DataParallel{});
  CHECK(loss_of_ranks == Approx(loss).epsilon(1e-10));
  CHECK(result.status == lt::FitStatus::stopped);
  CHECK(result.steps == expected.steps);
  CHECK(result.reason.substr(0, 30) == expected.reason.substr(0, 30));
  CHECK(toy::distance(one, net) < 1e-10);
}

/// A stop of one rank, after `at` steps.
template <class Stop>
lt::FitResult fit_until(std::int64_t at, int rank, Stop stop) {
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto observe = [=](lt::WindowContext& window) {
    if (window.run.progress().step == at && ranks::rank() == rank) stop(window.run);
  };
  lt::Trainer trainer(net, optimizer, toy::objective, lt::On{lt::kSchedule, observe}, lt::DataParallel{});
  return trainer.fit(toy::batches(5), {.epochs = 4});
}

TEST_CASE("rank: one rank ends the fit", "[.ranks]") {
  if (!ranks::is_started()) return;
  for (const std::int64_t at : {1, 5, 7}) {
    const auto stopped = fit_until(at, 1, [](lt::Run& run) { run.stop("enough"); });
    CHECK(stopped.status == lt::FitStatus::stopped);
    CHECK(stopped.steps == at);
    CHECK(stopped.reason == "rank 1: enough");
    const auto interrupted = fit_until(at, 1, [](lt::Run& run) { run.interrupt("too late"); });
    CHECK(interrupted.status == lt::FitStatus::interrupted);
    CHECK(interrupted.steps == at + 1);  // the others learn of it with the next window
    CHECK(interrupted.reason == "rank 1: too late");
  }
  const auto signalled = fit_until(3, 1, [](lt::Run&) { ::raise(SIGTERM); });
  CHECK(signalled.status == lt::FitStatus::interrupted);
  CHECK(signalled.reason == "rank 1: SIGTERM was received");
  const auto at_the_end = fit_until(20, 1, [](lt::Run& run) { run.stop("enough"); });
  CHECK(at_the_end.status == lt::FitStatus::stopped);
}

TEST_CASE("rank: NaN on one rank", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  const at::Tensor before = net->first->weight.detach().clone();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  Batches batches = toy::batches(5);
  if (ranks::rank() == 1) batches[0].features[0][0] = std::nan("");
  lt::Trainer trainer(net, optimizer, toy::objective, lt::DataParallel{});
  std::string said;
  try {
    trainer.fit(batches);
  } catch (const lt::NonFiniteLoss& error) {
    said = error.what();
    CHECK(error.step == 0);
    CHECK(error.first_batch == (ranks::rank() == 1 ? 0 : -1));
  }
  CHECK(said.find("the loss of update is NaN or infinite in step 0, batch 0 of epoch 0") !=
        std::string::npos);
  CHECK((said.find("rank 1: ") == 0) == (ranks::rank() != 1));
  CHECK(net->first->weight.equal(before));
  CHECK(trainer.fit(toy::batches(3), {.epochs = 1}).steps == 3);  // the run goes on behind it
}

struct SlicedBatch {
  at::Tensor features;
  [[nodiscard]] SlicedBatch slice(std::int64_t begin, std::int64_t end) const {
    return {features.slice(0, begin, end)};
  }
};

/// Vetoes a step on all ranks that one of them wants skipped.
struct VetoOfOne {
  std::int64_t rank, step;
  struct State {
    bool veto = false;
    std::int64_t vetoes = 0;
  };
  void agree(lt::Ballot& ballot, State& state) const {
    state.veto = ranks::rank() == rank && ++state.vetoes == step;
    ballot.any("a veto", state.veto);
  }
  void before_update(lt::UpdateContext& update, State& state) const { update.veto(state.veto); }
};

TEST_CASE("rank: a policy's own decision", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  lt::Trainer trainer(net, optimizer, toy::objective, VetoOfOne{1, 3}, lt::DataParallel{});
  CHECK(trainer.fit(toy::batches(5)).skipped == 1);
}

/// The number of batches, which ranks add up if `Shared`, and else is that of rank 0.
template <bool Shared>
struct CountBatches {
  double count = 0.0;
  void add(toy::Net&, const toy::Batch&) { ++count; }
  double result() const { return count; }
  void agree(lt::Ballot& ballot) requires Shared { ballot.sum("count", count); }
};

TEST_CASE("rank: measures with a result", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto counted = [](auto measure) {
    toy::Net net = toy::net();
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    lt::Trainer trainer(net, optimizer, toy::objective,
                        lt::Validate{toy::batches(3 + ranks::rank()), measure}, lt::DataParallel{});
    trainer.fit(toy::batches(2));
    return *trainer.metrics().find("validation.loss");
  };
  CHECK(counted(CountBatches<false>{}) == 3.0);
  CHECK(counted(CountBatches<true>{}) == 7.0);
}

TEST_CASE("rank: a loop of one's own is refused", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::DataParallel{});
  CHECK_THROWS_WITH(trainer.step(toy::batches(1).front()), Catch::Contains("call fit()"));
}

TEST_CASE("rank: windows are not done again", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto objective = [](toy::Net& net, const SlicedBatch& batch) {
    return lt::Loss{.value = net(batch.features).square().mean(), .weight = batch.features.size(0)};
  };
  const std::vector<SlicedBatch> batches(3, SlicedBatch{torch::ones({2, 4}, torch::kDouble)});
  {
    lt::Trainer trainer(net, optimizer, objective, lt::RetryOnOom{}, lt::DataParallel{});
    CHECK_THROWS_WITH(trainer.fit(batches), Catch::Contains("RetryOnOom"));
  }
  lt::Trainer trainer(net, optimizer, objective, lt::When{false, lt::RetryOnOom{}}, lt::DataParallel{});
  CHECK(trainer.fit(batches).steps == 3);
}

TEST_CASE("rank: snapshots", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  const Batches mine = share_of(toy::batches(5 * static_cast<std::int64_t>(size) - 1), 1, rank, size);
  const auto train = [&](toy::Net& net, lt::FitOptions options, const std::filesystem::path& folder) {
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer trainer(net, optimizer, toy::objective, lt::SnapshotEvery{.folder = folder, .steps = 3},
                        lt::DataParallel{});
    return trainer.fit(mine, options);
  };
  toy::Net whole = toy::net(), cut = toy::net(), resumed = toy::net(7);
  (void)train(whole, {.epochs = 3}, ranks::folder() / "whole");
  CHECK(train(cut, {.epochs = 3, .max_steps = 7}, ranks::folder() / "cut").steps == 7);
  CHECK(train(resumed, {.epochs = 3, .resume = ranks::folder() / "cut"}, ranks::folder() / "cut").steps ==
        15);
  CHECK(toy::distance(whole, resumed) == 0.0);
  if (rank == 0) CHECK(std::filesystem::exists(ranks::folder() / "cut" / "step-00000015"));
}

TEST_CASE("rank: batch statistics", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::manual_seed(ranks::rank());
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4));
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto objective = [](torch::nn::Sequential& net, const at::Tensor& batch) {
    return net->forward(batch).abs().mean();
  };
  const std::vector<at::Tensor> batches{torch::randn({6, 4}), torch::randn({6, 4})};
  {
    lt::Trainer trainer(net, optimizer, objective, lt::DataParallel{});
    CHECK_THROWS_WITH(trainer.fit(batches), Catch::Contains("batch statistics"));
  }
  lt::Trainer trainer(net, optimizer, objective,
                      lt::DataParallel{.on_batch_statistics = lt::OnBatchStatistics::per_rank});
  trainer.fit(batches);
  std::ofstream(ranks::folder() / ("mean" + std::to_string(ranks::rank())))
      << net->buffers()[0] << net->parameters()[0];
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void require_passed(int size, const std::string& name, const std::filesystem::path& folder) {
  for (const auto& outcome : ranks::run_ranks(size, name, folder)) {
    INFO(name << " on " << size << " ranks\n" << outcome.output);
    CHECK(outcome.passed());
    CHECK(outcome.output.find("All tests passed") != std::string::npos);
  }
}

TEST_CASE("Several ranks train as one process does") {
  const lt::testing::TemporaryFolder folder;
  require_passed(2, "rank: *", folder.path());
  CHECK(text_of(folder / "mean0") == text_of(folder / "mean1"));
}

TEST_CASE("Four ranks train as one process does") {
  const lt::testing::TemporaryFolder folder;
  require_passed(4, "rank: equal to one process,rank: one rank ends the fit,rank: snapshots", folder.path());
}

TEST_CASE("One process has no ranks") {
  toy::Net net = toy::net(), other = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05), reference(other->parameters(), 0.05);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::DataParallel{});
  lt::Trainer plain(other, reference, toy::objective);
  CHECK(trainer.fit(toy::batches(5)).loss == plain.fit(toy::batches(5)).loss);
  CHECK(toy::distance(net, other) == 0.0);
  CHECK(trainer.policy<lt::DataParallel>().size == 1);
}

}  // namespace data_parallel_test
