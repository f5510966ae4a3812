// SPDX-License-Identifier: MIT
// A run on several ranks is the run of one process that takes the batches of all: compared with a Trainer in
// the same process, to 1e-12.
//
// Tests loop: ranks
// Tests loop/step: rank_calls
// Tests objective: agreed_means
// Tests ranks: gather_skipped, reduce_fit, reduce_window, several_ranks, rank_session
// Tests distributed: broadcast_tensors, group_ranks, process_group, gradient_buckets
#include "support/precompiled.hpp"

#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <set>

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
    CHECK(std::isfinite(stopped.loss));
    const auto interrupted = fit_until(at, 1, [](lt::Run& run) { run.interrupt("too late"); });
    CHECK(interrupted.status == lt::FitStatus::interrupted);
    CHECK(interrupted.steps == (at == 5 ? 5 : at + 1));  // the others learn of it then
    CHECK(std::isfinite(interrupted.loss));
    CHECK(interrupted.reason == "rank 1: too late");
    CHECK(interrupted.signal == 0);
  }
  const auto signalled = fit_until(3, 1, [](lt::Run&) { ::raise(SIGTERM); });
  CHECK(signalled.status == lt::FitStatus::interrupted);
  CHECK(signalled.reason == "rank 1: SIGTERM was received");
  CHECK(signalled.signal == SIGTERM);  // on every rank
  const auto at_the_end = fit_until(20, 1, [](lt::Run& run) { run.stop("enough"); });
  CHECK(at_the_end.status == lt::FitStatus::stopped);
  const auto too_late = fit_until(19, 1, [](lt::Run& run) { run.interrupt("too late"); });
  CHECK(too_late.status == lt::FitStatus::completed);  // the others made the last step meanwhile
  CHECK(too_late.reason.empty());
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
  CHECK(trainer.fit(toy::batches(3), {.epochs = 1}).steps == 3);  // the run goes on after it
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
  void all_reduce(lt::RankReduction& reduction, State& state) const {
    state.veto = ranks::rank() == rank && ++state.vetoes == step;
    reduction.any("a veto", state.veto);
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
  void all_reduce(lt::RankReduction& reduction) requires Shared { reduction.sum("count", count); }
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

TEST_CASE("rank: one rank does its part of a window again", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  std::vector<SlicedBatch> all;
  for (const toy::Batch& batch : toy::batches(6 * static_cast<std::int64_t>(size)))
    all.push_back({torch::cat({batch.features, batch.features + 1})});
  std::vector<SlicedBatch> mine;
  for (std::size_t i = rank; i < all.size(); i += size) mine.push_back(all[i]);
  const auto train = [](toy::Net& net, const std::vector<SlicedBatch>& batches, std::int64_t window,
                        bool fails, auto... policies) {
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    int calls = 0;
    const auto objective = [&calls, fails](toy::Net& net, const SlicedBatch& batch) {
      if (fails && ++calls == 3) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for it");
      return lt::Loss{.value = net(batch.features).square().mean(), .weight = batch.features.size(0)};
    };
    lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<>{window}, policies...);
    return trainer.fit(batches).steps;
  };
  toy::Net one = toy::net(), net = toy::net();
  std::vector<std::string> said;
  const auto report = [&said](const std::string& sentence) { said.push_back(sentence); };
  const auto window = static_cast<std::int64_t>(size);
  CHECK(train(one, all, 2 * window, false) == train(net, mine, 2, rank == 1, lt::RetryOnOom{.report = report},
                                                    lt::DataParallel{.bucket_bytes = 100}));
  CHECK(toy::distance(one, net) < 1e-12);
  const std::string sentence = "memory ran out in step 1; retrying in pieces of ";
  CHECK(said.size() == 1);
  CHECK(said.at(0).find(rank == 1 ? sentence : "rank 1: " + sentence) == 0);

  toy::Net other = toy::net();
  CHECK_THROWS_WITH(train(other, mine, 8, false, lt::RetryOnOom{}, lt::DataParallel{.reproducible = true}),
                    Catch::Contains("RetryOnOom reruns a micro-batch on one rank"));
  CHECK(train(other, mine, 2, false, lt::When{false, lt::RetryOnOom{}}, lt::DataParallel{}) == 3);
}

TEST_CASE("rank: UpdateInBackward is refused", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.05});
  lt::Trainer trainer(net, optimizer, toy::objective, lt::When{true, lt::UpdateInBackward{}},
                      lt::When{true, lt::DataParallel{}});
  CHECK_THROWS_WITH(
      trainer.fit(toy::batches(2)),
      Catch::Contains("on several ranks UpdateInBackward would update before gradients are summed"));
}

