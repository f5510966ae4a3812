// SPDX-License-Identifier: MIT
// ClipGradValue against torch.nn.utils.clip_grad_value_, recorded by tests/parity/averages.py.
#include "support/precompiled.hpp"

#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"
#include "support/waves.hpp"

#include <memory>
#include <vector>

namespace lt = looptorch;
using reference::loss_with_known_gradients;
using reference::Waves;

namespace {

/// Two epochs over seven batches in windows of three, `clip(net)` before each step, all by hand.
template <class Clip>
toy::Net clipped_by_hand(const std::vector<toy::Batch>& data, const Clip& clip) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::size_t i = 0; i < 7; i += 3) {
      net->zero_grad();
      toy::objective(net, toy::join(data, i, i + 3)).value.backward();
      clip(net);
      sgd.step();
    }
  return net;
}

template <class... Policies>
toy::Net clipped(const std::vector<toy::Batch>& data, Policies... policies) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<3>{}, policies...);
  trainer.fit(data, {.epochs = 2});
  return net;
}

}  // namespace

TEST_CASE("gradients clipped by value are PyTorch's") {
  const std::vector<double> limits{0.1, 0.5, 1.5, 1e6};
  for (std::size_t i = 0; i < limits.size(); ++i) {
    Waves waves;
    torch::optim::SGD sgd(waves->parameters(), 1.0);
    std::vector<at::Tensor> seen;
    lt::Trainer trainer(waves, sgd, loss_with_known_gradients, lt::ClipGradValue{limits[i]},
                        lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                                 for (const auto& gradient : update.gradients())
                                   seen.push_back(gradient.clone().flatten());
                               }});
    trainer.fit(std::vector<int>{0});
    const auto& recorded = reference::tensors("averages").at("clip_value.gradients");
    CHECK(torch::equal(torch::cat(seen), recorded[static_cast<int64_t>(i)]));
  }
}

TEST_CASE("clipping by value sees the accumulated gradient, averaged") {
  const auto data = toy::batches(7);
  auto ours = clipped(data, lt::ClipGradValue{0.05});
  auto theirs = clipped_by_hand(
      data, [](toy::Net& net) { torch::nn::utils::clip_grad_value_(net->parameters(), 0.05); });
  auto unclipped = clipped(data);
  CHECK(toy::distance(ours, theirs) < 1e-12);
  CHECK(toy::distance(ours, unclipped) > 1e-3);
}

TEST_CASE("beside ClipGradNorm the norm is clipped first, however they are listed") {
  const auto data = toy::batches(7);
  auto one = clipped(data, lt::ClipGradNorm{0.3}, lt::ClipGradValue{0.05});
  auto two = clipped(data, lt::ClipGradValue{0.05}, lt::ClipGradNorm{0.3});
  auto theirs = clipped_by_hand(data, [](toy::Net& net) {
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.3);
    torch::nn::utils::clip_grad_value_(net->parameters(), 0.05);
  });
  auto other_order = clipped_by_hand(data, [](toy::Net& net) {
    torch::nn::utils::clip_grad_value_(net->parameters(), 0.05);
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.3);
  });
  CHECK(toy::distance(one, two) == 0.0);
  CHECK(toy::distance(one, theirs) < 1e-12);
  CHECK(toy::distance(one, other_order) > 1e-6);
}

TEST_CASE("each of several updates is clipped by its own gradients, and a frozen one is left alone") {
  auto net = toy::net();
  torch::optim::SGD first(net->first->parameters(), 1.0), second(net->second->parameters(), 1.0);
  const auto steep = [](toy::Net& net, const toy::Batch& batch) { return net(batch.features).sum() * 100; };
  const auto flat = [](toy::Net& net, const toy::Batch& batch) { return net(batch.features).mean() * 1e-3; };
  std::vector<double> largest;
  lt::Trainer trainer(net, lt::Update{first, steep}, lt::Update{second, flat}, lt::ClipGradValue{0.5},
                      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                               double value = 0;
                               for (const auto& gradient : update.gradients())
                                 value = std::max(value, gradient.abs().max().item<double>());
                               largest.push_back(value);
                             }});
  net->first->bias.set_requires_grad(false);
  trainer.fit(toy::batches(1));
  REQUIRE(largest.size() == 2);
  CHECK(largest[0] == 0.5);
  CHECK((largest[1] > 0 && largest[1] < 0.01));
}

TEST_CASE("complex parameters are refused by name as the fit begins, unless they are frozen") {
  struct Spectral : torch::nn::Module {
    at::Tensor real = register_parameter("real", torch::ones({3}));
    at::Tensor wave = register_parameter("wave", torch::ones({3}, at::kComplexFloat));
  };
  using Net = std::shared_ptr<Spectral>;
  const Net net = std::make_shared<Spectral>();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  const auto objective = [](const Net& net, const at::Tensor& x) {
    return (torch::real(net->wave) * net->real * x).sum();
  };
  const std::vector<at::Tensor> batches{torch::ones({3})};
  lt::Trainer clipped(net, sgd, objective, lt::ClipGradValue{0.1});
  CHECK_THROWS_AS(clipped.fit(batches), lt::UsageError);
  CHECK_THROWS_WITH(clipped.fit(batches), Catch::Contains("ClipGradValue is for real parameters") &&
                                              Catch::Contains("trains 'wave', which is ComplexFloat [3]") &&
                                              Catch::Contains("view_as_real"));
  lt::Trainer scaled(net, sgd, objective, lt::Autocast<lt::fp16>{});
  CHECK_THROWS_WITH(scaled.fit(batches),
                    Catch::Contains("Autocast<fp16> is for real") && Catch::Contains("'wave'"));
  lt::Trainer chosen(net, sgd, objective, lt::Autocast<>{.type = at::kHalf});
  CHECK_THROWS_WITH(chosen.fit(batches), Catch::Contains("'wave'"));
  CHECK(torch::equal(net->real, torch::ones({3})));
  lt::Trainer in_bf16(net, sgd, objective, lt::Autocast<lt::bf16>{});
  CHECK(in_bf16.fit(batches).steps == 1);
  net->wave.set_requires_grad(false);
  CHECK(clipped.fit(batches, {.epochs = 1}).steps == 1);
}

TEST_CASE("a bound that cannot be is refused") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  for (const double limit : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    lt::Trainer trainer(net, sgd, toy::objective, lt::ClipGradValue{limit});
    CHECK_THROWS_AS(trainer.fit(toy::batches(1)), lt::UsageError);
    CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), Catch::Contains("finite clip_value above 0"));
  }
}
