// SPDX-License-Identifier: MIT
// Freeze against flags that are set by hand.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace freeze_test {

namespace lt = looptorch;

TEST_CASE("Freeze trains what its patterns leave, and restores the flags") {
  auto by_hand = toy::net(), net = toy::net();
  by_hand->first->weight.set_requires_grad(false), by_hand->first->bias.set_requires_grad(false);
  net->second->bias.set_requires_grad(false);  // the user's own
  by_hand->second->bias.set_requires_grad(false);
  lt::FusedAdamW a(by_hand->parameters(), {.lr = 1e-2}), b(net->parameters(), {.lr = 1e-2});
  lt::Trainer plain(by_hand, a, toy::objective);
  bool fails = false;
  const auto objective = [&](toy::Net& model, const toy::Batch& batch) {
    if (fails) throw std::runtime_error("a bad sample");
    CHECK_FALSE(model->first->weight.requires_grad());
    return toy::objective(model, batch);
  };
  lt::Trainer frozen(net, b, objective, lt::Freeze{"first.*"});
  const auto first = net->first->weight.detach().clone();
  plain.fit(toy::batches(5)), frozen.fit(toy::batches(5));
  CHECK(toy::distance(net, by_hand) == 0);
  CHECK(net->first->weight.equal(first));
  CHECK(b.state_of(net->first->weight).empty());
  CHECK(frozen.policy<lt::Freeze>().parameters == 2);
  CHECK(frozen.policy<lt::Freeze>().elements == 40);
  fails = true;
  CHECK_THROWS(frozen.fit(toy::batches(1), {.epochs = 2}));
  CHECK(net->first->weight.requires_grad());
  CHECK(net->first->bias.requires_grad());
  CHECK_FALSE(net->second->bias.requires_grad());
}

TEST_CASE("a frozen parameter has no part in what a run is expected to hold") {
  const auto held = [](auto... policies) {
    auto net = toy::net();
    lt::FusedAdamW optimizer(net->parameters());
    return lt::Trainer(net, optimizer, toy::objective, policies...).expected_memory();
  };
  const auto all = held(), part = held(lt::Freeze{"first.weight"});
  CHECK(all.gradients - part.gradients == 32 * 8);
  CHECK(all.optimizer - part.optimizer == 2 * 32 * 8);
}

TEST_CASE("modules keep their mode under Freeze: only one in eval mode keeps its statistics") {
  const auto statistics = [](bool train) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
    net[0]->train(train);
    lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
    lt::Trainer trainer(
        net, optimizer,
        [](torch::nn::Sequential& model, const at::Tensor& x) { return model->forward(x).pow(2).mean(); },
        lt::Freeze{"0.*"});
    trainer.fit(std::vector<at::Tensor>{torch::arange(8, torch::kFloat).view({2, 4})});
    return net[0]->as<torch::nn::BatchNorm1d>()->running_mean.clone();
  };
  CHECK_FALSE(statistics(true).equal(torch::zeros(4)));
  CHECK(statistics(false).equal(torch::zeros(4)));
}

TEST_CASE("Freeze stands beside UnfreezeAt for other parameters, and refuses the same ones") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  lt::Trainer disjoint(net, optimizer, toy::objective, lt::Freeze{"first.*"},
                       lt::UnfreezeAt{{.epoch = 1, .patterns = {"second.bias"}}});
  disjoint.fit(toy::batches(2), {.epochs = 2});
  lt::Trainer same(net, optimizer, toy::objective, lt::Freeze{"*bias"},
                   lt::UnfreezeAt{{.epoch = 1, .patterns = {"second.bias"}}});
  CHECK_THROWS_WITH(
      same.fit(toy::batches(2)),
      Catch::Contains("whether 'second.bias' is trained is set by") && Catch::Contains("keep one"));
}

TEST_CASE("Freeze refuses patterns that match nothing, and tells a snapshot of others") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  lt::Trainer none(net, optimizer, toy::objective, lt::Freeze{"third.*"});
  CHECK_THROWS_WITH(none.fit(toy::batches(1)),
                    Catch::Contains("no parameter of the model matches 'third.*'"));
  lt::Trainer without(net, optimizer, toy::objective, lt::Freeze(std::vector<std::string>{}));
  CHECK_THROWS_WITH(without.fit(toy::batches(1)), Catch::Contains("at least one pattern"));
  lt::Trainer off(net, optimizer, toy::objective, lt::When{false, lt::Freeze(std::vector<std::string>{})});
  CHECK(off.fit(toy::batches(1)).steps == 1);  // as a flag without a value
  lt::Trainer first(net, optimizer, toy::objective, lt::Freeze{"first.*"});
  lt::Trainer second(net, optimizer, toy::objective, lt::Freeze{"second.weight", "second.bias"});
  const auto state = first.state_dict();
  first.load_state_dict(state);
  CHECK_THROWS_WITH(
      second.load_state_dict(state),
      Catch::Contains("what is frozen is second.weight, second.bias here, first.* in the state"));
}

}  // namespace freeze_test
