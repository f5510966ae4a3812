// SPDX-License-Identifier: MIT
// A Trainer of an AnyOptimizer does what one of the chosen optimizer does.
#include "support/precompiled.hpp"

#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/interface/any_optimizer.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include <memory>
#include <vector>

namespace lt = looptorch;

namespace {

struct AnyBatch {
  at::Tensor x, y;
};

torch::nn::Linear any_net() {
  torch::manual_seed(5);
  return torch::nn::Linear(64, 80);
}

std::vector<AnyBatch> any_batches() {
  torch::manual_seed(6);
  std::vector<AnyBatch> batches;
  for (int i = 0; i < 6; ++i) batches.push_back({torch::randn({4, 64}), torch::randn({4, 80})});
  return batches;
}

at::Tensor any_loss(torch::nn::Linear& net, const AnyBatch& batch) {
  return torch::mse_loss(net(batch.x), batch.y);
}

template <class Optimizer>
lt::SnapshotContents trained(torch::nn::Linear& net, Optimizer& optimizer) {
  lt::Trainer trainer(net, optimizer, &any_loss, lt::Accumulate<2>{}, lt::ClipGradNorm{0.1});
  const auto forecast = trainer.expected_memory().optimizer;
  trainer.fit(any_batches());
  const auto of_counts = trainer.held_memory().optimizer - forecast;
  CHECK(of_counts > 0);
  CHECK(of_counts <= 2 * 4);
  return trainer.snapshot();
}

template <class Optimizer>
void restore(Optimizer& optimizer, torch::nn::Linear& net, const lt::SnapshotContents& contents) {
  lt::Trainer trainer(net, optimizer, &any_loss, lt::Accumulate<2>{}, lt::ClipGradNorm{0.1});
  (void)trainer.restore(contents);
}

}  // namespace

TEST_CASE("an optimizer that is chosen at run time trains, forecasts and resumes as by its own type") {
  auto plain = any_net(), chosen = any_net(), resumed = any_net();
  lt::AdamW8bit optimizer(plain->parameters(), {.lr = 1e-2});
  const std::unique_ptr<lt::AnyOptimizer> any =
      std::make_unique<lt::AdamW8bit>(chosen->parameters(), lt::AdamW8bitOptions{.lr = 1e-2});
  (void)trained(plain, optimizer);
  const auto contents = trained(chosen, *any);
  CHECK(plain->weight.equal(chosen->weight));
  CHECK(any->class_name() == "looptorch::AdamW8bit");

  lt::AdamW8bit again(resumed->parameters(), {.lr = 1e-2});  // by the type itself
  restore(again, resumed, contents);
  CHECK(resumed->weight.equal(chosen->weight));
  CHECK(again.moments().at(0).first_codes[0].equal(optimizer.moments().at(0).first_codes[0]));

  const std::unique_ptr<lt::AnyOptimizer> other =
      std::make_unique<lt::FusedAdamW>(resumed->parameters(), lt::FusedAdamWOptions{.lr = 1e-2});
  CHECK_THROWS_WITH(restore(*other, resumed, contents),
                    Catch::Contains("is looptorch::FusedAdamW here, looptorch::AdamW8bit in the snapshot"));
  const std::unique_ptr<lt::AnyOptimizer> slower =
      std::make_unique<lt::AdamW8bit>(resumed->parameters(), lt::AdamW8bitOptions{.lr = 1e-2, .eps = 1e-4});
  CHECK_THROWS_WITH(restore(*slower, resumed, contents), Catch::Contains("eps"));
}

TEST_CASE("bf16 weights are refused by the optimizer that was chosen, not by its common type") {
  const auto fit_bf16 = [](auto make) {
    auto net = any_net();
    net->to(torch::kBFloat16);
    const std::unique_ptr<lt::AnyOptimizer> any = make(net->parameters());
    const auto loss = [](torch::nn::Linear& net, const AnyBatch& batch) {
      return torch::mse_loss(net(batch.x.to(torch::kBFloat16)).to(torch::kFloat), batch.y);
    };
    lt::Trainer trainer(net, *any, loss);
    return trainer.fit(any_batches()).steps;
  };
  CHECK(fit_bf16([](auto parameters) { return std::make_unique<lt::AdamW8bit>(parameters); }) == 6);
  CHECK_THROWS_WITH(fit_bf16([](auto parameters) { return std::make_unique<lt::FusedAdamW>(parameters); }),
                    Catch::Contains("looptorch::FusedAdamW, rounds bf16 weights"));
}
