// SPDX-License-Identifier: MIT
// Checkpointed<Layer>{} as a policy: its options reach the layers, and its mistakes are told.
// Tests memory/recompute: bypass, bypass_watch, layer_watch, saving_block_watch
// Tests policies: checkpointed
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

namespace lt = looptorch;

namespace {

struct LayerImpl : torch::nn::Module {
  LayerImpl(std::int64_t in, std::int64_t out)
      : linear(register_module("linear", torch::nn::Linear(in, out))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return torch::tanh(linear(x)) * 2;
  }
  torch::nn::Linear linear;
  int runs = 0;
};
TORCH_MODULE(Layer);
using Wrapped = lt::Checkpointed<Layer>;

enum class Call { holder, bypassed, both, none };

struct NetImpl : torch::nn::Module {
  explicit NetImpl(Call call) : call(call) {
    register_module("first", first);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) {
    if (call == Call::none) return last(x);
    if (call == Call::both) return last(first(first->as<Layer>()->forward(x)));
    return last(call == Call::bypassed ? first->as<Layer>()->forward(x) : first(x));
  }
  Call call;
  Wrapped first{3, 3};
  torch::nn::Linear last{3, 1};
};
TORCH_MODULE(Net);

/// Trains for two steps; returns the layer's runs.
template <class... Policies>
int runs(Call call, const Policies&... policies) {
  Net net(call);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(
      net, sgd, [](Net& net, const at::Tensor& x) { return net->forward(x).mean(); }, policies...);
  trainer.fit(std::vector<at::Tensor>{torch::ones({2, 3}), torch::ones({2, 3})});
  return net->first->runs;
}

}  // namespace

TEST_CASE("layers recompute where the policy is listed and where it is not") {
  CHECK(runs(Call::holder) == 4);
  CHECK(runs(Call::holder, Wrapped{}) == 4);
  CHECK(runs(Call::holder, lt::When{true, Wrapped{}}) == 4);
}

TEST_CASE("off, offload and a switched-off policy call them once") {
  CHECK(runs(Call::holder, lt::When{false, Wrapped{}}) == 2);
  CHECK(runs(Call::holder, Wrapped({.mode = lt::CheckpointMode::off})) == 2);
  CHECK(runs(Call::holder, Wrapped({.mode = lt::CheckpointMode::offload})) == 2);
}

TEST_CASE("options reach the layers, and a later fit's options replace them") {
  Net net(Call::holder);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto objective = [](Net& net, const at::Tensor& x) { return net->forward(x).mean(); };
  const std::vector<at::Tensor> data{torch::ones({2, 3})};
  lt::Trainer(net, sgd, objective, Wrapped({.early_stop = false, .name = "mine"})).fit(data);
  CHECK_FALSE(net->first->checkpoint.early_stop);
  CHECK(net->first->checkpoint.name == "mine");
  lt::Trainer(net, sgd, objective, lt::When{false, Wrapped{}}).fit(data);
  CHECK(net->first->checkpoint.mode == lt::CheckpointMode::off);
  lt::Trainer(net, sgd, objective, Wrapped{}).fit(data);
  CHECK(net->first->checkpoint.mode == lt::CheckpointMode::recompute);
  CHECK(net->first->checkpoint.early_stop);
}

TEST_CASE("a call past the wrapper is reported with the layer's name") {
  CHECK_THROWS_AS(runs(Call::bypassed), lt::UsageError);
  CHECK_THROWS_WITH(
      runs(Call::bypassed),
      Catch::Contains("layer 'first' is Checkpointed, but the plain layer's forward was called"));
  CHECK_THROWS_WITH(runs(Call::bypassed, Wrapped{}), Catch::Contains("layer 'first' is Checkpointed"));
}

TEST_CASE("a layer that is called both by its holder and past it is found") {
  CHECK_THROWS_WITH(runs(Call::both), Catch::Contains("layer 'first' is Checkpointed"));
  CHECK_THROWS_WITH(runs(Call::both, Wrapped{}), Catch::Contains("layer 'first' is Checkpointed"));
  CHECK_THROWS_WITH(runs(Call::both, lt::Autocast<lt::bf16>{}),
                    Catch::Contains("layer 'first' is Checkpointed"));
  CHECK_NOTHROW(runs(Call::both, Wrapped({.mode = lt::CheckpointMode::off})));
}

namespace {

/// One fit of one step with an objective of one's own.
template <class Objective>
void fit_once(Call call, const Objective& objective) {
  Net net(call);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, objective);
  trainer.fit(std::vector<at::Tensor>{torch::ones({2, 3})});
}

}  // namespace

TEST_CASE("what else an objective does with a layer's parameters is no call of it") {
  CHECK_NOTHROW(fit_once(Call::holder, [](Net& net, const at::Tensor& x) {
    at::Tensor loss = net->forward(x).mean();
    for (const at::Tensor& parameter : net->parameters()) loss = loss + parameter.pow(2).sum();
    return loss + net->first->linear->weight.mm(net->first->linear->weight.t()).sum();
  }));
  CHECK_NOTHROW(fit_once(Call::holder, [](Net& net, const at::Tensor& batch) {
    const at::Tensor x = batch.clone().requires_grad_();
    const at::Tensor y = net->forward(x);
    return torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0].pow(2).sum() + y.mean();
  }));
}

