// SPDX-License-Identifier: MIT
// When Validate evaluates, and measures that are no means over batches.
// Tests policies/metrics: awaited_metrics
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <cstdint>
#include <list>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lt = looptorch;
using looptorch::testing::Warnings;

namespace {

double nothing(toy::Net&, const toy::Batch&) { return 0.0; }

/// The steps after which a policy of these options has evaluated.
std::vector<std::int64_t> evaluated(lt::ValidateOptions options, std::int64_t batches, lt::FitOptions fit,
                                    std::int64_t window = 1) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<std::int64_t> steps;
  std::int64_t now = 0;
  const auto measure = [&](toy::Net&, const toy::Batch&) { return steps.push_back(now), 1.0; };
  lt::Trainer trainer(
      net, sgd, toy::objective, lt::Accumulate<>{window},
      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) { now = update.run.progress().step + 1; }},
      lt::Validate{toy::batches(1), measure, options});
  trainer.fit(toy::batches(batches), fit);
  return steps;
}

/// The largest share of examples that one class has: no mean of what single batches have.
struct LargestShare {
  void add(toy::Net&, const toy::Batch& batch) {
    CHECK_FALSE(at::GradMode::is_enabled());
    counts += torch::bincount(batch.labels, {}, 3);
  }
  std::map<std::string, double> result() const {
    return {{"share", (counts.max() / counts.sum()).item<double>()},
            {"examples", counts.sum().item<double>()}};
  }
  LargestShare() = default;
  LargestShare(const LargestShare& other) : counts(other.counts.clone()) {}
  at::Tensor counts = torch::zeros({3}, torch::kLong);
};

struct Examples {
  void add(toy::Net& net, const toy::Batch& batch) {
    CHECK_FALSE(net->is_training());
    count += batch.labels.size(0);
  }
  std::int64_t result() const { return count; }
  std::int64_t count = 0;
};

}  // namespace

TEST_CASE("evaluations by parts of an epoch are evenly spaced, and the last is at its end") {
  using Steps = std::vector<std::int64_t>;
  CHECK(evaluated({.per_epoch = 4}, 8, {.epochs = 2}) == Steps{2, 4, 6, 8, 10, 12, 14, 16});
  CHECK(evaluated({.per_epoch = 3}, 10, {.epochs = 1}) == Steps{4, 7, 10});
  CHECK(evaluated({.per_epoch = 10}, 10, {.epochs = 1}) == Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(evaluated({.per_epoch = 100}, 3, {.epochs = 2}) == Steps{1, 2, 3, 4, 5, 6});
  CHECK(evaluated({.per_epoch = 1}, 4, {.epochs = 2}) == Steps{4, 8});
  CHECK(evaluated({.per_epoch = 2}, 10, {.epochs = 2}, 4) == Steps{2, 3, 5, 6});  // windows of 4, 4 and 2
}

TEST_CASE("an evaluation at the start comes before the first step of a run, once") {
  using Steps = std::vector<std::int64_t>;
  CHECK(evaluated({.at_start = true}, 3, {.epochs = 2}) == Steps{0, 3, 6});
  CHECK(evaluated({.every = 2, .at_start = true}, 3, {.max_steps = 4}) == Steps{0, 2, 4});
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto held_out = toy::batches(3, 2);
  const double untrained = lt::Trainer(net, sgd, toy::objective).evaluate(held_out).loss;
  std::vector<double> losses;
  lt::Trainer trainer(net, sgd, toy::objective, lt::Validate{held_out, {.every = 1, .at_start = true}},
                      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                               losses.push_back(update.run.metrics().find("validation.loss").value_or(-1));
                             }});
  trainer.fit(toy::batches(2), {.max_steps = 1});
  trainer.fit(toy::batches(2), {.max_steps = 2});
  CHECK(losses.front() == untrained);
  CHECK(trainer.metrics().publications("validation.loss") == 3);
  auto other = toy::net();
  torch::optim::SGD another(other->parameters(), 0.1);
  lt::Trainer stepping(other, another, toy::objective,
                       lt::Validate{held_out, {.every = 10, .at_start = true}});
  stepping.step(toy::batches(1)[0]);
  CHECK(stepping.metrics().find("validation.loss") == untrained);
}