TEST_CASE("rank: a window with a NaN on one rank is skipped on all", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  Batches all = toy::batches(5 * static_cast<std::int64_t>(size));
  const Batches good = all;
  const std::size_t bad = 2 * size + 1;  // rank 1's in the third window
  all[bad].features = torch::full_like(all[bad].features, std::nan(""));
  const auto train = [](toy::Net& net, const Batches& batches, std::int64_t window, auto... policies) {
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<>{window}, policies...);
    return trainer.fit(batches, {.epochs = 1});
  };
  std::vector<std::string> said;
  const lt::SkipBadWindows skip{.report = [&said](const std::string& sentence) { said.push_back(sentence); }};
  toy::Net one = toy::net(), net = toy::net();
  Batches without = good;
  without.erase(without.begin() + static_cast<std::ptrdiff_t>(2 * size),
                without.begin() + static_cast<std::ptrdiff_t>(3 * size));
  (void)train(one, without, static_cast<std::int64_t>(size));
  const auto result = train(net, share_of(all, 1, rank, size), 1, skip, lt::DataParallel{});
  CHECK(result.steps == 5);
  CHECK(result.skipped == 1);
  CHECK(toy::distance(one, net) < 1e-12);
  CHECK(said.size() == 1);
  CHECK((said.at(0).find("skipped step 2: rank 1: the loss of update is NaN") == 0) == (rank != 1));
}

TEST_CASE("rank: a skipped window leaves nothing on a rank without a batch in it", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  const auto train = [](const Batches& batches, std::int64_t window, bool twice, auto... policies) {
    toy::Net net = toy::net();
    torch::optim::AdamW first(net->parameters(), torch::optim::AdamWOptions(1e-2));
    torch::optim::SGD second(net->second->parameters(), 0.05);
    const auto fit = [&](auto... updates) {
      lt::Trainer trainer(net, updates..., lt::Accumulate<>{window}, policies...);
      trainer.fit(batches, {.epochs = 2});
    };
    twice ? fit(lt::Update(first, toy::objective), lt::Update(second, toy::objective))
          : fit(lt::Update(first, toy::objective));
    return net;
  };
  const Batches good = toy::batches(static_cast<std::int64_t>(size));
  Batches mine{good[rank]};  // the last rank has no second batch; the bad one raises the unit of weights
  if (rank == 0)
    mine.push_back({torch::full({12, 4}, NAN, torch::kDouble), torch::zeros({12}, torch::kLong)});
  if (rank > 0 && rank + 1 < size) mine.push_back(good[0]);
  for (const bool twice : {false, true}) {
    CAPTURE(twice, rank, size);
    const lt::SkipBadWindows skip{.report = [](const std::string&) {}};
    toy::Net one = train(good, static_cast<std::int64_t>(size), twice);
    toy::Net net = train(mine, 1, twice, skip, lt::DataParallel{});
    CHECK(toy::distance(one, net) < 1e-12);
  }
}

/// Vetoes a step on one rank, and says so to no other.
struct VetoAlone {
  std::int64_t rank, step;
  bool refuses;
  void before_update(lt::UpdateContext& update) const {
    if (ranks::rank() != rank || update.run.progress().step != step) return;
    refuses ? update.refuse(true) : update.veto();
  }
};

TEST_CASE("rank: a veto on one rank is that of all", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  const Batches mine = share_of(toy::batches(5 * static_cast<std::int64_t>(size)), 1, rank, size);
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  lt::Trainer trainer(net, optimizer, toy::objective, VetoAlone{1, 2, false}, lt::DataParallel{});
  const auto result = trainer.fit(mine);
  CHECK(result.skipped == 1);
  CHECK(result.steps == 5);
  std::ofstream(ranks::folder() / lt::message("vetoed", rank)) << net->parameters()[0];
  lt::Trainer refusing(net, optimizer, toy::objective, VetoAlone{0, 1, true}, lt::DataParallel{});
  CHECK_THROWS_AS(refusing.fit(mine), lt::NonFiniteGradient);
  CHECK(refusing.progress().step == 2);
}

