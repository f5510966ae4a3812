// SPDX-License-Identifier: MIT
// The contract of fit, step and evaluate, sentence by sentence.
// Tests loop: run, update
// Tests data/loader: feed
// Tests loop/compose: measure
// Tests loop/step: engine, evaluate, fit_loop
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <chrono>
#include <csignal>
#include <limits>
#include <sstream>

namespace lt = looptorch;
using looptorch::testing::Warnings;
using toy::Batch;

namespace {

torch::optim::SGD sgd(toy::Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
}

/// Goes through its batches once, as a stream does.
struct SinglePass {
  struct Iterator {
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    Batch operator*() const { return (*batches)[at]; }
    Iterator& operator++() { return ++at, *this; }
    void operator++(int) { ++at; }
    bool operator==(std::default_sentinel_t) const { return at == batches->size(); }
    std::vector<Batch>* batches = nullptr;
    std::size_t at = 0;
  };
  Iterator begin() { return {&batches, 0}; }
  std::default_sentinel_t end() const { return {}; }
  std::vector<Batch> batches;
};

/// Notes how fits ended.
struct NoteEnds {
  std::vector<lt::FitStatus>* ends;
  void on_fit_end(lt::FitContext& fit) const { ends->push_back(fit.status); }
};

struct Numbers {
  std::int64_t size() const { return 7; }
  at::Tensor get(std::int64_t index) const {
    return torch::full({2, 4}, static_cast<double>(index) / 7, torch::kDouble);
  }
};
at::Tensor squares(toy::Net& net, const at::Tensor& x) { return net(x.flatten(0, -2)).pow(2).mean(); }

}  // namespace

TEST_CASE("epochs and max_steps are totals, and a second fit continues in mid-epoch") {
  const auto data = toy::batches(5);
  auto straight = toy::net(), halting = toy::net();
  auto a = sgd(straight), b = sgd(halting);
  lt::Trainer one(straight, a, toy::objective, lt::Accumulate<2>{});
  one.fit(data, {.epochs = 4});
  lt::Trainer two(halting, b, toy::objective, lt::Accumulate<2>{});
  CHECK(two.fit(data, {.max_steps = 2}).status == lt::FitStatus::max_steps);
  CHECK(two.progress().batch == 4);
  CHECK(two.fit(data, {.epochs = 2}).steps == 6);
  CHECK(two.fit(data, {.epochs = 2}).steps == 6);  // already there
  const auto last = two.fit(data, {.epochs = 4, .max_steps = 1000});
  CHECK(last.status == lt::FitStatus::completed);
  CHECK(last.steps == 12);
  CHECK(toy::distance(straight, halting) == 0.0);
  CHECK(last.loss == Approx(one.updates()[0].loss.mean()).epsilon(1e-12));
  CHECK(two.progress().samples == one.progress().samples);
  CHECK(two.progress().steps_per_epoch == 3);
}

TEST_CASE("a fit that has nothing left to do has a status of its own, and says so once a Trainer") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  auto optimizer = sgd(net);
  std::vector<lt::FitStatus> seen;
  lt::Trainer trainer(net, optimizer, toy::objective, NoteEnds{&seen});
  Warnings warnings;
  CHECK(trainer.fit(data, {.epochs = 1}).status == lt::FitStatus::completed);
  CHECK(warnings.texts.empty());
  for (int i = 0; i < 3; ++i) {
    const auto again = trainer.fit(data, {.epochs = 1});
    CHECK(again.status == lt::FitStatus::nothing_left);
    CHECK(again.steps == 4);
  }
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0],
             Catch::Contains(
                 "looptorch: fit trained nothing: it was to end at the end of epoch 1, and the run has 1 "
                 "epoch already. Epochs and steps count over the whole run"));
  CHECK(seen.back() == lt::FitStatus::nothing_left);
  CHECK(trainer.fit(data).status == lt::FitStatus::completed);
  CHECK(trainer.progress().step == 8);
  CHECK(trainer.fit(data, {.max_steps = 9}).status == lt::FitStatus::max_steps);
  CHECK(trainer.fit(data, {.max_steps = 9}).status == lt::FitStatus::nothing_left);
  CHECK(trainer.fit(data, {.max_steps = 5}).status == lt::FitStatus::nothing_left);
  CHECK(trainer.fit(data, {.epochs = 9, .max_steps = 5}).status == lt::FitStatus::nothing_left);
  CHECK(trainer.progress().step == 9);
  CHECK(to_string(lt::FitStatus::nothing_left) == "nothing_left");
  lt::Trainer by_steps(net, optimizer, toy::objective);
  by_steps.fit(data, {.max_steps = 2});
  by_steps.fit(data, {.max_steps = 2});
  CHECK_THAT(warnings.texts.back(), Catch::Contains("to end at step 2, and the run has 2 steps already"));
}