TEST_CASE("an evaluation at the end comes after the last step of a run, unless it was evaluated") {
  using Steps = std::vector<std::int64_t>;
  CHECK(evaluated({.at_end = true}, 5, {.epochs = 4, .max_steps = 7}) == Steps{5, 7});
  CHECK(evaluated({.at_end = true}, 5, {.epochs = 4, .max_steps = 2}) == Steps{2});
  CHECK(evaluated({.at_end = true}, 5, {.epochs = 2}) == Steps{5, 10});
  CHECK(evaluated({.at_end = true}, 5, {.max_steps = 5}) == Steps{5});
  CHECK(evaluated({.every = 3, .at_end = true}, 5, {.epochs = 2}) == Steps{3, 6, 9, 10});
  CHECK(evaluated({.every = 5, .at_end = true}, 5, {.epochs = 2}) == Steps{5, 10});
  CHECK(evaluated({.per_epoch = 2, .at_end = true}, 4, {.max_steps = 7}) == Steps{2, 4, 6, 7});
  CHECK(evaluated({.at_end = true}, 5, {.max_steps = 3}, 2) == Steps{3});  // windows of 2, 2 and 1
  CHECK(evaluated({}, 5, {.epochs = 4, .max_steps = 7}) == Steps{5});

  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::int64_t evaluations = 0;
  lt::Trainer trainer(net, sgd, toy::objective,
                      lt::Validate{toy::batches(1),
                                   [&](toy::Net&, const toy::Batch&) { return -1.0 * ++evaluations; },
                                   {.at_end = true}},
                      lt::RestoreBest{.out = nullptr}, lt::On{lt::kObserve, [](lt::WindowContext& window) {
                                                                if (window.run.progress().step == 2)
                                                                  window.run.interrupt("a signal");
                                                              }});
  CHECK(trainer.fit(toy::batches(5), {.max_steps = 4}).status == lt::FitStatus::interrupted);
  CHECK(evaluations == 0);
  trainer.fit(toy::batches(5), {.max_steps = 4});
  CHECK(evaluations == 1);
  CHECK(trainer.policy<lt::RestoreBest>().best.step() == 4);
}

TEST_CASE("sanity tries some batches before the first step, whose results nobody sees") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<std::int64_t> at_steps;
  std::int64_t step = 0;
  const lt::Validate validate(toy::batches(3),
                              [&](toy::Net&, const toy::Batch&) { return at_steps.push_back(step), 1.0; },
                              {.every = 4, .sanity = 2});
  lt::Trainer trainer(
      net, sgd, toy::objective, validate,
      lt::On{lt::kObserve, [&](lt::WindowContext& window) { step = window.run.progress().step; }},
      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
               if (update.run.progress().step < 4) CHECK_FALSE(update.run.metrics().find("validation.loss"));
             }});
  trainer.fit(toy::batches(2));
  CHECK(at_steps == std::vector<std::int64_t>{0, 0});
  CHECK(trainer.policy<std::remove_const_t<decltype(validate)>>().at_step == -1);
  trainer.fit(toy::batches(2));  // no evaluation was made before it: again
  CHECK(at_steps == std::vector<std::int64_t>{0, 0, 2, 2, 3, 3, 3});
  trainer.evaluate(toy::batches(3),
                   [&](toy::Net&, const toy::Batch&) { return at_steps.push_back(-1), 1.0; });
  CHECK(at_steps.size() == 10);
  trainer.fit(toy::batches(2));
  CHECK(at_steps.size() == 10);
}

TEST_CASE("an evaluation at the start is not made again where the fit before it ended without a step") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::int64_t evaluations = 0;
  bool fails = true;
  const lt::Validate validate(toy::batches(1),
                              [&](toy::Net&, const toy::Batch&) { return ++evaluations, 1.0; },
                              {.every = 100, .at_start = true});
  const auto once = [&](toy::Net& model, const toy::Batch& batch) {
    if (std::exchange(fails, false)) throw std::runtime_error("once");
    return toy::objective(model, batch);
  };
  lt::Trainer trainer(net, sgd, once, validate);
  CHECK_THROWS_WITH(trainer.fit(toy::batches(2)), "once");
  CHECK(evaluations == 1);
  trainer.fit(toy::batches(2));
  CHECK(evaluations == 1);
  CHECK(trainer.policy<std::remove_const_t<decltype(validate)>>().at_step == 0);
}