/// Samples of which some cannot be read.
struct Damaged {
  std::vector<std::int64_t> damaged;
  [[nodiscard]] std::int64_t size() const { return 24; }
  [[nodiscard]] toy::Batch get(std::int64_t index) const {
    if (std::ranges::count(damaged, index) > 0) throw std::runtime_error("cannot be read");
    const auto at = static_cast<double>(index);
    return {torch::tensor({std::sin(at), std::cos(at), at / 24, 1.0}, torch::kDouble),
            torch::tensor(index % 3)};
  }
  [[nodiscard]] toy::Batch collate(std::span<toy::Batch> samples) const {
    std::vector<at::Tensor> features, labels;
    for (const toy::Batch& sample : samples)
      features.push_back(sample.features), labels.push_back(sample.labels);
    return {torch::stack(features), torch::stack(labels)};
  }
};

TEST_CASE("rank: windows that no rank can read", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto rank = static_cast<std::int64_t>(ranks::rank());
  // On 2 ranks a window is 8 samples, batches of 2, two of them a rank: the second has none on any rank, the
  // third none on rank 1.
  const Damaged dataset{{8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 21, 23}};
  const auto train = [&](toy::Net& net, auto&& loader, std::int64_t window, auto... policies) {
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<>{window}, lt::ScheduleLr{},
                        policies...);
    const lt::FitResult result = trainer.fit(loader, {.epochs = 2});
    CHECK(trainer.progress().total_steps == 4);
    CHECK(trainer.template policy<lt::ScheduleLr>().ratio == 0.25);
    return result;
  };
  const lt::LoaderOptions options{.batch_size = 2, .workers = 1, .on_error = lt::OnError::skip};
  const lt::LoaderOptions of_all{.batch_size = 4, .workers = 1, .on_error = lt::OnError::skip};
  toy::Net one = toy::net(), net = toy::net();
  const auto expected = train(one, lt::PinnedPrefetchLoader(dataset, of_all, lt::SequentialSampler{}), 2);
  const lt::DistributedSampler sampler({.rank = rank, .world_size = 2}, lt::SequentialSampler{});
  const auto result = train(net, lt::PinnedPrefetchLoader(dataset, options, sampler), 2, lt::DataParallel{});
  CHECK(result.steps == 4);
  CHECK(result.steps == expected.steps);
  CHECK(result.epochs == 2);
  CHECK(toy::distance(one, net) < 1e-12);
  CHECK(result.skipped_samples.count == expected.skipped_samples.count);
  const auto indices = [](const lt::SkippedSamples& skipped) {
    std::multiset<std::int64_t> indices;
    for (const lt::SkippedSample& sample : skipped.first)
      if (sample.message.find("cannot be read") != std::string::npos) indices.insert(sample.index);
    return indices;
  };
  CHECK(indices(result.skipped_samples) == indices(expected.skipped_samples));  // on every rank
}

TEST_CASE("rank: a rank whose last batch cannot be read leaves the others theirs", "[.ranks]") {
  if (!ranks::is_started()) return;
  // A window is two batches of 5 on each of 2 ranks. Of the second window rank 0 alone has a batch.
  const Damaged dataset{{15, 16, 17, 18, 19}};  // rank 1's last batch, the second of the first window
  const auto train = [&](toy::Net& net, auto sampler, std::int64_t window, auto... policies) {
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::PinnedPrefetchLoader loader(dataset, {.batch_size = 5, .on_error = lt::OnError::skip}, sampler);
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<>{window}, policies...);
    return trainer.fit(loader, {.epochs = 3});
  };
  toy::Net one = toy::net(), net = toy::net();
  (void)train(one, lt::SequentialSampler{}, 4);
  const auto rank = static_cast<std::int64_t>(ranks::rank());
  const lt::DistributedSampler sampler({.rank = rank, .world_size = 2, .block = 10}, lt::SequentialSampler{});
  CHECK(train(net, sampler, 2, lt::DataParallel{}).steps == 6);
  CHECK(toy::distance(one, net) < 1e-12);
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

struct OneMore : Damaged {
  [[nodiscard]] std::int64_t size() const { return 25; }
};

