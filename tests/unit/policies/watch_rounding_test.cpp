// SPDX-License-Identifier: MIT
// The share of updates that rounding to bf16 swallows.
#include "support/precompiled.hpp"

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

TEST_CASE("WatchRounding: an update that is vetoed is not part of the next measurement") {
  auto net = narrow_layer();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2, .weight_decay = 0});
  lt::Trainer trainer(
      net, lt::Update{optimizer, objective, {.lossy_weights = true}}, lt::WatchRounding{.every = 1},
      lt::On{lt::kCheck, [](lt::UpdateContext& update) { update.veto(update.run.progress().step < 3); }});
  trainer.fit(data());
  CHECK(trainer.updates()[0].applied == 1);
  CHECK(trainer.policy<lt::WatchRounding>().elements == 64 * 64 + 64);
}

}  // namespace watch_rounding_test

TEST_CASE("WatchRounding: a sparse gradient is not compared") {
  torch::nn::Embedding net(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  net->to(torch::kBFloat16);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto objective = [](torch::nn::Embedding& model, const at::Tensor& words) {
    return model(words).pow(2).mean().to(torch::kFloat);
  };
  looptorch::Trainer trainer(net, looptorch::Update{optimizer, objective, {.lossy_weights = true}},
                             looptorch::WatchRounding{.every = 1});
  CHECK(trainer.fit(std::vector<at::Tensor>(2, torch::tensor({1, 2, 3}))).steps == 2);
}