TEST_CASE("a layer that is thawed later is looked at then") {
  Net net(Call::bypassed);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(
      net, sgd, [](Net& net, const at::Tensor& x) { return net->forward(x).mean(); },
      lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}});
  const std::vector<at::Tensor> data{torch::ones({2, 3})};
  CHECK_NOTHROW(trainer.fit(data, {.epochs = 1}));
  CHECK_THROWS_WITH(trainer.fit(data, {.epochs = 3}), Catch::Contains("layer 'first' is Checkpointed"));
}

TEST_CASE("a layer that is skipped in the first micro-batches is looked at when it takes part") {
  int number = 0;
  Net net(Call::none);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, [&](Net& net, const at::Tensor& x) {
    if (++number == 3) net->call = Call::bypassed;
    return net->forward(x).mean();
  });
  CHECK_THROWS_WITH(trainer.fit(std::vector<at::Tensor>(4, torch::ones({2, 3}))),
                    Catch::Contains("layer 'first' is Checkpointed"));
  CHECK(number == 3);
}

TEST_CASE("a policy without a layer that it could mean is refused") {
  CHECK_THROWS_WITH(runs(Call::none, Wrapped{}), Catch::Contains("was entered in the first window"));
  CHECK_NOTHROW(runs(Call::none, Wrapped({.mode = lt::CheckpointMode::off})));
  CHECK_NOTHROW(runs(Call::none));
  CHECK_THROWS_WITH(runs(Call::holder, lt::Checkpointed<torch::nn::Linear>{}),
                    Catch::Contains("is listed, but the model has no such layer"));
  CHECK_THROWS_WITH(runs(Call::holder, lt::When{false, lt::Checkpointed<torch::nn::Linear>{}}),
                    Catch::Contains("is listed, but the model has no such layer"));
}

TEST_CASE("a layer that only a later update enters is waited for") {
  const std::vector<at::Tensor> data(4, torch::ones({2, 3}));
  for (const std::int64_t every : {1, 2})
    for (const Call call : {Call::holder, Call::none}) {
      Net net(call);
      torch::optim::SGD of_last(net->last->parameters(), 0.1), of_first(net->first->parameters(), 0.1);
      lt::Trainer trainer(
          net, lt::Update{of_last, [](Net& net, const at::Tensor& x) { return net->last(x).mean(); }},
          lt::Update{
              of_first,
              [](Net& net, const at::Tensor& x) {
                return net(x).mean() + net->first->linear->weight.pow(2).sum();
              },
              {.every = every, .when = [every](const lt::Run& run) { return run.progress().step >= every; }}},
          Wrapped{});
      if (call == Call::holder)
        CHECK_NOTHROW(trainer.fit(data));
      else
        CHECK_THROWS_WITH(trainer.fit(data), Catch::Contains("was entered in the first window"));
    }
}

TEST_CASE("a layer listed as a policy is refused") {
  CHECK_THROWS_WITH(runs(Call::holder, Wrapped(3, 3)),
                    Catch::Contains("a layer was listed as a policy: list an empty"));
}

TEST_CASE("a layer that is switched off may be called past its holder") {
  CHECK(runs(Call::bypassed, lt::When{false, Wrapped{}}) == 2);
}

TEST_CASE("a layer that is bypassed in training is found, though an evaluation entered it") {
  Net net(Call::holder);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const std::vector<at::Tensor> data{torch::ones({2, 3})};
  lt::Trainer trainer(net, sgd, [](Net& net, const at::Tensor& x) { return net->forward(x).mean(); });
  trainer.evaluate(data);
  net->call = Call::bypassed;
  CHECK_THROWS_WITH(trainer.fit(data), Catch::Contains("layer 'first' is Checkpointed"));
}

TEST_CASE("a layer that only the second update trains is looked at too") {
  Net net(Call::bypassed);
  torch::optim::SGD of_last(net->last->parameters(), 0.1), of_first(net->first->parameters(), 0.1);
  const auto objective = [](Net& net, const at::Tensor& x) { return net->forward(x).mean(); };
  lt::Trainer trainer(net, lt::Update{of_last, objective}, lt::Update{of_first, objective});
  CHECK_THROWS_WITH(trainer.fit(std::vector<at::Tensor>{torch::ones({2, 3})}),
                    Catch::Contains("layer 'first' is Checkpointed"));
}

TEST_CASE("an empty layer that is called says how to make one") {
  lt::Checkpointed<torch::nn::ReLU> empty;
  CHECK_THROWS_WITH(empty(torch::ones({2})),
                    Catch::Contains("an empty Checkpointed<torch::nn::ReLU> was called: without "
                                    "arguments it is the policy, and make() makes the layer"));
  CHECK_THROWS_AS(empty->forward(torch::ones({2})), lt::UsageError);
  auto made = lt::Checkpointed<torch::nn::ReLU>::make();
  CHECK(made(torch::full({2}, -1.0)).sum().item<double>() == 0.0);
}