TEST_CASE("rank: snapshots of shards that differ", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto train = [&](toy::Net& net, lt::FitOptions options, const std::string& name) {
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    lt::Trainer trainer(net, optimizer, toy::objective,
                        lt::SnapshotEvery{.folder = ranks::folder() / name, .steps = 3}, lt::DataParallel{});
    lt::PinnedPrefetchLoader loader(
        OneMore{}, {.batch_size = 1, .workers = 1},
        lt::DistributedSampler({.rank = ranks::rank(), .world_size = ranks::size()},
                               lt::RandomSampler{.seed = 2}));
    return trainer.fit(loader, options).steps;
  };
  const std::int64_t an_epoch = (25 + ranks::size() - 1) / ranks::size();
  for (const std::int64_t at : {std::int64_t{4}, an_epoch, an_epoch + 3}) {
    const std::string whole_name = lt::message("whole shards ", at),
                      cut_name = lt::message("cut shards ", at);
    toy::Net whole = toy::net(), cut = toy::net(), resumed = toy::net(7);
    CHECK(train(whole, {.epochs = 2}, whole_name) == 2 * an_epoch);
    CHECK(train(cut, {.epochs = 2, .max_steps = at}, cut_name) == at);
    CHECK(train(resumed, {.epochs = 2, .resume = ranks::folder() / cut_name}, cut_name) == 2 * an_epoch);
    CHECK(toy::distance(whole, resumed) == 0.0);
  }
}

TEST_CASE("rank: best by a metric that the objective names", "[.ranks]") {
  if (!ranks::is_started()) return;
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    loss.metrics.push_back({"accuracy", torch::ones({})});
    return loss;
  };
  const auto batches = toy::batches(4);
  const auto fit = [&](const std::string& metric) {
    toy::Net net = toy::net();
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    lt::Trainer trainer(net, optimizer, objective, lt::Validate{batches},
                        lt::RestoreBest{.metric = metric, .better = lt::Better::higher, .out = nullptr},
                        lt::DataParallel{});
    return trainer.fit(batches, {.epochs = 2}).steps;
  };
  CHECK(fit("validation.accuracy") == 8);
  CHECK_THROWS_WITH(fit("validation.acuracy"), Catch::Contains("acuracy"));
}

TEST_CASE("rank: numbers drawn after a snapshot", "[.ranks]") {
  if (!ranks::is_started()) return;
  const Batches mine = toy::batches(4);
  const auto draws_of = [&](const std::string& name, const std::filesystem::path& resume) {
    toy::Net net = toy::net();
    torch::optim::SGD optimizer(net->parameters(), 1e-3);
    std::vector<double> drawn;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      drawn.push_back(torch::rand({1}, torch::kDouble).item<double>());
      return toy::objective(net, batch);
    };
    lt::Trainer trainer(net, optimizer, objective,
                        lt::SnapshotEvery{.folder = ranks::folder() / name, .steps = 2}, lt::DataParallel{});
    (void)trainer.fit(mine, {.epochs = 2, .max_steps = 6, .resume = resume});
    return drawn;
  };
  torch::manual_seed(100 + ranks::rank());
  const auto whole = draws_of("drawn whole", {});
  const std::filesystem::path snapshot = ranks::folder() / "drawn whole" / "step-00000004";
  const auto resumed = draws_of("drawn on", snapshot);
  REQUIRE(resumed.size() == 2);
  CHECK(draws_of("drawn again", snapshot) == resumed);
  if (ranks::rank() == 0) CHECK(resumed.front() == whole[4]);
  std::ofstream(ranks::folder() / ("drawn" + std::to_string(ranks::rank())))
      << std::setprecision(17) << resumed.front();
}

TEST_CASE("rank: batch statistics of each", "[.ranks]") {
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
  lt::Trainer trainer(net, optimizer, objective, lt::DataParallel{.batch_norm = lt::BatchNormMode::per_rank});
  trainer.fit(batches);
  std::ofstream(ranks::folder() / ("mean" + std::to_string(ranks::rank())))
      << net->buffers()[0] << net->parameters()[0];
}

TEST_CASE("rank: checkpointed layers that another rank enters", "[.ranks]") {
  if (!ranks::is_started()) return;
  using Layer = lt::Checkpointed<torch::nn::Linear>;
  torch::nn::Sequential net(Layer(4, 4), torch::nn::Linear(4, 1));
  torch::optim::SGD first(net[0]->parameters(), 0.05), second(net[1]->parameters(), 0.05);
  const auto objective = [](torch::nn::Sequential& net, const at::Tensor& batch) {
    return net->forward(batch).square().mean();
  };
  const std::vector<at::Tensor> mine(ranks::rank() == 1 ? 1 : 3, torch::ones({2, 4}));
  const auto train = [&](auto&& trainer) {
    trainer.fit(mine, {.max_steps = 1});
    CHECK(trainer.fit(mine, {.epochs = 1}).steps == 3);  // in mid-epoch, rank 1 has no batch left
  };
  train(lt::Trainer(net, first, objective, Layer{}, lt::DataParallel{}));
  train(lt::Trainer(net, lt::Update(first, objective), lt::Update(second, objective), Layer{},
                    lt::DataParallel{}));

  const auto bypassed = [](torch::nn::Sequential& net, const at::Tensor& batch) {
    return net[1]->as<torch::nn::Linear>()->forward(batch).square().mean();
  };
  lt::Trainer without(net, second, bypassed, Layer{}, lt::DataParallel{});
  CHECK_THROWS_WITH(without.fit(mine), Catch::Contains("was entered"));
}