TEST_CASE("a run that has made steps is not evaluated at a fit's begin, even if its Validate is new") {
  const looptorch::testing::TemporaryFolder folder;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer first(net, sgd, toy::objective, lt::SnapshotEvery{.folder = folder.path(), .steps = 1});
  first.fit(toy::batches(2));
  std::int64_t evaluations = 0;
  const auto measure = [&](toy::Net&, const toy::Batch&) { return ++evaluations, 1.0; };
  lt::Trainer second(net, sgd, toy::objective, lt::SnapshotEvery{.folder = folder.path()},
                     lt::Validate{toy::batches(1), measure, {.every = 100, .at_start = true}});
  const auto result = second.fit(toy::batches(2), {.epochs = 2, .resume = folder.path(), .strict = false});
  CHECK((result.steps == 4 && result.resumed->step == 2));
  CHECK(evaluations == 0);
}

TEST_CASE("a metric whose first value comes after epochs is waited for, since it is announced") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::Validate{toy::batches(1), nothing, {.every = 5}},
                      lt::StopEarly{});
  CHECK(trainer.fit(toy::batches(2), {.epochs = 3}).steps == 6);
  CHECK(trainer.metrics().publications("validation.loss") == 1);
}

TEST_CASE("a metric is waited for although another policy publishes under its prefix before") {
  const auto accurate = [](toy::Net& net, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    loss.metrics = {{"accuracy", 0.5}};
    return loss;
  };
  for (const std::string metric : {"validation.loss", "validation.accuracy"}) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    lt::Trainer trainer(
        net, sgd, accurate, lt::Validate{toy::batches(1), {.every = 5}}, lt::StopEarly{.metric = metric},
        lt::On{lt::kObserve,
               [](lt::WindowContext& window) { window.run.metrics().publish("validation.bleu", 1.0); }});
    CHECK(trainer.fit(toy::batches(2), {.epochs = 3}).steps == 6);
  }
}

TEST_CASE("a value from before the first step counts for early stopping, and is no snapshot's best") {
  const looptorch::testing::TemporaryFolder folder;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  double next = 1.0;
  const auto rising = [&](toy::Net&, const toy::Batch&) { return next++; };
  lt::Trainer trainer(
      net, sgd, toy::objective, lt::Validate{toy::batches(1), rising, {.every = 1, .at_start = true}},
      lt::StopEarly{.patience = 3}, lt::SnapshotEvery{.folder = folder.path(), .best = "validation.loss"});
  const auto result = trainer.fit(toy::batches(10));
  CHECK(result.status == lt::FitStatus::stopped);
  CHECK(result.steps == 3);
  CHECK(trainer.policy<lt::StopEarly>().best.step() == 0);
  CHECK(trainer.policy<lt::StopEarly>().best.value() == 1.0);
  CHECK(trainer.policy<lt::SnapshotEvery>().best.value() == 2.0);
}

TEST_CASE("a measure that accumulates sees all batches of each evaluation, and begins each with none") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto held_out = toy::batches(5, 3);
  at::Tensor counts = torch::zeros({3}, torch::kLong);
  for (const auto& batch : held_out) counts += torch::bincount(batch.labels, {}, 3);
  const double share = (counts.max() / counts.sum()).item<double>();
  lt::Trainer trainer(net, sgd, toy::objective, lt::Validate{held_out, LargestShare{}, {.every = 1}},
                      lt::Validate{held_out, Examples{}, {.name = "counted"}});
  trainer.fit(toy::batches(3));
  CHECK(trainer.metrics().find("validation.share") == share);
  CHECK(trainer.metrics().find("validation.examples") == counts.sum().item<double>());
  CHECK_FALSE(trainer.metrics().find("validation.loss"));
  CHECK(trainer.metrics().publications("validation.share") == 3);
  CHECK(trainer.metrics().find("counted.loss") == counts.sum().item<double>());

  Examples examples;
  const auto once = trainer.evaluate(held_out, examples);
  CHECK(once.batches == 5);
  CHECK(once.loss == static_cast<double>(examples.count));
  CHECK(trainer.evaluate(held_out, examples).loss == 2 * once.loss);  // goes on with what it was given
  CHECK(trainer.evaluate(held_out, LargestShare{}).metrics.at("share") == share);
  CHECK(std::isnan(trainer.evaluate(held_out, LargestShare{}).loss));
}

