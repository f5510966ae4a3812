// SPDX-License-Identifier: MIT
// UpdateInBackward against the same run with updates at the window's end.
// Tests optim/interface: per_parameter_optimizer
// Tests policies: update_in_backward
// Tests policies/accumulation: backward_hooks
// Tests loop/step: in_backward
#include "support/precompiled.hpp"

#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace update_in_backward_test {

template <class Optimizer, class... Policies>
toy::Net trained(typename Optimizer::Options options, Policies... policies) {
  auto net = toy::net();
  Optimizer optimizer(net->parameters(), options);
  lt::Trainer trainer(net, optimizer, toy::objective, policies...);
  const auto result = trainer.fit(toy::batches(7), {.epochs = 2});
  CHECK(result.steps == 14);
  return net;
}

bool same(const toy::Net& a, const toy::Net& b) {
  const auto of_a = a->parameters(), of_b = b->parameters();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.equal(y); });
}

template <class Optimizer>
void compare(typename Optimizer::Options options) {
  CHECK(same(trained<Optimizer>(options), trained<Optimizer>(options, lt::UpdateInBackward{})));
}

std::vector<at::Tensor> copies(const toy::Net& net) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : net->parameters()) result.push_back(parameter.detach().clone());
  return result;
}

struct NoHook : torch::autograd::PostAccumulateGradHook {
  void operator()(const torch::autograd::Variable&) override {}
};

TEST_CASE("UpdateInBackward has the numbers of updates at a window's end") {
  compare<lt::FusedAdamW>({.lr = 1e-2, .amsgrad = true});
  compare<lt::FusedAdam>({.lr = 1e-2});
  compare<lt::FusedSGD>({.lr = 1e-2, .momentum = 0.9, .dampening = 0.4});
  compare<lt::AdamW8bit>({.lr = 1e-2, .min_size = 1});
}

TEST_CASE("UpdateInBackward follows a schedule, and evaluation sees the updated weights") {
  const auto schedule = [] {
    return lt::ScheduleLr{.decay = lt::StepDecay{.every = 3, .factor = 0.5}, .warmup_steps = 4};
  };
  CHECK(same(trained<lt::FusedAdamW>({.lr = 1e-2}, schedule()),
             trained<lt::FusedAdamW>({.lr = 1e-2}, schedule(), lt::UpdateInBackward{})));
}

TEST_CASE("averages under UpdateInBackward are those of updates at a window's end") {
  const auto averaged = [](auto... policies) {
    auto net = toy::net();
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(net, optimizer, toy::objective, lt::AverageWeights{.rule = lt::Ema{.decay = 0.8}},
                        policies...);
    trainer.fit(toy::batches(5));
    auto copy = toy::net();
    trainer.template policy<lt::AverageWeights>().copy_to(*copy);
    return copy;
  };
  CHECK(same(averaged(), averaged(lt::UpdateInBackward{})));
}

TEST_CASE("UpdateInBackward frees a gradient before the next one exists") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  lt::Trainer trainer(net, optimizer, toy::objective, lt::UpdateInBackward{});
  const auto before = net->second->weight.detach().clone();
  int seen = 0;
  net->first->weight.register_hook([&](const at::Tensor&) {
    ++seen;
    CHECK_FALSE(net->second->weight.grad().defined());
    CHECK_FALSE(net->second->bias.grad().defined());
    CHECK_FALSE(net->second->weight.equal(before));
  });
  trainer.fit(toy::batches(1));
  CHECK(seen == 1);
  for (const auto& parameter : net->parameters()) CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("UpdateInBackward and recomputed layers stand together, with the numbers of neither") {
  using Sizes = std::vector<std::int64_t>;
  const auto sizes = GENERATE(Sizes{2, 4}, Sizes{1, 2, 4});  // with three, a node of its own adds the bias
  const auto train = [&](auto... policies) {
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(4, 8), lt::Checkpointed<torch::nn::Linear>(8, 8),
                              torch::nn::Tanh(), lt::Checkpointed<torch::nn::Linear>(8, 4));
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
    const auto objective = [](torch::nn::Sequential& layers, const at::Tensor& x) {
      return layers->forward(x).pow(2).mean();
    };
    lt::Trainer trainer(net, optimizer, objective, policies...);
    trainer.fit(std::vector<at::Tensor>(5, torch::ones(sizes)));
    std::vector<at::Tensor> weights;
    for (const auto& parameter : net->parameters()) weights.push_back(parameter.detach().clone());
    return torch::cat({weights[0].flatten(), weights[2].flatten(), weights[4].flatten()});
  };
  using Layer = lt::Checkpointed<torch::nn::Linear>;
  const auto plain = train(Layer(lt::CheckpointOptions{.mode = lt::CheckpointMode::off}));
  CHECK(plain.equal(train(Layer(lt::CheckpointOptions{}), lt::UpdateInBackward{})));
}