TEST_CASE("rank: buffers of every type are those of rank 0", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  const double own = 1.0 + static_cast<double>(ranks::rank());
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kShort, at::kInt, at::kLong, at::kHalf,
                                    at::kBFloat16, at::kFloat, at::kComplexDouble})
    net->register_buffer(c10::toString(type), torch::full({2, 3}, own, type).t());  // not contiguous
  net->register_buffer("number", torch::full({}, own, at::kShort));
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::DataParallel{});
  trainer.fit(toy::batches(1));
  for (const auto& buffer : net->named_buffers()) {
    CAPTURE(buffer.key());
    CHECK(buffer.value().equal(torch::ones_like(buffer.value())));
  }
}

/// Writes the mean of its outputs to a buffer.
struct RunningOutputImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& batch) {
    const at::Tensor outputs = linear(batch) - mean;
    const torch::NoGradGuard no_gradients;
    mean.lerp_(outputs.mean(0), 0.5);
    return outputs;
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 4));
  at::Tensor mean = register_buffer("mean", torch::zeros({4}));
};
TORCH_MODULE(RunningOutput);

TEST_CASE("rank: buffers that a forward writes", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::manual_seed(ranks::rank());
  const std::vector<at::Tensor> batches{torch::randn({6, 4}), torch::randn({6, 4})};
  const auto objective = [](RunningOutput& net, const at::Tensor& batch) { return net(batch).abs().mean(); };
  for (const bool broadcast : {false, true}) {
    const lt::testing::Warnings warnings;
    RunningOutput net;
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    const auto share = [&](lt::WindowContext&) {
      lt::ProcessGroup::of_environment().broadcast(net->mean)->wait();
    };
    lt::Trainer trainer(net, optimizer, objective, lt::DataParallel{},
                        lt::When{broadcast, lt::On{lt::kPrepare, share}});
    trainer.fit(batches, {.epochs = 2});
    const bool warns = ranks::rank() == 0 && !broadcast;
    CHECK(std::ranges::count_if(warnings.texts, [](const std::string& text) {
            return text.starts_with("looptorch: buffers differ among ranks: mean. ");
          }) == (warns ? 1 : 0));
  }
}

TEST_CASE("rank: a trace of each", "[.ranks]") {
  if (!ranks::is_started()) return;
  toy::Net net = toy::net();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.01});
  std::string told;
  lt::Trainer trainer(net, optimizer, toy::objective, lt::DataParallel{},
                      lt::Profile{.folder = ranks::folder() / "trace",
                                  .first = 2,
                                  .last = 3,
                                  .report = [&](const std::string& text) { told = text; }});
  trainer.fit(toy::batches(4, static_cast<std::uint64_t>(ranks::rank())));
  const std::string file = "trace-rank" + std::to_string(ranks::rank()) + ".json";
  CHECK(told.find(file + " has steps 2 to 3") != told.npos);
  const lt::Json trace = lt::Json::parse(lt::read_file(ranks::folder() / "trace" / file));
  std::map<std::string, int> count;
  for (const lt::Json& event : trace.at("traceEvents").as_array())
    if (event.contains("name")) ++count[event.at("name").as_string()];
  CHECK((count["forward"] == 2 && count["agreement"] == 2 && count["update"] == 2));
  CHECK((count["ProfilerStep#2"] == 1 && count["ProfilerStep#3"] == 1));
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
  CHECK(text_of(folder / "vetoed0") == text_of(folder / "vetoed1"));
  CHECK(text_of(folder / "vetoed0").size() > 100);
  CHECK(text_of(folder / "drawn0").size() > 5);
  CHECK(text_of(folder / "drawn0") != text_of(folder / "drawn1"));
}

TEST_CASE("Four ranks train as one process does") {
  const lt::testing::TemporaryFolder folder;
  require_passed(4,
                 "rank: equal to one process,rank: one rank ends the fit,rank: snapshots*,"
                 "rank: batch statistics of all,rank: a skipped window*",
                 folder.path());
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
