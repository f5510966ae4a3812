// SPDX-License-Identifier: MIT
// The loop with one update against loops written by hand, in fp64.
// Tests trainer
// Tests loop
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// Records the loss of each step, and whether gradients were there between windows.
struct Recorder {
  struct State {
    std::vector<int64_t> micro_batches;
  };
  void on_window_end(lt::WindowContext& window, State& state) const {
    state.micro_batches.push_back(window.micro_batches);
  }
};

struct Samples {
  std::int64_t size() const { return 8; }
  at::Tensor get(std::int64_t index) const { return torch::full({4}, static_cast<double>(index) / 8); }
};

struct DeepImpl : torch::nn::Module {
  lt::Checkpointed<torch::nn::Linear> first =
      register_module("first", lt::Checkpointed<torch::nn::Linear>(4, 8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 1));
};
TORCH_MODULE(Deep);

torch::optim::SGD sgd(toy::Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
}

}  // namespace

TEST_CASE("without policies the Trainer is the loop written by hand, bit for bit") {
  auto ours = toy::net(), theirs = toy::net();
  auto data = toy::batches(5);
  auto our_sgd = sgd(ours), their_sgd = sgd(theirs);
  lt::Trainer trainer(ours, our_sgd, toy::objective);
  const lt::FitResult result = trainer.fit(data, {.epochs = 2});
  const auto losses = toy::train_by_hand(theirs, their_sgd, data, 1, 2);
  CHECK(toy::distance(ours, theirs) == 0.0);
  CHECK(result.status == lt::FitStatus::completed);
  CHECK(result.steps == 10);
  CHECK(result.epochs == 2);
  CHECK(result.skipped == 0);
  CHECK_FALSE(toy::has_gradients(ours));
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const auto size = static_cast<double>(data[i].labels.size(0));
    sum += losses[5 + i] * size, weight += size;
  }
  CHECK(result.loss == Approx(sum / weight).epsilon(1e-12));
}

TEST_CASE("accumulation equals one batch N times as large, for unequal weights and a short last window") {
  for (const int64_t window : {2, 3, 4, 7, 100}) {
    auto ours = toy::net(), theirs = toy::net();
    auto data = toy::batches(10);
    auto our_sgd = sgd(ours), their_sgd = sgd(theirs);
    lt::Trainer trainer(ours, our_sgd, toy::objective, lt::Accumulate<>{window}, Recorder{});
    trainer.fit(data, {.epochs = 3});
    toy::train_by_hand(theirs, their_sgd, data, static_cast<std::size_t>(window), 3);
    INFO("window " << window);
    CHECK(toy::distance(ours, theirs) < 1e-12);
    const auto& seen = trainer.policy<Recorder>().micro_batches;
    CHECK(static_cast<int64_t>(seen.size()) == 3 * ((10 + window - 1) / window));
    CHECK(seen.back() == (10 % window == 0 ? window : 10 % window));
  }
}

TEST_CASE("trainer.hpp alone brings the five policies that the project is named by") {
  Deep net;
  lt::FusedAdamW optimizer(net->parameters());
  const auto objective = [](Deep& net, const at::Tensor& x) {
    return net->second(torch::relu(net->first(x))).to(at::kFloat).square().mean();
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<2>{}, lt::Autocast<lt::fp16>{},
                      lt::Checkpointed<torch::nn::Linear>{}, lt::CacheFlushEvery<4>{},
                      lt::PinnedPrefetchLoader({.batch_size = 2, .workers = 1}));
  const auto result = trainer.fit(Samples{}, {.epochs = 2});
  CHECK(result.steps == 4);
  CHECK(result.skipped == 0);
}
