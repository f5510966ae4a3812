// SPDX-License-Identifier: MIT
// Several updates over a kept window against a loop written by hand: gradients of both players, in fp64, and
// nothing of one left in the other.
// Tests loop/step: rank_calls, solo_ranks
// Tests loop/step: update_step
#include "support/precompiled.hpp"

#include <looptorch/policies/on.hpp>
#include <looptorch/trainer.hpp>

#include "support/no_leaks.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// Two networks in one model: `player` is scored by `critic`.
struct DuelImpl : torch::nn::Module {
  DuelImpl() {
    register_module("player", player);
    register_module("critic", critic);
    to(torch::kDouble);
  }
  torch::nn::Linear player{4, 4};
  torch::nn::Linear critic{4, 1};
};
TORCH_MODULE(Duel);

at::Tensor critic_value(Duel& duel, const toy::Batch& batch) {
  const auto fake = duel->player(batch.features);
  return (duel->critic(fake).sigmoid() + (1 - duel->critic(batch.features).sigmoid())).mean();
}
at::Tensor player_value(Duel& duel, const toy::Batch& batch) {
  return (1 - duel->critic(duel->player(batch.features)).sigmoid()).mean();
}
lt::Loss critic_loss(Duel& duel, const toy::Batch& batch) {
  return {.value = critic_value(duel, batch), .weight = batch.features.size(0)};
}
lt::Loss player_loss(Duel& duel, const toy::Batch& batch) {
  return {.value = player_value(duel, batch), .weight = batch.features.size(0)};
}

Duel duel() {
  torch::manual_seed(3);
  return Duel();
}
torch::optim::SGD sgd(torch::nn::Module& module, double lr) {
  return torch::optim::SGD(module.parameters(), torch::optim::SGDOptions(lr).momentum(0.5));
}

void train_by_hand(Duel& duel, torch::optim::Optimizer& critic, torch::optim::Optimizer& player,
                   const std::vector<toy::Batch>& batches, std::size_t window, int64_t epochs) {
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (std::size_t i = 0; i < batches.size(); i += window) {
      const auto all = toy::join(batches, i, i + window);
      duel->zero_grad();
      critic_value(duel, all).backward();
      critic.step();
      duel->zero_grad();
      player_value(duel, all).backward();
      player.step();
    }
}

}  // namespace

TEST_CASE("two updates give the gradients of the loop written by hand") {
  for (const auto& [length, window] :
       std::vector<std::pair<int64_t, int64_t>>{{5, 1}, {7, 3}, {6, 3}, {2, 3}}) {
    auto ours = duel(), theirs = duel();
    const auto data = toy::batches(length);
    auto our_critic = sgd(*ours->critic, 0.3), our_player = sgd(*ours->player, 0.2);
    auto their_critic = sgd(*theirs->critic, 0.3), their_player = sgd(*theirs->player, 0.2);
    lt::Trainer trainer(ours, lt::Update{our_critic, critic_loss}, lt::Update{our_player, player_loss},
                        lt::Accumulate<>{window}, lt::testing::NoLeaks{});
    const auto result = trainer.fit(data, {.epochs = 3});
    train_by_hand(theirs, their_critic, their_player, data, static_cast<std::size_t>(window), 3);
    INFO("length " << length << " window " << window);
    CHECK(toy::distance(ours, theirs) < 1e-12);
    CHECK_FALSE(toy::has_gradients(ours));
    CHECK(result.steps == 3 * ((length + window - 1) / window));
    CHECK(result.losses.size() == 2);
  }
}

TEST_CASE("parameters outside the running update are frozen, and flags come back exactly") {
  auto model = duel();
  model->critic->bias.set_requires_grad(false);  // frozen by the user: stays frozen
  auto critic = sgd(*model->critic, 0.3), player = sgd(*model->player, 0.2);
  auto watching_critic = [](Duel& duel, const toy::Batch& batch) {
    CHECK_FALSE(duel->player->weight.requires_grad());
    CHECK(duel->critic->weight.requires_grad());
    return critic_loss(duel, batch);
  };
  auto watching_player = [](Duel& duel, const toy::Batch& batch) {
    CHECK(duel->player->weight.requires_grad());
    CHECK_FALSE(duel->critic->weight.requires_grad());
    return player_loss(duel, batch);
  };
  const auto bias = model->critic->bias.clone();
  lt::Trainer trainer(model, lt::Update{critic, watching_critic}, lt::Update{player, watching_player});
  trainer.fit(toy::batches(2));
  CHECK(model->critic->weight.requires_grad());
  CHECK(model->player->weight.requires_grad());
  CHECK_FALSE(model->critic->bias.requires_grad());
  CHECK(model->critic->bias.equal(bias));
}