TEST_CASE("losses, metrics and samples of an epoch are its own, also when fit halts in its middle") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  auto optimizer = sgd(net);
  int64_t samples = 0;
  for (const auto& batch : data) samples += batch.labels.size(0);
  lt::Trainer trainer(net, optimizer, [](toy::Net& net, const Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    loss.metrics = {{"size", batch.labels.size(0)}};
    return loss;
  });
  trainer.fit(data, {.max_steps = 3});
  const auto result = trainer.fit(data, {.epochs = 1});
  double squares = 0;
  for (const auto& batch : data) squares += static_cast<double>(batch.labels.size(0) * batch.labels.size(0));
  CHECK(trainer.progress().samples == samples);
  CHECK(trainer.updates()[0].metrics.at("size").mean() == Approx(squares / static_cast<double>(samples)));
  CHECK(trainer.updates()[0].loss.totals().weight == static_cast<double>(samples));
  CHECK(std::isfinite(result.loss));
}

TEST_CASE(
    "what policies are told of the length holds for data of another size in a second fit, and for step") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  std::optional<int64_t> total;
  lt::Trainer trainer(
      net, optimizer, toy::objective, lt::Accumulate<2>{},
      lt::On{lt::kObserve, [&](lt::WindowContext& window) { total = window.run.progress().total_steps; }});
  trainer.fit(toy::batches(10), {.epochs = 1});
  CHECK(total == 5);
  trainer.fit(toy::batches(3), {.epochs = 3});
  CHECK(total == 5 + 2 * 2);
  trainer.fit(toy::batches(6), {.max_steps = 11});
  CHECK(total == 11);
  trainer.fit(toy::batches(6), {.epochs = 4});
  CHECK(total == 9 + 3);
  trainer.step(toy::batches(1)[0]);
  trainer.finish_window();
  CHECK_FALSE(total);
}

TEST_CASE("step leaves fit's place in the epoch alone") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  for (int i = 0; i < 3; ++i) trainer.step(data[0]);
  CHECK(trainer.progress().batch == 0);
  CHECK(trainer.fit(data, {.epochs = 1}).steps == 3 + 4);
}

TEST_CASE("a first step that fails is not forgotten") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::ScheduleLr{});
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS_WITH(trainer.step(toy::batches(1)[0]), Catch::Contains("where its decay ends"));
}

TEST_CASE("step says that a policy asked for the end, and refuses another kind of batch within a window") {
  auto net = toy::net();
  auto optimizer = sgd(net), other = sgd(net);
  const auto objective = [](toy::Net& net, const auto& batch) {
    if constexpr (std::is_same_v<std::decay_t<decltype(batch)>, Batch>)
      return toy::objective(net, batch);
    else
      return toy::objective(net, batch.first);
  };
  const auto data = toy::batches(2);
  lt::Trainer trainer(net, lt::Update{optimizer, objective}, lt::Update{other, objective},
                      lt::Accumulate<2>{},
                      lt::On{lt::kObserve, [](lt::WindowContext& window) { window.run.stop("enough"); }});
  CHECK_FALSE(trainer.step(data[0]).stop_requested);
  CHECK_THROWS_WITH(trainer.step(std::pair(data[1], 1)), Catch::Contains("another type"));
  trainer.step(data[0]);
  CHECK(trainer.step(data[1]).stop_requested);
}

TEST_CASE("when the data or a policy throws, it is as when the objective does") {
  struct Breaks {
    std::int64_t size() const { return 6; }
    at::Tensor get(std::int64_t index) const {
      if (index == 4) throw std::runtime_error("scratched");
      return torch::ones({2, 4}, torch::kDouble);
    }
  };
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer by_data(net, optimizer, squares, lt::Accumulate<3>{});
  CHECK_THROWS_WITH(by_data.fit(lt::PinnedPrefetchLoader(Breaks{}, {.batch_size = 1})),
                    Catch::Contains("scratched"));
  CHECK(by_data.progress().step == 1);
  CHECK_FALSE(toy::has_gradients(net));
  lt::Trainer by_policy(net, optimizer, toy::objective,
                        lt::On{lt::kClip, [](lt::UpdateContext&) { throw std::runtime_error("tired"); }});
  CHECK_THROWS_WITH(by_policy.fit(toy::batches(2)), "tired");
  CHECK(by_policy.progress().step == 0);
  CHECK_FALSE(toy::has_gradients(net));
}