TEST_CASE("each evaluation goes through a shuffled loader in the same order, whatever came before") {
  struct Numbers {
    std::int64_t size() const { return 12; }
    at::Tensor get(std::int64_t index) const { return torch::tensor(index); }
  };
  std::vector<std::vector<std::int64_t>> orders;
  const auto measure = [&](toy::Net&, const at::Tensor& batch) {
    if (orders.empty() || orders.back().size() == 12) orders.emplace_back();
    for (std::int64_t i = 0; i < batch.size(0); ++i) orders.back().push_back(batch[i].item<std::int64_t>());
    return 0.0;
  };
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::PinnedPrefetchLoader numbers(Numbers{}, {.batch_size = 5}, lt::RandomSampler{.seed = 1});
  lt::Trainer trainer(net, sgd, toy::objective, lt::Validate{numbers, measure, {.every = 2}});
  for (auto& batch : numbers) (void)batch;
  trainer.fit(toy::batches(3), {.epochs = 2});
  (void)trainer.evaluate(numbers, measure);
  (void)trainer.evaluate(numbers, measure);
  REQUIRE(orders.size() == 5);
  CHECK(orders[0] == lt::RandomSampler{.seed = 1}.order(0, 12));
  for (const auto& order : orders) CHECK(order == orders[0]);
}

TEST_CASE("an evaluation on the loader of a loop of one's own leaves it where it was") {
  struct Numbers {
    std::int64_t size() const { return 12; }
    at::Tensor get(std::int64_t index) const { return torch::tensor(index); }
  };
  std::vector<std::int64_t> seen;
  const auto measure = [&](toy::Net&, const at::Tensor& batch) {
    for (std::int64_t i = 0; i < batch.size(0); ++i) seen.push_back(batch[i].item<std::int64_t>());
    return 0.0;
  };
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const lt::RandomSampler sampler{.seed = 1};
  lt::PinnedPrefetchLoader numbers(Numbers{}, {.batch_size = 5}, sampler);
  lt::Trainer trainer(net, sgd, toy::objective);
  for (const std::int64_t epoch : {0, 1, 2}) {
    std::vector<std::int64_t> order;
    for (const at::Tensor& batch : numbers)
      for (std::int64_t i = 0; i < batch.size(0); ++i) order.push_back(batch[i].item<std::int64_t>());
    CHECK(order == sampler.order(epoch, 12));
    const lt::LoaderPosition before = numbers.position();
    (void)trainer.evaluate(numbers, measure);
    CHECK((numbers.position() == before));
  }
  CHECK(seen.size() == 36);

  numbers.begin_epoch(4);
  numbers.skip(2);
  seen.clear();
  (void)trainer.evaluate(numbers, measure);
  CHECK(seen == sampler.order(0, 12));
  std::vector<std::int64_t> rest;
  for (const at::Tensor& batch : numbers) rest.push_back(batch[0].item<std::int64_t>());
  CHECK(rest == std::vector<std::int64_t>{sampler.order(4, 12)[10]});
}

