// SPDX-License-Identifier: MIT
// An after_update that throws: the update has been made, so that the window counts, and the next fit goes on
// after it.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// Throws after the update with this index, once; runs before the averages and before an observer.
struct Throws {
  std::int64_t at = -1;
  std::size_t update = 0;
  static constexpr lt::Phase phase = lt::Phase::update;
  struct State {
    bool thrown = false;
  };
  void after_update(lt::UpdateContext& context, State& state) const {
    if (state.thrown || context.index() != update || context.view().applied != at + 1) return;
    state.thrown = true;
    throw std::runtime_error("full");
  }
};

struct Counts {
  struct State {
    std::vector<std::int64_t> applied;
  };
  void after_update(lt::UpdateContext& context, State& state) const {
    state.applied.push_back(context.view().applied);
  }
};

template <class... Policies>
auto trained(const std::vector<toy::Batch>& data, std::int64_t at, Policies... policies) {
  auto net = toy::net();
  auto adamw = std::make_shared<lt::FusedAdamW>(net->parameters(), lt::FusedAdamWOptions{.lr = 0.1});
  lt::Trainer trainer(net, adamw, toy::objective, Throws{at}, Counts{},
                      lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}}, policies...);
  if (at >= 0) {
    CHECK_THROWS_WITH(trainer.fit(data, {.epochs = 2}), "full");
    CHECK(trainer.progress().step >= at + 1);
    CHECK(trainer.updates()[0].applied == at + 1);
    CHECK_FALSE(toy::has_gradients(net));
  }
  const auto result = trainer.fit(data, {.epochs = 2});
  std::vector<at::Tensor> weights = net->parameters();
  for (const auto& [name, average] : trainer.template policy<lt::AverageWeights>().named())
    weights.push_back(average);
  for (at::Tensor& weight : weights) weight = weight.detach().flatten().clone();
  CHECK(trainer.template policy<Counts>().applied.size() == static_cast<std::size_t>(result.steps));
  return std::tuple(torch::cat(weights), result.steps, result.loss, trainer.progress().samples);
}

}  // namespace

TEST_CASE("after an after_update that throws, a further fit ends as if nothing had been thrown") {
  const auto data = toy::batches(7);
  const auto same = [](const auto& a, const auto& b) {
    CHECK(std::get<0>(a).equal(std::get<0>(b)));
    CHECK(std::get<1>(a) == std::get<1>(b));
    CHECK(std::get<2>(a) == std::get<2>(b));
    CHECK(std::get<3>(a) == std::get<3>(b));
  };
  for (const std::int64_t at : {0, 2, 3, 5}) {  // 3 is an epoch's last
    INFO("thrown after update " << at);
    same(trained(data, at, lt::Accumulate<2>{}), trained(data, -1, lt::Accumulate<2>{}));
  }
}

TEST_CASE("after an after_update that throws, a NaN of the same window is not reported by the next step") {
  auto net = toy::net();
  lt::FusedSGD first(net->parameters(), {.lr = 0.1}), second(net->parameters(), {.lr = 0.1});
  bool poison = true;
  const auto poisoned = [&](toy::Net& model, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(model, batch);
    if (poison) loss.value = loss.value * NAN;
    return loss;
  };
  lt::Trainer trainer(net, lt::Update{first, toy::objective}, lt::Update{second, poisoned}, Throws{.at = 0});
  const auto data = toy::batches(2);
  CHECK_THROWS_WITH(trainer.step(data[0]), "full");
  poison = false;
  CHECK(trainer.step(data[1]).step == 2);
}

TEST_CASE("one that learns late of an update throws in the next window, which is learnt again") {
  const auto data = toy::batches(6);
  const auto late = lt::On{lt::kClip, [](lt::UpdateContext& update) { update.veto(torch::zeros({})); }};
  for (const std::int64_t at : {0, 4, 5})
    CHECK(std::get<0>(trained(data, at, late)).equal(std::get<0>(trained(data, -1, late))));
}

TEST_CASE("of several updates those that follow in the window are made before the exception continues") {
  const auto data = toy::batches(6);
  const auto run = [&](std::int64_t at) {
    auto net = toy::net();
    torch::optim::SGD a(net->first->parameters(), 0.5), b(net->second->parameters(), 0.5);
    lt::Trainer trainer(net, lt::Update{a, toy::objective}, lt::Update{b, toy::objective},
                        lt::Accumulate<2>{}, Throws{at, 0}, Counts{});
    if (at >= 0) {
      CHECK_THROWS_WITH(trainer.fit(data, {.epochs = 1}), "full");
      CHECK(trainer.progress().step == at + 1);
      CHECK(trainer.updates()[1].applied == at + 1);
    }
    CHECK(trainer.fit(data, {.epochs = 1}).steps == 3);
    return torch::cat({net->first->weight.flatten(), net->second->weight.flatten()}).detach();
  };
  for (const std::int64_t at : {0, 1, 2}) CHECK(run(at).equal(run(-1)));
}

TEST_CASE("in a step loop the step whose after_update throws has been made") {
  const auto data = toy::batches(3);
  auto net = toy::net(), plain = toy::net();
  torch::optim::SGD a(net->parameters(), 0.5), b(plain->parameters(), 0.5);
  lt::Trainer trainer(net, a, toy::objective, Throws{1});
  lt::Trainer other(plain, b, toy::objective);
  for (const auto& batch : data) other.step(batch);
  trainer.step(data[0]);
  CHECK_THROWS_WITH(trainer.step(data[1]), "full");
  CHECK(trainer.progress().step == 2);
  trainer.step(data[2]);
  CHECK(toy::distance(net, plain) == 0.0);
}