TEST_CASE("fit takes from a single-pass range what it trains on, and no batch more") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  std::size_t drawn = 0;
  struct Counting : SinglePass {
    struct Iterator : SinglePass::Iterator {
      Iterator& operator++() { return ++at, ++*drawn, *this; }
      void operator++(int) { ++*this; }
      std::size_t* drawn = nullptr;
    };
    Iterator begin() { return {{&batches, 0}, drawn}; }
    std::size_t* drawn = nullptr;
  };
  trainer.fit(Counting{{toy::batches(5)}, &drawn}, {.max_steps = 2});
  CHECK(drawn == 1);
}

TEST_CASE("Validate needs a loader of its own: sharing fit's is refused, not cut short") {
  Numbers numbers;
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::PinnedPrefetchLoader loader(numbers, {.batch_size = 2, .workers = 1});
  lt::Trainer trainer(net, optimizer, squares, lt::Validate{loader, {.every = 1}});
  CHECK_THROWS_WITH(trainer.fit(loader), Catch::Contains("a loader of its own"));
}

TEST_CASE("Validate counts steps, and has nothing to say of no data") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  const auto data = toy::batches(8);
  std::vector<int64_t> at;
  auto measure = [](toy::Net&, const Batch&) { return 1.0; };
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{},
                      lt::Validate{data, measure, {.every = 3}});
  trainer.fit(data);
  CHECK(trainer.policy<lt::Validate<const std::vector<Batch>&, decltype(measure)>>().at_step == 3);
  CHECK_THROWS_WITH((lt::Validate{data, {.every = -1}}), Catch::Contains("-1"));
  lt::Trainer empty(net, optimizer, toy::objective, lt::Validate{std::vector<Batch>{}});
  CHECK_THROWS_WITH(empty.fit(data), Catch::Contains("nothing to evaluate"));
}

TEST_CASE("evaluate before any fit finds the model's device, and switches as fit does") {
  toy::Ghost net;
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  const auto objective = [](toy::Ghost& net, const Batch& batch) { return net(batch.features).mean(); };
  lt::Trainer trainer(net, optimizer, objective);
  int64_t seen = 0;
  trainer.evaluate(toy::batches(2),
                   [&](toy::Ghost&, const Batch& batch) { return seen += batch.features.is_meta(); });
  CHECK(seen == 2);
  lt::Trainer both(net, optimizer, objective, lt::When{true, lt::Accumulate<2>{}},
                   lt::When{true, lt::Accumulate<3>{}});
  CHECK_THROWS_AS(both.evaluate(toy::batches(1)), lt::PolicyConflict);
}

TEST_CASE("a model without parameters runs where its optimizer's parameters are") {
  struct NothingImpl : torch::nn::Module {};
  const auto weight =
      torch::ones({4, 3}, torch::TensorOptions(torch::kDouble).device(at::kMeta)).requires_grad_();
  torch::optim::SGD optimizer(std::vector<at::Tensor>{weight}, 0.5);
  const auto objective = [&](std::shared_ptr<NothingImpl>&, const Batch& batch) {
    CHECK(batch.features.is_meta());
    return batch.features.matmul(weight).mean();
  };
  lt::Trainer trainer(std::make_shared<NothingImpl>(), optimizer, objective);
  CHECK(trainer.step(toy::batches(1)[0]).step == 1);
}

TEST_CASE("only a loader's pinned batches are read in place: other ranges may refill theirs") {
  using lt::detail::kPinnedSource, lt::detail::PinnedSource;
  using Loader = decltype(lt::PinnedPrefetchLoader(Numbers{}, {.batch_size = 2}));
  STATIC_REQUIRE(kPinnedSource<Loader> == PinnedSource::in_place);
  STATIC_REQUIRE(kPinnedSource<const std::vector<Batch>&> == PinnedSource::staged);
  STATIC_REQUIRE(kPinnedSource<SinglePass> == PinnedSource::staged);
}

TEST_CASE("an optimizer given by shared pointer lives as long as the Trainer") {
  auto net = toy::net();
  std::weak_ptr<torch::optim::SGD> watched;
  {
    auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), 0.5);
    watched = optimizer;
    lt::Trainer trainer(net, std::move(optimizer), toy::objective);
    CHECK(trainer.fit(toy::batches(2)).steps == 2);
    CHECK_FALSE(watched.expired());
  }
  CHECK(watched.expired());
}

TEST_CASE("max_steps at the last window of an epoch ends the epoch too") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  trainer.fit(toy::batches(3), {.max_steps = 3});
  CHECK(trainer.progress().epoch == 1);
  CHECK(trainer.progress().batch == 0);
}

