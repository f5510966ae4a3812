// SPDX-License-Identifier: MIT
// What is told, and what is refused, as a fit begins.
// Tests base/text: first_few
#include "support/precompiled.hpp"

#include <looptorch/loop/step/fit_checks.hpp>
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <string>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::Warnings;

namespace {

/// Returns what a fit says whose optimizer has the second layer only.
template <class... Policies>
std::vector<std::string> told(toy::Net& net, const Policies&... policies) {
  Warnings warnings;
  torch::optim::SGD sgd(net->second->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, policies...);
  trainer.fit(toy::batches(2), {.epochs = 2});
  trainer.fit(toy::batches(1));
  return warnings.texts;
}

const auto mean_square = [](torch::nn::Linear& net, const at::Tensor& x) { return net(x).pow(2).mean(); };

torch::nn::Linear narrow_layer() {
  torch::manual_seed(0);
  torch::nn::Linear net(64, 64);
  net->to(torch::kBFloat16);
  torch::NoGradGuard no_gradients;
  net->weight.fill_(1), net->bias.fill_(1);
  return net;
}

const std::vector<at::Tensor>& narrow_data() {
  static const std::vector<at::Tensor> batches(4, torch::ones({2, 64}, torch::kBFloat16));
  return batches;
}

template <class Optimizer, class... Policies>
void fit_narrow(torch::nn::Linear& net, Policies... policies) {
  Optimizer optimizer(net->parameters(), {.lr = 1e-4});
  lt::Trainer trainer(net, optimizer, mean_square, policies...);
  trainer.fit(narrow_data());
}

}  // namespace

TEST_CASE("parameters that no update trains are told once a Trainer, by number and name") {
  auto net = toy::net();
  const auto texts = told(net);
  REQUIRE(texts.size() == 1);
  CHECK_THAT(texts[0], Contains("no update trains 2 of the model's parameters that require gradients: "
                                "first.weight, first.bias. Give them to an optimizer, or freeze them"));
  net->register_parameter("third", torch::ones({1}, torch::kDouble));
  net->register_parameter("fourth", torch::ones({1}, torch::kDouble));
  CHECK_THAT(told(net).at(0), Contains(" 4 of the model's") && Contains(" and 1 more. Give them"));

  Warnings warnings;
  auto other = toy::net();
  torch::optim::SGD sgd(other->first->parameters(), 0.1);
  lt::Trainer trainer(other, sgd, toy::objective);
  trainer.step(toy::batches(1)[0]), trainer.step(toy::batches(1)[0]);
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Contains("second.weight, second.bias"));
}

TEST_CASE("nothing is said of parameters that are frozen, by a flag or by a policy, or unfrozen later") {
  auto net = toy::net();
  CHECK(told(net, lt::Freeze{"first.*"}).empty());
  const auto unfrozen = told(net, lt::UnfreezeAt{{.epoch = 9, .patterns = {"first.*"}}});
  REQUIRE(unfrozen.size() == 1);
  CHECK_THAT(unfrozen[0], Contains("UnfreezeAt keeps 'first.*' frozen"));  // and no word of the untrained
  net = toy::net();
  for (at::Tensor& parameter : net->first->parameters()) parameter.set_requires_grad(false);
  CHECK(told(net).empty());
}

TEST_CASE("nothing is said of parameters that another update or another Trainer trains") {
  auto net = toy::net();
  torch::optim::SGD first(net->first->parameters(), 0.1), second(net->second->parameters(), 0.1);
  Warnings warnings;
  {
    lt::Trainer both(net, lt::Update{first, toy::objective}, lt::Update{second, toy::objective});
    both.fit(toy::batches(1));
    lt::Trainer one(net, first, toy::objective);
    lt::Trainer other(net, second, toy::objective);  // has not begun yet as the one does
    one.step(toy::batches(1)[0]);
    lt::Trainer moved = std::move(other);
    moved.step(toy::batches(1)[0]);
    CHECK(warnings.texts.empty());
  }
  lt::Trainer alone(net, first, toy::objective);
  alone.fit(toy::batches(1));
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("a fit that continues an epoch over a range of another size says which batches it skips") {
  Warnings warnings;
  auto net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(net, optimizer, toy::objective);
  const auto easy = toy::batches(6), hard = toy::batches(9);
  trainer.fit(easy, {.max_steps = 4});
  trainer.fit(easy, {.max_steps = 5});  // the same range
  CHECK(warnings.texts.empty());
  trainer.fit(hard, {.max_steps = 7});
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Catch::Contains("5 of 6 batches") && Catch::Contains("has 9 batches") &&
                                    Catch::Contains("skips the first 5"));
  trainer.fit(hard, {.epochs = 1});
  trainer.fit(easy, {.epochs = 2});  // another range, from an epoch's beginning
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("bf16 weights are refused under optimizers that round to the nearest") {
  auto net = narrow_layer();
  CHECK_THROWS_WITH(fit_narrow<lt::FusedAdamW>(net),
                    Contains("rounds bf16 weights, such as one of shape [64, 64]") &&
                        Contains("FusedAdamW") && Contains("train with AdamWBf16"));
  torch::optim::AdamW adamw(net->parameters());
  lt::Trainer of_libtorch(net, adamw, mean_square);
  CHECK_THROWS_AS(of_libtorch.fit(narrow_data()), lt::UsageError);
  CHECK_THROWS_AS(of_libtorch.step(narrow_data()[0]), lt::UsageError);
  fit_narrow<lt::AdamWBf16>(net), fit_narrow<lt::AdamW8bit>(net), fit_narrow<lt::Adafactor>(net);
}

TEST_CASE("bf16 weights that are not trained, or at the user's own risk, are let through") {
  auto net = narrow_layer();
  torch::nn::Sequential both(narrow_layer(), torch::nn::Linear(64, 2));
  lt::FusedAdamW all(both->parameters());
  const auto loss = [](torch::nn::Sequential& model, const at::Tensor& x) {
    return model[1]
        ->as<torch::nn::Linear>()
        ->forward(model[0]->as<torch::nn::Linear>()->forward(x).to(torch::kFloat))
        .pow(2)
        .mean();
  };
  lt::Trainer frozen(both, all, loss, lt::Freeze{"0.*"});
  frozen.fit(narrow_data());
  lt::Trainer unfrozen(both, all, loss, lt::UnfreezeAt{{.epoch = 3, .patterns = {"0.*"}}});
  CHECK_THROWS_AS(unfrozen.fit(narrow_data()), lt::UsageError);
  lt::FusedAdamW optimizer(net->parameters());
  lt::Trainer accepted(net, lt::Update{optimizer, mean_square, {.lossy_weights = true}});
  accepted.fit(narrow_data());
}