TEST_CASE("an exception in the second update restores flags and leaves no gradients in either") {
  auto model = duel();
  auto critic = sgd(*model->critic, 0.3), player = sgd(*model->player, 0.2);
  auto throwing = [calls = 0](Duel& duel, const toy::Batch& batch) mutable {
    if (++calls == 3) throw std::runtime_error("no more");
    return player_loss(duel, batch);
  };
  lt::Trainer trainer(model, lt::Update{critic, critic_loss}, lt::Update{player, throwing},
                      lt::Accumulate<2>{});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(6)), "no more");
  CHECK_FALSE(toy::has_gradients(model));
  for (const auto& parameter : model->parameters()) CHECK(parameter.requires_grad());
  CHECK(trainer.progress().step == 1);
}

TEST_CASE("an update takes part every so many steps, or when a predicate says so") {
  auto model = duel();
  auto critic = sgd(*model->critic, 0.3), player = sgd(*model->player, 0.2);
  int64_t asked = 0;
  lt::Trainer trainer(
      model,
      lt::Update{
          critic, critic_loss, {.name = "critic", .when = [&](const lt::Run&) { return ++asked % 2 == 0; }}},
      lt::Update{player, player_loss, {.name = "player", .every = 3}});
  std::vector<std::pair<std::string, int64_t>> applied;
  trainer.fit(toy::batches(8));
  CHECK(asked == 8);
  const auto& updates = trainer.updates();
  CHECK(updates[0].name == "critic");
  CHECK(updates[0].applied == 4);
  CHECK(updates[1].applied == 3);  // steps 0, 3, 6
  CHECK_THROWS_AS((lt::Update{player, player_loss, {.every = 0}}), lt::UsageError);
}

TEST_CASE("updates of one name are refused, also if one of them has it by default") {
  auto model = duel();
  auto critic = sgd(*model->critic, 0.3), player = sgd(*model->player, 0.2);
  const auto train = [&](const std::string& first, const std::string& second) {
    lt::Trainer trainer(model, lt::Update{critic, critic_loss, {.name = first}},
                        lt::Update{player, player_loss, {.name = second}});
  };
  CHECK_NOTHROW(train("a", "b"));
  CHECK_THROWS_WITH(train("a", "a"), "two updates are named 'a': give each a name of its own");
  CHECK_THROWS_WITH(train("update 2", ""), "two updates are named 'update 2': give each a name of its own");
}

TEST_CASE("with one update, parameters that its optimizer does not train get no gradient either") {
  auto model = duel();
  auto critic = sgd(*model->critic, 0.3);
  const auto before = model->player->weight.clone();
  bool frozen_inside = false;
  lt::Trainer trainer(model, critic, [&](Duel& duel, const toy::Batch& batch) {
    frozen_inside = !duel->player->weight.requires_grad();
    return critic_loss(duel, batch);
  });
  trainer.fit(toy::batches(3));
  CHECK(frozen_inside);
  CHECK(model->player->weight.requires_grad());
  CHECK_FALSE(toy::has_gradients(model));
  CHECK(model->player->weight.equal(before));
}