TEST_CASE("with neither epochs nor max_steps fit goes through the data once more") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  CHECK(trainer.fit(toy::batches(3)).epochs == 1);
  CHECK(trainer.fit(toy::batches(3)).epochs == 2);
}

TEST_CASE("max_steps alone repeats the data as often as it takes") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{});
  const auto result = trainer.fit(toy::batches(3), {.max_steps = 7});
  CHECK(result.steps == 7);
  CHECK(result.epochs == 3);
}

TEST_CASE("a single-pass range serves one epoch and is refused for several") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  CHECK_THROWS_WITH(trainer.fit(SinglePass{toy::batches(3)}, {.epochs = 2}),
                    Catch::Contains("single-pass") && Catch::Contains("2 epochs"));
  CHECK(trainer.progress().step == 0);
  CHECK(trainer.fit(SinglePass{toy::batches(3)}, {.epochs = 1}).steps == 3);
  CHECK(trainer.fit(SinglePass{toy::batches(3)}, {.max_steps = 100}).status == lt::FitStatus::completed);
  CHECK(trainer.progress().step == 6);
}

TEST_CASE("a loader's shuffling follows the run's epochs, and a second fit passes over what is done") {
  Numbers numbers;
  const auto train = [&](auto&& fit) {
    auto net = toy::net();
    auto optimizer = sgd(net);
    lt::Trainer trainer(net, optimizer, squares);
    fit(trainer);
    return net;
  };
  auto straight = train([&](auto& trainer) {
    trainer.fit(lt::PinnedPrefetchLoader(numbers, {.batch_size = 2, .workers = 1}, lt::RandomSampler{7}),
                {.epochs = 3});
  });
  auto halting = train([&](auto& trainer) {
    for (const int64_t steps : {3, 5, 12})
      trainer.fit(lt::PinnedPrefetchLoader(numbers, {.batch_size = 2}, lt::RandomSampler{7}),
                  {.epochs = 3, .max_steps = steps});
  });
  CHECK(toy::distance(straight, halting) == 0.0);
}

TEST_CASE("with PinnedPrefetchLoader listed, fit takes a dataset and does as with the loader itself") {
  Numbers numbers;
  auto by_range = toy::net(), by_policy = toy::net();
  auto a = sgd(by_range), b = sgd(by_policy);
  lt::Trainer one(by_range, a, squares);
  one.fit(lt::PinnedPrefetchLoader(numbers, {.batch_size = 3, .workers = 2}, lt::RandomSampler{5}),
          {.epochs = 2});
  lt::Trainer two(by_policy, b, squares,
                  lt::PinnedPrefetchLoader({.batch_size = 3, .workers = 2}, lt::RandomSampler{5}));
  CHECK(two.fit(numbers, {.epochs = 1}).steps == 3);
  CHECK(two.fit(Numbers{}, {.epochs = 2}).steps == 6);
  CHECK(toy::distance(by_range, by_policy) == 0.0);
}

TEST_CASE("fit tells which samples its loader skipped, also when the caller does not hold the loader") {
  struct Damaged {
    std::int64_t size() const { return 10; }
    at::Tensor get(std::int64_t index) const {
      if (index % 4 == 3) throw std::runtime_error("damaged");
      return torch::full({4}, static_cast<double>(index), torch::kDouble);
    }
  };
  auto net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(
      net, optimizer, [](toy::Net& net, const at::Tensor& batch) { return net(batch).mean(); },
      lt::PinnedPrefetchLoader({.batch_size = 2, .on_error = lt::OnError::skip}));
  const lt::FitResult result = trainer.fit(Damaged{}, {.epochs = 2});
  CHECK(result.skipped_samples.count == 4);
  CHECK(result.skipped_samples.first.at(1).index == 7);
  CHECK(result.skipped_samples.first.at(2).epoch == 1);
}

TEST_CASE("an empty range, and numbers that cannot be, are refused") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective);
  CHECK_THROWS_WITH(trainer.fit(std::vector<Batch>{}), Catch::Contains("empty"));
  CHECK_THROWS_WITH(trainer.fit(std::vector<Batch>{}, {.max_steps = 5}), Catch::Contains("empty"));
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1), {.epochs = 0}),
                    Catch::Contains("epochs must be at least 1, got 0"));
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1), {.max_steps = -4}),
                    Catch::Contains("max_steps must be at least 1, got -4"));
  toy::Net nothing{nullptr};
  CHECK_THROWS_WITH(lt::Trainer(nothing, optimizer, toy::objective), Catch::Contains("empty model"));
  CHECK_THROWS_AS(lt::Trainer(net, std::shared_ptr<torch::optim::SGD>(), toy::objective), lt::UsageError);
}