TEST_CASE("a run that is resumed within an epoch evaluates where the whole one does") {
  const auto trained = [](const lt::StateDict* from, std::int64_t max_steps,
                          std::vector<std::int64_t>& steps) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto measure = [&](toy::Net&, const toy::Batch&) { return steps.push_back(0), 1.0; };
    lt::Trainer trainer(net, sgd, toy::objective,
                        lt::Validate{toy::batches(1), measure, {.per_epoch = 3, .at_start = true}},
                        lt::On{lt::kObserve, [&](lt::WindowContext&) { steps.push_back(1); }});
    if (from) trainer.load_state_dict(*from);
    trainer.fit(toy::batches(7), {.epochs = 2, .max_steps = max_steps});
    return trainer.state_dict();
  };
  std::vector<std::int64_t> whole;
  trained(nullptr, 14, whole);
  CHECK(std::count(whole.begin(), whole.end(), 0) == 7);
  for (std::int64_t cut = 1; cut < 14; ++cut) {
    INFO("cut after step " << cut);
    std::vector<std::int64_t> steps;
    const auto state = trained(nullptr, cut, steps);
    trained(&state, 14, steps);
    CHECK(steps == whole);
  }
}

namespace {

/// The toy's objective with a metric and a draw of random numbers; counts its training batches.
struct Measured {
  std::int64_t* trained;
  lt::Loss operator()(toy::Net& net, const toy::Batch& batch) const {
    *trained += net->is_training();
    lt::Loss loss = toy::objective(net, batch);
    loss.value = loss.value + 0.01 * torch::rand({}).item<double>();
    loss.metrics = {{"accuracy", 0.5}};
    return loss;
  }
};
template <class... Policies>
struct Waiting {
  explicit Waiting(Policies... policies) : trainer(net, sgd, Measured{&trained}, std::move(policies)...) {}
  std::int64_t trained = 0;
  toy::Net net = toy::net();
  torch::optim::SGD sgd{net->parameters(), 0.1};
  lt::Trainer<toy::Net, lt::Update<torch::optim::SGD, Measured>, Policies...> trainer;
};
/// Results of names that it declares; the rare one does not come.
struct Declares : LargestShare {
  static std::vector<std::string> metric_names() { return {"share", "examples", "rare"}; }
};

}  // namespace

TEST_CASE("a misspelt metric of the objective is refused before the first update, with the near one") {
  for (const std::string name : {"validation.acuracy", "validation.wer"}) {
    const auto refused = [&](auto policy) {
      Waiting job(lt::Validate{toy::batches(2)}, std::move(policy));
      CHECK_THROWS_AS(job.trainer.fit(toy::batches(3)), lt::UsageError);
      CHECK_THROWS_WITH(job.trainer.fit(toy::batches(3)),
                        Catch::Contains("waits for the metric '" + name + "'") &&
                            Catch::Contains("are published: validation.accuracy, validation.loss"));
      CHECK_THROWS_AS(job.trainer.step(toy::batches(1)[0]), lt::UsageError);
      CHECK(job.trained == 0);
    };
    refused(lt::StopEarly{.metric = name});
    refused(lt::RestoreBest{.metric = name});
    refused(lt::ScheduleLr{.decay = lt::PlateauDecay{.metric = name}});
  }
  std::list<toy::Batch> held_out;
  for (const auto& batch : toy::batches(2)) held_out.push_back(batch);
  Waiting job(lt::Validate{held_out}, lt::StopEarly{.metric = "validation.acuracy"});
  CHECK_THROWS_WITH(job.trainer.fit(toy::batches(3)), Catch::Contains("did you mean 'validation.accuracy'?"));
}

TEST_CASE("looking for an objective's metric leaves the run as it would be without") {
  const auto trained = [](std::string metric) {
    Waiting job(lt::Validate{toy::batches(2)}, lt::StopEarly{.metric = std::move(metric), .patience = 100});
    torch::manual_seed(7);
    job.trainer.fit(toy::batches(3), {.epochs = 2});
    CHECK(job.trainer.metrics().publications("validation.accuracy") == 2);
    return job.net->parameters();
  };
  const auto without = trained("validation.loss"), with = trained("validation.accuracy");
  for (std::size_t i = 0; i < with.size(); ++i) CHECK(torch::equal(with[i], without[i]));
}