TEST_CASE("UpdateInBackward updates a weight that is used twice once, by its whole gradient") {
  const auto train = [](auto... policies) {
    torch::manual_seed(3);
    torch::nn::Linear layer(4, 4);
    lt::FusedAdamW optimizer(layer->parameters(), {.lr = 1e-2});
    const auto twice = [](torch::nn::Linear& shared, const at::Tensor& x) {
      return shared(torch::tanh(shared(x))).pow(2).mean();
    };
    lt::Trainer trainer(layer, optimizer, twice, policies...);
    const std::vector<at::Tensor> batches(5, torch::ones({2, 4}));
    trainer.fit(batches);
    CHECK(optimizer.moments()[0].steps[0].item<double>() == 5);
    return layer->weight.detach().clone();
  };
  CHECK(train().equal(train(lt::UpdateInBackward{})));
}

TEST_CASE("UpdateInBackward clips each gradient by its own norm") {
  const auto data = toy::batches(3);
  auto by_hand = toy::net();
  lt::FusedSGD sgd(by_hand->parameters(), {.lr = 0.5});
  for (const auto& batch : data) {
    by_hand->zero_grad();
    toy::objective(by_hand, batch).value.backward();
    for (auto& parameter : by_hand->parameters()) torch::nn::utils::clip_grad_norm_({parameter}, 0.1);
    sgd.step();
  }
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.5});
  lt::Trainer trainer(net, optimizer, toy::objective, lt::UpdateInBackward<>{.max_norm = 0.1});
  trainer.fit(data);
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    CHECK(torch::allclose(net->parameters()[i], by_hand->parameters()[i], 1e-12, 1e-12));
}

TEST_CASE("a loss that is not finite reaches no parameter in UpdateInBackward") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  auto data = toy::batches(3);
  data[1].features.fill_(NAN);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::UpdateInBackward{});
  CHECK_THROWS_AS(trainer.fit(data), lt::NonFiniteLoss);
  for (const auto& parameter : net->parameters()) CHECK(parameter.isfinite().all().item<bool>());
  CHECK(optimizer.moments()[0].steps[0].item<double>() == 1);
}

TEST_CASE("parameters that are unfrozen or join during a fit are updated under UpdateInBackward") {
  const auto train = [](auto... policies) {
    auto net = toy::net();
    lt::FusedAdamW optimizer(net->second->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(net, optimizer, toy::objective,
                        lt::UnfreezeAt{{.epoch = 1, .patterns = {"second.bias"}}},
                        lt::On{lt::kObserve,
                               [&](lt::EpochContext& epoch) {
                                 if (epoch.run.progress().epoch == 1 && optimizer.param_groups().size() == 1)
                                   optimizer.add_param_group(net->first->parameters());
                               }},
                        policies...);
    trainer.fit(toy::batches(4), {.epochs = 3});
    return net;
  };
  CHECK(same(train(), train(lt::UpdateInBackward{})));
}

TEST_CASE("UpdateInBackward leaves no hook behind, and takes no one else's") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  {
    lt::Trainer trainer(net, optimizer, toy::objective, lt::UpdateInBackward{});
    trainer.fit(toy::batches(1));
    const auto before = copies(net);
    toy::objective(net, toy::batches(1)[0]).value.backward();
    for (std::size_t i = 0; i < before.size(); ++i) CHECK(net->parameters()[i].equal(before[i]));
    net->zero_grad();
    trainer.step(toy::batches(1)[0]);
  }
  toy::objective(net, toy::batches(1)[0]).value.backward();
  CHECK(net->first->weight.grad().defined());
  torch::autograd::impl::set_post_acc_grad_hooks(net->first->weight, std::make_unique<NoHook>());
  lt::Trainer trainer(net, optimizer, toy::objective, lt::UpdateInBackward{});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), Catch::Contains("has one already: remove it"));
  CHECK(torch::autograd::impl::post_acc_grad_hooks(net->first->weight));
}

TEST_CASE("UpdateInBackward refuses what it cannot do as fit begins") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  lt::Trainer no_norm(net, optimizer, toy::objective, lt::UpdateInBackward<>{.max_norm = 0});
  CHECK_THROWS_WITH(no_norm.fit(toy::batches(1)), Catch::Contains("a max_norm above 0, got 0"));
  lt::Trainer accumulates(net, optimizer, toy::objective, lt::UpdateInBackward{},
                          lt::When{true, lt::Accumulate<2>{}});
  CHECK_THROWS_WITH(accumulates.fit(toy::batches(2)),
                    Catch::Contains("applied and freed in the micro-batch"));
}

}  // namespace update_in_backward_test