TEST_CASE("modules that the user had set to eval stay so, in fit and after evaluate") {
  auto net = toy::net();
  net->train();
  net->second->eval();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, [](toy::Net& net, const Batch& batch) {
    CHECK(net->is_training());
    CHECK_FALSE(net->second->is_training());
    return toy::objective(net, batch);
  });
  trainer.fit(toy::batches(2));
  const auto result = trainer.evaluate(toy::batches(2), [](toy::Net& net, const Batch& batch) {
    CHECK_FALSE(net->is_training());
    CHECK_FALSE(net->first->is_training());
    CHECK_FALSE(torch::GradMode::is_enabled());
    return toy::objective(net, batch);
  });
  CHECK(result.batches == 2);
  CHECK(net->is_training());
  CHECK(net->first->is_training());
  CHECK_FALSE(net->second->is_training());
  CHECK(torch::GradMode::is_enabled());
  CHECK_THROWS(trainer.evaluate(toy::batches(1),
                                [](toy::Net&, const Batch&) -> double { throw std::runtime_error("x"); }));
  CHECK(net->is_training());
  CHECK_FALSE(net->second->is_training());
}

TEST_CASE("a throwing objective leaves no gradients, the window is forgotten, and fit can continue") {
  const auto data = toy::batches(6);
  auto straight = toy::net(), interrupted = toy::net();
  auto a = sgd(straight), b = sgd(interrupted);
  lt::Trainer one(straight, a, toy::objective, lt::Accumulate<2>{});
  one.fit(data);
  int calls = 0;
  lt::Trainer two(
      interrupted, b,
      [&](toy::Net& net, const Batch& batch) {
        if (++calls == 4) throw std::runtime_error("cable pulled");
        return toy::objective(net, batch);
      },
      lt::Accumulate<2>{});
  CHECK_THROWS_WITH(two.fit(data), "cable pulled");
  CHECK_FALSE(toy::has_gradients(interrupted));
  CHECK(two.progress().step == 1);
  CHECK(two.progress().batch == 2);
  two.fit(data, {.epochs = 1});
  CHECK(toy::distance(straight, interrupted) == 0.0);
}

TEST_CASE("gradients left over from before a fit do not leak into it") {
  const auto data = toy::batches(2);
  auto clean = toy::net(), dirty = toy::net();
  auto a = sgd(clean), b = sgd(dirty);
  toy::objective(dirty, data[0]).value.backward();
  lt::Trainer one(clean, a, toy::objective), two(dirty, b, toy::objective);
  one.fit(data), two.fit(data);
  CHECK(toy::distance(clean, dirty) == 0.0);
}

TEST_CASE("a policy can stop the fit after the window under way, and a further fit continues") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{},
                      lt::On{lt::kObserve, [](lt::WindowContext& window) {
                               if (window.run.progress().step == 2) window.run.stop("enough");
                             }});
  const auto result = trainer.fit(toy::batches(9));
  CHECK(result.status == lt::FitStatus::stopped);
  CHECK(result.reason == "enough");
  CHECK(result.steps == 2);
  CHECK(trainer.fit(toy::batches(9), {.epochs = 1}).status == lt::FitStatus::completed);
  CHECK(trainer.progress().step == 5);
}

TEST_CASE("step serves those who keep their own loop") {
  const auto data = toy::batches(5);
  auto ours = toy::net(), theirs = toy::net();
  auto a = sgd(ours), b = sgd(theirs);
  lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<2>{});
  std::vector<bool> ended;
  for (const auto& batch : data) ended.push_back(trainer.step(batch).window_ended);
  CHECK(ended == std::vector<bool>{false, true, false, true, false});
  CHECK_THROWS_WITH(trainer.fit(data), Catch::Contains("finish_window"));
  trainer.finish_window();
  trainer.finish_window();  // nothing is open
  CHECK(trainer.progress().step == 3);
  toy::train_by_hand(theirs, b, data, 2);
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("step keeps the window's batches for several updates") {
  const auto data = toy::batches(5);
  auto by_fit = toy::net(), by_step = toy::net();
  auto fit_a = sgd(by_fit), fit_b = torch::optim::SGD(by_fit->first->parameters(), 0.1);
  auto step_a = sgd(by_step), step_b = torch::optim::SGD(by_step->first->parameters(), 0.1);
  lt::Trainer one(by_fit, lt::Update{fit_a, toy::objective}, lt::Update{fit_b, toy::objective},
                  lt::Accumulate<2>{});
  lt::Trainer two(by_step, lt::Update{step_a, toy::objective}, lt::Update{step_b, toy::objective},
                  lt::Accumulate<2>{});
  one.fit(data);
  for (const auto& batch : data) two.step(batch);
  two.finish_window();
  CHECK(toy::distance(by_fit, by_step) == 0.0);
}