TEST_CASE(
    "a run has the same bits with and without sanity, whatever its measure draws and its loader reads") {
  struct Samples {
    [[nodiscard]] std::int64_t size() const { return 12; }
    [[nodiscard]] toy::Batch get(std::int64_t index) const {
      return {torch::full({4}, 0.1 * static_cast<double>(index), torch::kDouble), torch::tensor(index % 3)};
    }
  };
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    const auto dropped = torch::dropout(batch.features, 0.3, net->is_training());
    return torch::cross_entropy_loss(net(dropped), batch.labels);
  };
  const auto draws = [](toy::Net& net, const toy::Batch& batch) {
    return (net(batch.features).sum() * torch::rand({}, torch::kDouble)).item<double>();
  };
  const auto trained = [&](std::int64_t sanity) {
    auto net = toy::net();
    lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
    lt::PinnedPrefetchLoader training(Samples{}, {.batch_size = 2}, lt::RandomSampler{.seed = 3});
    lt::PinnedPrefetchLoader held_out(Samples{}, {.batch_size = 2}, lt::RandomSampler{.seed = 5});
    lt::Trainer trainer(net, adam, objective, lt::AverageWeights{},
                        lt::Validate{held_out, draws, {.every = 3, .sanity = sanity}},
                        lt::Validate{held_out, {.name = "own", .sanity = sanity}});
    torch::manual_seed(7);
    trainer.fit(training, {.epochs = 2});
    auto result = net->parameters();
    for (const char* name : {"validation.loss", "own.loss"}) {
      CHECK(trainer.metrics().publications(name) == (name[0] == 'o' ? 2 : 4));
      result.push_back(torch::tensor(*trainer.metrics().find(name), torch::kDouble));
    }
    return result;
  };
  const auto without = trained(0), with = trained(2);
  for (std::size_t i = 0; i < with.size(); ++i) CHECK(torch::equal(with[i], without[i]));
}

TEST_CASE("sanity finds a measure's error and its misspelt metric before the first step") {
  const auto fails = [](toy::Net&, const toy::Batch& batch) { return batch.features.view({-1, 7}).sum(); };
  Waiting wrong(lt::Validate{toy::batches(2), fails, {.sanity = 1}});
  CHECK_THROWS_WITH(wrong.trainer.fit(toy::batches(3)), Catch::Contains("in batch 0 of an evaluation"));
  CHECK(wrong.trained == 0);
  Waiting misspelt(lt::Validate{toy::batches(2), LargestShare{}, {.sanity = 1}},
                   lt::StopEarly{.metric = "validation.shares"});
  CHECK_THROWS_WITH(misspelt.trainer.fit(toy::batches(3)),
                    Catch::Contains("did you mean 'validation.share'?"));
  CHECK(misspelt.trained == 0);
  CHECK_THROWS_WITH((lt::Validate{toy::batches(1), {.sanity = -1}}),
                    Catch::Contains("`sanity` counts batches from 0 (none), got -1"));
}

TEST_CASE("a misspelt metric of a measure is refused when its names are known") {
  const auto refused_after = [](auto measure, const std::string& metric) {
    Waiting job(lt::Validate{toy::batches(2), std::move(measure), {.every = 2}},
                lt::StopEarly{.metric = metric});
    try {
      job.trainer.fit(toy::batches(4));
    } catch (const lt::UsageError& error) {
      CHECK_THAT(error.what(), Catch::Contains("StopEarly waits for the metric '" + metric + "'"));
      return job.trained;
    }
    return std::int64_t{-1};
  };
  CHECK(refused_after(Examples{}, "validation.count") == 0);       // a single number
  CHECK(refused_after(Declares{}, "validation.shares") == 0);      // declared
  CHECK(refused_after(LargestShare{}, "validation.shares") == 2);  // the first evaluation tells
  CHECK(refused_after(nothing, "validation.accuracy") == 2);
  CHECK(refused_after(Declares{}, "validation.rare") == -1);  // may still come
  CHECK(refused_after(LargestShare{}, "validation.share") == -1);
}

