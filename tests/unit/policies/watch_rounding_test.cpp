// SPDX-License-Identifier: MIT
// Weights in bf16: the refusal of optimizers that round to the nearest, and the share that such rounding
// swallows.
// Tests loop/step: lossy_weights
#include "support/precompiled.hpp"

#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

namespace watch_rounding_test {

namespace lt = looptorch;
using torch::nn::Linear;

const auto objective = [](Linear& net, const at::Tensor& x) { return net(x).pow(2).mean(); };
using Objective = std::remove_const_t<decltype(objective)>;

Linear narrow_layer() {
  torch::manual_seed(0);
  Linear net(64, 64);
  net->to(torch::kBFloat16);
  torch::NoGradGuard no_gradients;
  net->weight.fill_(1), net->bias.fill_(1);
  return net;
}

const std::vector<at::Tensor>& data() {
  static const std::vector<at::Tensor> batches(4, torch::ones({2, 64}, torch::kBFloat16));
  return batches;
}

template <class Optimizer, class... Policies>
void fit(Linear& net, Policies... policies) {
  Optimizer optimizer(net->parameters(), {.lr = 1e-4});
  lt::Trainer trainer(net, optimizer, objective, policies...);
  trainer.fit(data());
}

TEST_CASE("bf16 weights are refused under optimizers that round to the nearest") {
  auto net = narrow_layer();
  CHECK_THROWS_WITH(fit<lt::FusedAdamW>(net),
                    Catch::Contains("rounds bf16 weights, such as one of shape [64, 64]") &&
                        Catch::Contains("FusedAdamW") && Catch::Contains("train with AdamWBf16"));
  torch::optim::AdamW adamw(net->parameters());
  lt::Trainer of_libtorch(net, adamw, objective);
  CHECK_THROWS_AS(of_libtorch.fit(data()), lt::UsageError);
  CHECK_THROWS_AS(of_libtorch.step(data()[0]), lt::UsageError);
  fit<lt::AdamWBf16>(net), fit<lt::AdamW8bit>(net), fit<lt::Adafactor>(net);
}

TEST_CASE("bf16 weights that are not trained, or at the user's own risk, are let through") {
  auto net = narrow_layer();
  torch::nn::Sequential both(narrow_layer(), Linear(64, 2));
  lt::FusedAdamW all(both->parameters());
  const auto loss = [](torch::nn::Sequential& model, const at::Tensor& x) {
    return model[1]
        ->as<Linear>()
        ->forward(model[0]->as<Linear>()->forward(x).to(torch::kFloat))
        .pow(2)
        .mean();
  };
  lt::Trainer frozen(both, all, loss, lt::Freeze{"0.*"});
  frozen.fit(data());
  lt::Trainer unfrozen(both, all, loss, lt::UnfreezeAt{{.epoch = 3, .patterns = {"0.*"}}});
  CHECK_THROWS_AS(unfrozen.fit(data()), lt::UsageError);
  lt::FusedAdamW optimizer(net->parameters());
  lt::Trainer accepted(net, lt::Update{optimizer, objective, {.lossy_weights = true}});
  accepted.fit(data());
}

double swallowed(double rate) {
  auto net = narrow_layer();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = rate, .weight_decay = 0});
  lt::Trainer trainer(net, lt::Update{optimizer, objective, {.lossy_weights = true}},
                      lt::WatchRounding{.every = 2});
  trainer.fit(data());
  CHECK(trainer.policy<lt::WatchRounding>().elements == 64 * 64 + 64);
  return trainer.policy<lt::WatchRounding>().share.item<double>();
}

TEST_CASE("WatchRounding measures the share of updates that rounding swallows") {
  CHECK(swallowed(1e-4) == 1);  // half a step of 1 is 0.002 downwards
  CHECK(swallowed(1e-2) == 0);
  auto net = narrow_layer();
  lt::AdamWBf16 optimizer(net->parameters(), {.lr = 1e-3, .weight_decay = 0});
  lt::Trainer trainer(net, optimizer, objective, lt::WatchRounding{.every = 1}, lt::UpdateInBackward{});
  trainer.fit(data());
  const double share = trainer.policy<lt::WatchRounding>().share.item<double>();
  CHECK(share > 0.5);  // a step of 0.004 is taken with a chance of a quarter
  CHECK(share < 0.95);
  lt::Trainer invalid(net, optimizer, objective, lt::WatchRounding{.every = 0});
  CHECK_THROWS_WITH(invalid.fit(data()), Catch::Contains("of at least 1, got 0"));
}

}  // namespace watch_rounding_test