TEST_CASE("evaluate returns weighted means and moves nothing") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  const auto data = toy::batches(6);
  const auto before = net->first->weight.clone();
  lt::Trainer trainer(net, optimizer, toy::objective);
  const auto own = trainer.evaluate(data);
  const auto whole = toy::objective(net, toy::join(data, 0, 6));
  CHECK(own.loss == Approx(whole.value.item<double>()).epsilon(1e-12));
  CHECK(own.weight == whole.weight.number());
  CHECK(net->first->weight.equal(before));
  CHECK_FALSE(toy::has_gradients(net));
  const auto accuracy = trainer.evaluate(data, [](toy::Net& net, const Batch& batch) {
    auto loss = toy::objective(net, batch);
    loss.metrics = {{"accuracy", net(batch.features).argmax(-1).eq(batch.labels).to(torch::kDouble).mean()},
                    {"one", 1}};
    return loss;
  });
  const auto all = toy::join(data, 0, 6);
  CHECK(accuracy.metrics.at("accuracy") ==
        Approx(net(all.features).argmax(-1).eq(all.labels).to(torch::kDouble).mean().item<double>()));
  CHECK(accuracy.metrics.at("one") == Approx(1.0));
  CHECK(trainer.evaluate(data, [](toy::Net&, const Batch& batch) { return batch.labels.size(0); }).loss ==
        Approx(own.weight / 6));
  CHECK(std::isnan(trainer.evaluate(std::vector<Batch>{}).loss));
}

TEST_CASE("Validate publishes named metrics, and On sees them") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  const auto data = toy::batches(4);
  std::vector<double> seen;
  lt::Trainer trainer(
      net, optimizer, toy::objective, lt::Validate{data},
      lt::Validate{
          toy::batches(2), [](toy::Net&, const Batch&) { return 0.25; }, {.every = 3, .name = "other"}},
      lt::On{lt::kObserve,
             [&](lt::EpochContext& epoch) { seen.push_back(*epoch.run.metrics().find("validation.loss")); }});
  trainer.fit(data, {.epochs = 2});
  REQUIRE(seen.size() == 2);
  CHECK(seen[1] == Approx(trainer.evaluate(data).loss).epsilon(1e-14));
  CHECK(seen[1] < seen[0]);
  CHECK(*trainer.metrics().find("other.loss") == 0.25);
  CHECK_FALSE(trainer.metrics().find("nothing"));
}

TEST_CASE("a window that an exception ends leaves nothing in the epoch's loss and metrics") {
  const auto data = toy::batches(6);
  const auto loss_of = [&](int fails_at) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.0);
    int calls = 0;
    const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
      if (calls++ == fails_at) throw std::runtime_error("x");
      lt::Loss loss = toy::objective(net, batch);
      loss.metrics = {{"size", batch.labels.size(0)}};
      return loss;
    };
    lt::Trainer trainer(net, sgd, objective, lt::Accumulate<3>{});
    if (fails_at >= 0) CHECK_THROWS(trainer.fit(data, {.epochs = 1}));
    const auto result = trainer.fit(data, {.epochs = 1});
    return std::pair(result.loss, trainer.updates()[0].metrics.at("size").mean());
  };
  CHECK(loss_of(5) == loss_of(-1));
  CHECK(loss_of(1) == loss_of(-1));
}

TEST_CASE("parameters that join an optimizer during a run are trained from the next window on") {
  auto net = toy::net(), before = toy::net();
  lt::FusedAdamW adamw(net->first->parameters());
  lt::Trainer trainer(net, adamw, toy::objective);
  trainer.step(toy::batches(1)[0]);
  CHECK(torch::equal(net->second->weight, before->second->weight));
  adamw.add_param_group(lt::FusedAdamW::group(net->second->parameters(), {.lr = 0.1}));
  trainer.step(toy::batches(1)[0]);
  CHECK_FALSE(torch::equal(net->second->weight, before->second->weight));
  CHECK(trainer.updates()[0].full_rates == std::vector{1e-3, 0.1});
}

TEST_CASE("of two policies of one type within When the one that is on counts") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::When{false, lt::ClipGradNorm{0.1}},
                      lt::When{true, lt::ClipGradNorm{1}});
  trainer.fit(toy::batches(1));
  CHECK(trainer.policy<lt::ClipGradNorm>().norm.defined());
}

