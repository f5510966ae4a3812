// SPDX-License-Identifier: MIT
// Parameters and groups that join an optimizer, leave it, or take another's place while a run is under way.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

at::Tensor parameter(double value, at::IntArrayRef shape = {3}) {
  return torch::full(shape, value, torch::kDouble).requires_grad_();
}

/// A sum over parameters that tests put in and out: the gradient of each is the batch times its index + 1.
struct Weights {
  std::vector<at::Tensor> all;
  at::Tensor operator()(toy::Net&, const at::Tensor& batch) const {
    at::Tensor loss = torch::zeros({}, torch::kDouble);
    for (std::size_t i = 0; i < all.size(); ++i)
      loss = loss + (batch * all[i]).sum() * static_cast<double>(i + 1);
    return loss;
  }
};

std::vector<at::Tensor> numbers(int64_t count) {
  std::vector<at::Tensor> result;
  for (int64_t i = 0; i < count; ++i)
    result.push_back(torch::full({}, 1.0 + static_cast<double>(i % 3), torch::kDouble));
  return result;
}

/// Ten steps of a falling rate; the second layer joins after the third.
struct JoiningRun {
  explicit JoiningRun(bool joined) : adamw(net->first->parameters(), {.lr = 0.01}) {
    if (joined) join();
  }
  void join() { adamw.add_param_group(lt::FusedAdamW::group(net->second->parameters(), {.lr = 0.1})); }
  lt::FitResult run(const std::filesystem::path& folder, int64_t steps, bool resume) {
    const auto at_window = [&](lt::WindowContext& window) {
      if (window.run.progress().step == 3 && !resume) join();
      if (adamw.param_groups().size() > 1) rates.push_back(adamw.param_groups()[1].options().get_lr());
    };
    lt::Trainer trainer(
        net, adamw, toy::objective, lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 10}},
        lt::On{lt::kObserve, at_window}, lt::SnapshotEvery{.folder = folder, .on_signals = false});
    lt::FitOptions options{.max_steps = steps};
    if (resume) options.resume = folder;
    return trainer.fit(toy::batches(10), options);
  }
  toy::Net net = toy::net();
  lt::FusedAdamW adamw;
  std::vector<double> rates;
};

}  // namespace

TEST_CASE("a group that joins within a fit is scheduled from its first update on") {
  TemporaryFolder folder;
  JoiningRun run(false);
  run.run(folder.path(), 10, false);
  REQUIRE(run.rates.size() == 8);
  for (int64_t step = 3; step < 10; ++step)
    CHECK(run.rates[static_cast<std::size_t>(step - 2)] == Approx(0.1 * static_cast<double>(10 - step) / 10));
}

TEST_CASE("a run in which a group joined continues from any snapshot as if it had not been cut") {
  TemporaryFolder uncut_folder;
  JoiningRun uncut(false);
  uncut.run(uncut_folder.path(), 10, false);
  for (const int64_t cut : {3, 4, 7}) {
    INFO("cut at " << cut);
    TemporaryFolder folder;
    JoiningRun first(false), second(true);
    first.run(folder.path(), cut, false);
    second.run(folder.path(), 10, true);
    CHECK(toy::distance(uncut.net, second.net) == 0.0);
    CHECK(second.rates.back() == uncut.rates.back());
  }
}

TEST_CASE("two schedules cannot both take up a group that joins") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->first->parameters());
  const auto join = [&](lt::WindowContext&) {
    adamw.add_param_group(lt::FusedAdamW::group(net->second->parameters(), {}));
  };
  lt::Trainer trainer(net, adamw, toy::objective, lt::ScheduleLr{.groups = {"*"}}, lt::ScheduleLr{},
                      lt::On{lt::kObserve, join});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(3)), Catch::Contains("keep one of them"));
}