TEST_CASE("a loop of step() says once that it has no epochs, and which metric does not come") {
  const auto warnings = [](auto... policies) {
    Waiting job(std::move(policies)...);
    Warnings warnings;
    for (const auto& batch : toy::batches(4)) job.trainer.step(batch);
    return warnings.texts;
  };
  const auto of_epochs = warnings(lt::Validate{toy::batches(2)});
  REQUIRE(of_epochs.size() == 1);
  CHECK_THAT(of_epochs[0],
             Catch::Contains("a Validate named validation evaluates at the end of each epoch, and a "
                             "loop of step() has none: give `every`"));
  const auto of_metric =
      warnings(lt::Validate{toy::batches(2), {.every = 1}}, lt::StopEarly{.metric = "valid.loss"});
  REQUIRE(of_metric.size() == 1);
  CHECK_THAT(of_metric[0],
             Catch::Contains("StopEarly waits for the metric 'valid.loss', which is not published") &&
                 Catch::Contains("did you mean 'validation.loss'?"));
  CHECK(warnings(lt::Validate{toy::batches(2), {.every = 1}}, lt::StopEarly{}).empty());
}

TEST_CASE("all that a Validate knows is in its state") {
  const lt::Validate validate(toy::batches(1), nothing);
  using State = std::remove_cvref_t<decltype(validate)>::State;
  State saved{.last = lt::Evaluation{.loss = 1.5, .metrics = {{"a", 2}, {"b", 3}}, .weight = 4, .batches = 5},
              .at_step = 7,
              .parts = 1};
  lt::StateDict state;
  validate.state_dict(state, saved);
  State loaded;
  validate.load_state_dict(state, loaded);
  CHECK((loaded.at_step == 7 && loaded.parts == 1));
  REQUIRE(loaded.last);
  CHECK((loaded.last->loss == 1.5 && loaded.last->weight == 4 && loaded.last->batches == 5));
  CHECK(loaded.last->metrics == saved.last->metrics);
}

TEST_CASE("two Validates of one name are refused before the first step, and both are named") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto batches = toy::batches(2);
  const at::Tensor before = net->parameters()[0].detach().clone();
  lt::Trainer twice(net, sgd, toy::objective, lt::Validate{batches}, lt::Validate{batches, LargestShare{}});
  CHECK_THROWS_AS(twice.fit(batches), lt::UsageError);
  CHECK_THROWS_WITH(twice.fit(batches),
                    Catch::Contains("metric 'validation.*' is set by a Validate of the objective and by a "
                                    "Validate of ") &&
                        Catch::Contains("LargestShare; give each Validate a name of its own") &&
                        Catch::Contains(".name"));
  CHECK_THROWS_AS(twice.step(batches[0]), lt::UsageError);
  CHECK(torch::equal(net->parameters()[0], before));
  lt::Trainer named(net, sgd, toy::objective, lt::Validate{batches},
                    lt::Validate{batches, LargestShare{}, {.name = "test"}});
  CHECK(named.fit(batches, {.epochs = 2}).steps == 4);
  CHECK(named.fit(batches, {.epochs = 2}).steps == 4);
  bool is_on = false;
  lt::Trainer chosen(net, sgd, toy::objective, lt::When{is_on, lt::Validate{batches}},
                     lt::When{!is_on, lt::Validate{batches, LargestShare{}}});
  CHECK(chosen.fit(batches).steps == 2);
}

TEST_CASE("options that cannot be are refused with their values") {
  const auto refused = [](lt::ValidateOptions options, const std::string& text) {
    CHECK_THROWS_AS(lt::Validate(toy::batches(1), nothing, options), lt::UsageError);
    CHECK_THROWS_WITH(lt::Validate(toy::batches(1), nothing, options), Catch::Contains(text));
  };
  refused({.every = -1}, "got -1");
  refused({.per_epoch = -2}, "`per_epoch` must be at least 0, got -2");
  refused({.every = 5, .per_epoch = 2}, "every 5 steps or 2 times an epoch");
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer stepping(net, sgd, toy::objective, lt::Validate{toy::batches(1), {.per_epoch = 2}});
  CHECK_THROWS_AS(stepping.step(toy::batches(1)[0]), lt::UsageError);
  CHECK_THROWS_WITH(stepping.step(toy::batches(1)[0]),
                    Catch::Contains("2 times an epoch, whose number of batches is not known"));
}