TEST_CASE("a policy that throws as a fit ends does not keep the others from tidying up") {
  struct Throws {
    void on_fit_end(lt::FitContext&) const { throw std::runtime_error("at the end"); }
  };
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const bool was = at::globalContext().benchmarkCuDNN();
  lt::Trainer trainer(net, sgd, toy::objective, Throws{}, lt::BackendFlags{.cudnn_benchmark = !was});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), "at the end");
  CHECK(at::globalContext().benchmarkCuDNN() == was);
}

TEST_CASE("a limit of time interrupts a fit at a window's end, and a second fit continues") {
  auto limited = toy::net(), straight = toy::net();
  auto a = sgd(limited), b = sgd(straight);
  const auto data = toy::batches(6);
  lt::Trainer trainer(limited, a, toy::objective, lt::Accumulate<2>{}),
      uncut(straight, b, toy::objective, lt::Accumulate<2>{});
  const lt::FitOptions options{.epochs = 2, .max_time = std::chrono::nanoseconds(1)};
  for (std::int64_t step = 1; step < 6; ++step) {
    const auto result = trainer.fit(data, options);
    CHECK(result.status == lt::FitStatus::interrupted);
    CHECK(result.steps == step);
    CHECK_THAT(result.reason, Catch::Contains("the time limit of 1e-09 s is reached"));
  }
  const auto result = trainer.fit(data, options);  // its only window is the run's last
  CHECK(result.status == lt::FitStatus::completed);
  CHECK(result.reason.empty());
  uncut.fit(data, {.epochs = 2, .max_time = std::chrono::hours(1)});
  CHECK(toy::distance(limited, straight) == 0.0);
  CHECK(trainer.fit(data, {.max_steps = 7, .max_time = std::chrono::nanoseconds(1)}).status ==
        lt::FitStatus::max_steps);
  CHECK_THROWS_AS(trainer.fit(data, {.max_time = std::chrono::seconds(0)}), lt::UsageError);
  CHECK_THROWS_WITH(trainer.fit(data, {.max_time = std::chrono::seconds(-3)}),
                    Catch::Contains("max_time must be above 0, got -3 s"));
}

TEST_CASE("a stop within the window that reaches the limit of time ends the fit, a signal interrupts it") {
  const int signal = GENERATE(0, SIGTERM);
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                                                               if (signal)
                                                                 window.run.interrupt("told", signal);
                                                               window.run.stop("learnt enough");
                                                             }});
  const auto result = trainer.fit(toy::batches(6), {.max_time = std::chrono::nanoseconds(1)});
  CHECK(result.steps == 1);
  CHECK(result.status == (signal ? lt::FitStatus::interrupted : lt::FitStatus::stopped));
  CHECK(result.reason == (signal ? "told" : "learnt enough"));
  CHECK(result.signal == signal);
}

TEST_CASE("a fit says which signal interrupted it, and the next fit forgets it") {
  auto net = toy::net();
  auto optimizer = sgd(net);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::On{lt::kObserve, [](lt::WindowContext& window) {
                                                               if (window.run.progress().step == 2)
                                                                 window.run.interrupt("SIGTERM came",
                                                                                      SIGTERM);
                                                             }});
  const auto interrupted = trainer.fit(toy::batches(4), {.epochs = 1});
  CHECK(interrupted.status == lt::FitStatus::interrupted);
  CHECK(interrupted.steps == 2);
  CHECK(interrupted.reason == "SIGTERM came");
  CHECK(interrupted.signal == SIGTERM);
  const auto continued = trainer.fit(toy::batches(4), {.epochs = 1});
  CHECK(continued.status == lt::FitStatus::completed);
  CHECK(continued.reason.empty());
  CHECK(continued.signal == 0);
}