TEST_CASE("a single update takes part every so many steps, and leaves nothing behind in the others") {
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.5), b(theirs->parameters(), 0.5);
  const auto data = toy::batches(8);
  lt::Trainer trainer(ours, lt::Update{a, toy::objective, {.every = 2}}, lt::Accumulate<2>{});
  CHECK(trainer.fit(data).steps == 4);
  CHECK(trainer.updates()[0].applied == 2);
  CHECK(trainer.progress().skipped == 0);
  toy::train_by_hand(theirs, b, {data[0], data[1], data[4], data[5]}, 2);
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("players that are no part of the model, and only captured, do not leak into each other either") {
  auto model = duel(), reference = duel();
  auto critic = sgd(*model->critic, 0.3), player = sgd(*model->player, 0.2);
  auto reference_critic = sgd(*reference->critic, 0.3), reference_player = sgd(*reference->player, 0.2);
  toy::Net stranger = toy::net();  // what the Trainer takes for the model
  const auto data = toy::batches(6);
  lt::Trainer trainer(
      stranger,
      lt::Update{critic, [&](toy::Net&, const toy::Batch& batch) { return critic_loss(model, batch); }},
      lt::Update{player, [&](toy::Net&, const toy::Batch& batch) { return player_loss(model, batch); }},
      lt::Accumulate<3>{}, lt::testing::NoLeaks{});
  trainer.fit(data);
  train_by_hand(reference, reference_critic, reference_player, data, 3, 1);
  CHECK(toy::distance(model, reference) < 1e-12);
}

TEST_CASE("clipping, vetoes and schedules are per update") {
  auto model = duel();
  auto critic = sgd(*model->critic, 0.5), player = sgd(*model->player, 0.5);
  const auto before = model->critic->weight.clone();
  std::vector<double> norms;
  std::array<double, 2> rates{};
  lt::Trainer trainer(model, lt::Update{critic, critic_loss}, lt::Update{player, player_loss},
                      lt::ClipGradNorm{1e-3}, lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 10}},
                      lt::On{lt::kCheck, [](lt::UpdateContext& update) { update.veto(update.index() == 0); }},
                      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                               at::Tensor squares = torch::zeros({}, torch::kDouble);
                               for (const auto& gradient : update.gradients())
                                 squares += gradient.pow(2).sum();
                               norms.push_back(squares.sqrt().item<double>());
                               rates[update.index()] =
                                   update.optimizer().param_groups()[0].options().get_lr();
                             }});
  const auto result = trainer.fit(toy::batches(4));
  CHECK(norms.size() == 8);
  for (const double norm : norms) CHECK(norm == Approx(1e-3).epsilon(1e-2));
  CHECK(result.skipped == 4);
  CHECK(trainer.updates()[0].skipped == 4);
  CHECK(trainer.updates()[1].applied == 4);
  CHECK(model->critic->weight.equal(before));
  CHECK(rates[0] == Approx(0.5));
  CHECK(rates[1] == Approx(0.35));
}

TEST_CASE("a hook that writes to the gradient of a loss changes that backward alone") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 1.0);
  const auto batch = toy::batches(1)[0];
  int number = 0;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    const at::Tensor loss = toy::objective(net, batch).value;
    loss.register_hook([&](at::Tensor gradient) {
      if (number++ == 1) gradient.mul_(2);
    });
    return loss;
  };
  std::vector<at::Tensor> gradients;
  lt::Trainer trainer(net, sgd, objective, lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                                                    gradients.push_back(update.gradients()[0].clone());
                                                    update.veto();
                                                  }});
  for (int i = 0; i < 4; ++i) trainer.step(batch);
  CHECK(gradients[1].equal(gradients[0] * 2));
  CHECK(gradients[2].equal(gradients[0]));
  CHECK(gradients[3].equal(gradients[0]));
}

TEST_CASE("several updates learn from each batch of a window, also where the next one takes its memory") {
  const auto data = toy::batches(6);
  const auto trained = [&](bool refills) {
    Duel net = duel();
    auto critic = sgd(*net->critic, 0.1), player = sgd(*net->player, 0.1);
    lt::Trainer trainer(net, lt::Update{critic, critic_loss}, lt::Update{player, player_loss},
                        lt::Accumulate<2>{});
    toy::Batch one{torch::empty_like(data[0].features), torch::empty_like(data[0].labels)};
    for (const toy::Batch& batch : data) {
      one.features.resize_as_(batch.features).copy_(batch.features);
      trainer.step(refills ? one : batch);
    }
    trainer.finish_window();
    return net;
  };
  Duel refilled = trained(true), separate = trained(false);
  for (std::size_t i = 0; i < refilled->parameters().size(); ++i)
    CHECK(refilled->parameters()[i].equal(separate->parameters()[i]));
}