TEMPLATE_TEST_CASE(
    "a parameter that takes another's place in a step loop begins with neither its moments nor "
    "a gradient",
    "", lt::FusedAdamW, lt::FusedAdam, torch::optim::AdamW) {
  const auto data = numbers(8);
  auto net = toy::net();
  auto weights = std::make_shared<Weights>(Weights{{parameter(1), parameter(2)}});
  TestType optimizer(weights->all);
  const auto objective = [weights](toy::Net& net, const at::Tensor& batch) { return (*weights)(net, batch); };
  lt::Trainer trainer(net, optimizer, objective);
  for (const auto& batch : data) trainer.step(batch);

  const at::Tensor old = weights->all[1], fresh = parameter(5), alone = parameter(5);
  const auto kept = old.detach().clone();
  fresh.mutable_grad() = torch::full({3}, 100.0, torch::kDouble);  // of the program's own
  weights->all[1] = optimizer.param_groups()[0].params()[1] = fresh;
  TestType by_hand(std::vector<at::Tensor>{alone});
  for (const auto& batch : data) {
    trainer.step(batch);
    by_hand.zero_grad();
    ((batch * alone).sum() * 2).backward();
    by_hand.step();
    CHECK_FALSE(fresh.grad().defined());
  }
  CHECK(fresh.equal(alone));
  CHECK(old.equal(kept));
  CHECK(optimizer.state().count(old.unsafeGetTensorImpl()) == 0);
  CHECK(trainer.updates()[0].parameters[1].is_same(fresh));
}

TEMPLATE_TEST_CASE("moments stay with parameters that change their places and groups", "", lt::FusedAdamW,
                   lt::FusedAdam) {
  auto moved = std::vector{parameter(1), parameter(2), parameter(3)};
  auto still = std::vector{parameter(1), parameter(2), parameter(3)};
  TestType one(moved), two(still);
  const auto step = [](TestType& optimizer, const std::vector<at::Tensor>& parameters, double factor) {
    for (std::size_t i = 0; i < 3; ++i)
      parameters[i].mutable_grad() = torch::full({3}, factor * static_cast<double>(i + 1), torch::kDouble);
    optimizer.step();
  };
  for (const double factor : {1.0, -2.0}) step(one, moved, factor), step(two, still, factor);
  auto& params = one.param_groups()[0].params();
  params = {parameter(9), moved[2], moved[0]};
  CHECK(one.state_of(moved[2]).template get<at::Tensor>("exp_avg").equal(
      two.state_of(still[2]).template get<at::Tensor>("exp_avg")));
  CHECK(one.state_of(params[0]).empty());
  one.add_param_group(torch::optim::OptimizerParamGroup({moved[1]}));
  for (const double factor : {0.5, 1.0}) step(one, moved, factor), step(two, still, factor);
  for (std::size_t i = 0; i < 3; ++i) CHECK(moved[i].equal(still[i]));
}

TEST_CASE("a run in which a parameter was replaced continues from a snapshot as if it had not been cut") {
  const auto data = numbers(12);
  const auto trained = [&](bool cut) {
    auto net = toy::net();
    auto weights = std::make_shared<Weights>(Weights{{parameter(1), parameter(2)}});
    const auto objective = [weights](toy::Net& net, const at::Tensor& batch) {
      return (*weights)(net, batch);
    };
    const auto steps = [&](auto& trainer, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) trainer.step(data[i]);
    };
    lt::FusedAdamW optimizer(weights->all);
    lt::Trainer trainer(net, optimizer, objective);
    steps(trainer, 0, 5);
    weights->all[0] = optimizer.param_groups()[0].params()[0] = parameter(7);
    steps(trainer, 5, 8);
    if (cut) {
      const auto contents = trainer.snapshot();
      for (at::Tensor& weight : weights->all) weight = parameter(0);
      lt::FusedAdamW other(weights->all);
      lt::Trainer resumed(net, other, objective);
      resumed.restore(contents);
      steps(resumed, 8, 12);
    } else {
      steps(trainer, 8, 12);
    }
    return torch::stack(weights->all).detach().clone();
  };
  CHECK(trained(true).equal(trained(false)));
}

TEST_CASE("the average of a weight that was replaced begins anew") {
  struct OneImpl : torch::nn::Module {
    OneImpl() { register_parameter("weight", parameter(1)); }
    at::Tensor& weight() { return parameters_["weight"]; }
  };
  auto net = std::make_shared<OneImpl>();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  const auto objective = [](std::shared_ptr<OneImpl>& net, const at::Tensor& batch) {
    return (net->weight() * batch).sum();
  };
  lt::Trainer trainer(net, sgd, objective, lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}});
  for (const auto& batch : numbers(3)) trainer.step(batch);
  net->weight() = sgd.param_groups()[0].params()[0] = parameter(8, {2});
  trainer.step(torch::ones({}, torch::kDouble));
  const auto averages = trainer.policy<lt::AverageWeights>().named();
  CHECK(net->weight().equal(torch::full({2}, 7.5, torch::kDouble)));
  CHECK(averages.at("weight").equal(torch::full({2}, 7.75, torch::kDouble)));
}