TEST_CASE("a fit's plan counts windows, shorter last ones included, and totals do not overflow") {
  using lt::detail::FitPlan;
  lt::Progress progress;
  FitPlan({.epochs = 3}, progress, true, 5, 2).announce(progress);
  CHECK(progress.steps_per_epoch == 3);
  CHECK(progress.total_steps == 9);
  progress.epoch = 1, progress.step = 4, progress.batch = 2;  // a window of the second epoch is done
  progress.epoch_begin = 3;
  FitPlan({.epochs = 3}, progress, true, 5, 2).announce(progress);
  CHECK(progress.total_steps == 9);
  FitPlan({.epochs = 3, .max_steps = 7}, progress, true, 5, 2).announce(progress);
  CHECK(progress.total_steps == 7);
  FitPlan({.epochs = std::numeric_limits<std::int64_t>::max()}, progress, true, 5, 2).announce(progress);
  CHECK(progress.total_steps == std::numeric_limits<std::int64_t>::max());
  const FitPlan plan({.epochs = 3}, progress, true, 5, 2);
  plan.end_epoch(progress);  // after a single step
  CHECK(progress.epoch == 2);
  CHECK(progress.batch == 0);
  CHECK(progress.epoch_begin == 4);
  CHECK(progress.windows_per_epoch == 3);
  CHECK(progress.steps_per_epoch == 1);
  CHECK(progress.total_steps == 5);
  progress.step = 7;  // of an epoch that was planned with one
  plan.announce(progress);
  CHECK(progress.total_steps == 7);
  plan.count_on_step(progress);
  CHECK(progress.total_steps == 8);
  progress.step = 4;
  plan.end_epoch(progress);  // of no step at all
  CHECK(progress.steps_per_epoch == 1);
  CHECK(progress.total_steps == 4);
  progress.epoch = 1, progress.batch = 2;
  FitPlan({.epochs = 3}, progress, true, 7, 2).announce(progress);  // epochs of other windows
  CHECK(progress.epoch_begin == 3);
  CHECK(progress.total_steps == 3 + 2 * 4);
  CHECK_FALSE(plan.at_last_batch(progress));
  progress.batch = 5;
  CHECK(plan.at_last_batch(progress));
  FitPlan::of_unknown_length().announce(progress);
  CHECK_FALSE(progress.batches_per_epoch);
  CHECK_FALSE(progress.total_steps);
}

TEST_CASE(
    "a rehearsal ends epochs and evaluations after a few batches, each with all that comes at its end") {
  const auto data = toy::batches(10), held_out = toy::batches(7, 2);
  auto net = toy::net();
  auto optimizer = sgd(net);
  std::int64_t measured = 0, epochs = 0;
  const auto measure = [&](toy::Net&, const toy::Batch&) { return ++measured, 1.0; };
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{},
                      lt::Validate{held_out, measure, {.every = 100}},
                      lt::On{lt::kObserve, [&](lt::EpochContext& epoch) {
                               ++epochs;
                               CHECK(epoch.run.progress().batches_per_epoch == 3);
                               CHECK(epoch.run.progress().total_steps == 4);
                             }});
  const auto result = trainer.fit(data, {.epochs = 2, .limit_batches = 3});
  CHECK(result.status == lt::FitStatus::completed);
  CHECK(result.steps == 4);  // windows of 2 and 1
  CHECK(epochs == 2);
  CHECK(measured == 6);
  CHECK(trainer.evaluate(held_out).batches == 3);
  CHECK(trainer.fit(data, {.max_steps = 5}).steps == 5);
  CHECK(trainer.evaluate(held_out).batches == 7);
  CHECK_THROWS_WITH(trainer.fit(data, {.limit_batches = 0}),
                    Catch::Contains("limit_batches must be at least 1"));

  auto by_hand = toy::net();
  auto other = sgd(by_hand);
  const std::vector<toy::Batch> first(data.begin(), data.begin() + 3);
  lt::Trainer(by_hand, other, toy::objective, lt::Accumulate<2>{}).fit(first, {.epochs = 2});
  auto rehearsed = toy::net();
  auto third = sgd(rehearsed);
  lt::Trainer cut(rehearsed, third, toy::objective, lt::Accumulate<2>{});
  cut.fit(data, {.epochs = 1, .max_steps = 1, .limit_batches = 3});
  cut.fit(data, {.epochs = 2, .limit_batches = 3});  // goes on within the epoch
  for (std::size_t i = 0; i < by_hand->parameters().size(); ++i)
    CHECK(torch::equal(rehearsed->parameters()[i], by_hand->parameters()[i]));
}

TEST_CASE("a rehearsal from a loader, of any accumulation, has the loader's first batches") {
  struct Numbers {
    [[nodiscard]] std::int64_t size() const { return 24; }
    [[nodiscard]] at::Tensor get(std::int64_t index) const {
      return torch::full({4}, static_cast<double>(index), torch::kDouble);
    }
  };
  for (const std::int64_t length : {1, 2, 4}) {
    auto net = toy::net();
    auto optimizer = sgd(net);
    std::vector<double> seen;
    lt::Trainer trainer(
        net, optimizer,
        [&](toy::Net& net, const at::Tensor& batch) {
          seen.push_back(batch[0][0].item<double>());
          return net(batch).mean();
        },
        lt::Accumulate<>{length});
    lt::PinnedPrefetchLoader loader(Numbers{}, {.batch_size = 2, .workers = 1});
    CHECK(trainer.fit(loader, {.epochs = 2, .limit_batches = 3}).steps == 2 * ((3 + length - 1) / length));
    CHECK(seen == std::vector<double>{0, 2, 4, 0, 2, 4});
  }
}