TEST_CASE("a group that is taken away is forgotten with its rate") {
  auto net = toy::net();
  lt::FusedAdamW adamw({lt::FusedAdamW::group(net->first->parameters(), {.lr = 0.1}),
                        lt::FusedAdamW::group(net->second->parameters(), {.lr = 0.2})});
  lt::Trainer trainer(net, adamw, toy::objective, lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 4}});
  trainer.step(toy::batches(1)[0]);
  adamw.param_groups().pop_back();
  const auto before = net->second->weight.detach().clone();
  trainer.step(toy::batches(1)[0]);
  CHECK(trainer.updates()[0].full_rates == std::vector{0.1});
  CHECK(net->second->weight.equal(before));
  CHECK_FALSE(toy::has_gradients(net));
}

namespace {

double rate(torch::optim::Optimizer& optimizer, std::size_t group) {
  return optimizer.param_groups()[group].options().get_lr();
}

}  // namespace

TEST_CASE("a group keeps its own full rate when another leaves, changes places with it, or is replaced") {
  auto net = toy::net();
  const auto groups = [&] {
    return std::vector<lt::FusedAdamW::Group>{
        lt::FusedAdamW::group(net->first->parameters(), {.lr = 0.5}),
        lt::FusedAdamW::group(net->second->parameters(), {.lr = 0.001})};
  };
  const auto train = [&](lt::FusedAdamW& optimizer, auto change) {
    lt::Trainer trainer(net, optimizer, toy::objective, lt::ScheduleLr{.decay = lt::ConstantLr{}},
                        lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                                 if (window.run.progress().step == 2) change(optimizer.param_groups());
                               }});
    trainer.fit(toy::batches(4), {.epochs = 1});
    return trainer.updates()[0].full_rates;
  };
  SECTION("leaves") {
    lt::FusedAdamW optimizer(groups());
    CHECK(train(optimizer, [](auto& all) { all.erase(all.begin()); }) == std::vector<double>{0.001});
    CHECK(rate(optimizer, 0) == 0.001);
  }
  SECTION("changes places") {
    lt::FusedAdamW optimizer(groups());
    CHECK(train(optimizer, [](auto& all) { std::swap(all[0], all[1]); }) == std::vector<double>{0.001, 0.5});
    CHECK(rate(optimizer, 0) == 0.001);
    CHECK(rate(optimizer, 1) == 0.5);
  }
  SECTION("is replaced by one after the others") {
    lt::FusedAdamW optimizer(groups());
    auto other = torch::zeros({2}, torch::requires_grad());
    const auto rates = train(optimizer, [&](auto& all) {
      all.erase(all.begin());
      auto added = all.front();
      added.params() = {other};
      added.options().set_lr(0.25);
      all.push_back(added);
    });
    CHECK(rates == std::vector<double>{0.001, 0.25});
  }
}

TEST_CASE("a step that is refused leaves the gradients of another Trainer's window") {
  const auto batches = toy::batches(6);
  const auto trained = [&](bool other_steps) {
    toy::Net net = toy::net();
    torch::optim::SGD all(net->parameters(), 0.1), some(net->first->parameters(), 0.1);
    lt::Trainer trainer(net, all, toy::objective, lt::Accumulate<2>{});
    lt::Trainer other(net, some, toy::objective, lt::Accumulate<2>{});
    trainer.step(batches[0]);
    if (other_steps) {
      auto& joined = some.param_groups()[0].params();
      for (const at::Tensor& parameter : net->second->parameters()) joined.push_back(parameter);
      CHECK_THROWS_AS(other.step(batches[1]), lt::UsageError);
    }
    trainer.step(batches[1]);
    return net->second->weight.detach().clone();
  };
  CHECK(trained(true).equal(trained(false)));
}
