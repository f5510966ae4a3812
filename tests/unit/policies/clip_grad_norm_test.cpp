// SPDX-License-Identifier: MIT
// ClipGradNorm against torch.nn.utils.clip_grad_norm_, recorded by tests/parity/clipping.py.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"
#include "support/waves.hpp"

namespace lt = looptorch;
using reference::loss_with_known_gradients;
using reference::Waves;

TEST_CASE("norms of each kind, and what they clip, are PyTorch's") {
  const auto& recorded = reference::tensors("clipping");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> limits{0.1, 1.0, 2.5, 1e6, kInfinity};
  const std::map<std::string, double> types{{"2", 2.0}, {"inf", kInfinity}, {"1.5", 1.5}};
  for (const auto& [name, type] : types)
    for (std::size_t i = 0; i < limits.size(); ++i) {
      INFO("norm_type " << name << ", max_norm " << limits[i]);
      Waves waves;
      torch::optim::SGD sgd(waves->parameters(), 1.0);
      std::vector<at::Tensor> seen;
      lt::Trainer trainer(waves, sgd, loss_with_known_gradients,
                          lt::ClipGradNorm{.max_norm = limits[i], .norm_type = type},
                          lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                                   for (const auto& gradient : update.gradients())
                                     seen.push_back(gradient.clone().flatten());
                                 }});
      trainer.fit(std::vector<int>{0});
      const auto row = static_cast<int64_t>(i);
      CHECK(reference::difference(torch::cat(seen), recorded.at("gradients." + name)[row]) < 1e-14);
      CHECK(reference::difference(trainer.policy<lt::ClipGradNorm>().norm,
                                  recorded.at("norms." + name)[row]) < 1e-14);
    }
}

TEST_CASE("the norm of a large gradient is right to 1e-5, and so is what it clips") {
  torch::nn::Linear net(torch::nn::LinearOptions(1024, 1024).bias(false));
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& x) { return (net->weight * x).sum(); };
  const double norm = static_cast<float>(0.02) * 1024.0;  // an fp32 sum is 4e-4 off for p = 2, and 1e-2 for 1
  for (const double p : {2.0, 1.0}) {
    const at::Tensor before = net->weight.detach().clone();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{.max_norm = 1.0, .norm_type = p});
    trainer.fit(std::vector{torch::full({}, 0.02)});
    const double expected = p == 2 ? norm : norm * 1024;
    CHECK(trainer.policy<lt::ClipGradNorm>().norm.item<double>() == Approx(expected).epsilon(3e-5));
    const double moved = (before - net->weight.detach()).to(torch::kDouble).sum().item<double>();
    CHECK(moved == Approx((p == 2 ? 1024 : 1)).epsilon(1e-4));
  }
}

TEST_CASE("a parameter without elements has no part in a norm of any type") {
  const double p = GENERATE(1.0, 2.0, std::numeric_limits<double>::infinity());
  torch::nn::Linear net(torch::nn::LinearOptions(2, 3).bias(false));
  net->register_parameter("none", torch::empty({0, 3}));
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& x) {
    return (net->weight * x).sum() + net->named_parameters()["none"].sum();
  };
  torch::optim::SGD sgd(net->parameters(), 1.0);
  lt::Trainer trainer(net, sgd, objective, lt::ClipGradNorm{.max_norm = 1.0, .norm_type = p});
  trainer.fit(std::vector{torch::full({}, 2.0f)});
  const double expected = at::linalg_vector_norm(torch::full({3, 2}, 2.0f), p).item<double>();
  CHECK(trainer.policy<lt::ClipGradNorm>().norm.item<double>() == Approx(expected));
}

TEST_CASE("clipping sees the accumulated gradient, averaged") {
  const auto data = toy::batches(7);
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.5), b(theirs->parameters(), 0.5);
  lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<3>{}, lt::ClipGradNorm{0.3});
  trainer.fit(data, {.epochs = 2});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (std::size_t i = 0; i < 7; i += 3) {
      theirs->zero_grad();
      toy::objective(theirs, toy::join(data, i, i + 3)).value.backward();
      torch::nn::utils::clip_grad_norm_(theirs->parameters(), 0.3);
      b.step();
    }
  CHECK(toy::distance(ours, theirs) < 1e-12);
}

TEST_CASE("folded into FusedAdamW, clipping gives what it gives with a plain optimizer") {
  auto fused = toy::net(), plain = toy::net();
  fused->to(torch::kFloat), plain->to(torch::kFloat);
  auto data = toy::batches(8);
  for (auto& batch : data) batch.features = batch.features.to(torch::kFloat);
  lt::FusedAdamW a(fused->parameters(), {.lr = 0.01});
  torch::optim::AdamW b(plain->parameters(), torch::optim::AdamWOptions(0.01));
  lt::Trainer one(fused, a, toy::objective, lt::Accumulate<3>{}, lt::ClipGradNorm{0.2});
  lt::Trainer two(plain, b, toy::objective, lt::Accumulate<3>{}, lt::ClipGradNorm{0.2});
  one.fit(data, {.epochs = 5}), two.fit(data, {.epochs = 5});
  CHECK(toy::distance(fused, plain) < 1e-5);
}

TEST_CASE("a limit that cannot be is refused") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  for (const double limit : {0.0, -1.0, static_cast<double>(NAN)}) {
    lt::Trainer trainer(net, sgd, toy::objective, lt::ClipGradNorm{limit});
    CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), Catch::Contains("max_norm above 0"));
    lt::Trainer other(net, sgd, toy::objective, lt::ClipGradNorm{.max_norm = 1.0, .norm_type = limit});
    CHECK_THROWS_WITH(other.fit(toy::batches(1)), Catch::Contains("norm_type above 0"));
  }
}

TEST_CASE("recorded norms are the epoch's mean, with and without clipping, and leave overflows out") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double limit : {0.1, kInfinity}) {
    auto net = toy::net();
    lt::FusedAdamW a(net->parameters(), {.lr = 0.01});
    std::vector<double> norms;
    lt::Trainer trainer(net, a, toy::objective, lt::ClipGradNorm{.max_norm = limit, .record = true},
                        lt::On{lt::kCheck,
                               [](lt::UpdateContext& update) {
                                 if (update.run.progress().step == 2) {
                                   update.scale_gradients(std::numeric_limits<double>::infinity());
                                   update.veto();
                                 }
                               }},
                        lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                                 at::Tensor squares = torch::zeros({}, torch::kDouble);
                                 for (const auto& parameter : update.view().parameters)
                                   squares += parameter.grad().pow(2).sum();
                                 if (update.run.progress().step != 2)
                                   norms.push_back(squares.sqrt().item<double>());
                               }});
    trainer.fit(toy::batches(5));
    const auto& recorded = trainer.updates()[0].metrics.at("gradient_norm").totals();
    CHECK(recorded.weight == 4);
    CHECK(recorded.sum == Approx(norms[0] + norms[1] + norms[2] + norms[3]));
    trainer.fit(toy::batches(5), {.epochs = 2});
    CHECK(trainer.updates()[0].metrics.at("gradient_norm").totals().weight == 5);
  }
  auto net = toy::net(), plain = toy::net();
  lt::FusedAdamW a(net->parameters(), {.lr = 0.01}), b(plain->parameters(), {.lr = 0.01});
  lt::Trainer(net, a, toy::objective, lt::ClipGradNorm{.max_norm = kInfinity, .record = true})
      .fit(toy::batches(4));
  lt::Trainer(plain, b, toy::objective).fit(toy::batches(4));
  CHECK(toy::distance(net, plain) == 0.0);
}

namespace {

/// A finite loss whose gradient is NaN where a batch is all zeros: the derivative of the root at 0, times
/// 0.
lt::Loss norm_of(toy::Net& net, const toy::Batch& batch) {
  const auto y = net(batch.features) * batch.features.abs().sum();
  return {.value = y.pow(2).sum().sqrt(), .weight = batch.features.size(0)};
}
std::vector<toy::Batch> with_zeros(std::size_t at) {
  auto data = toy::batches(6);
  data[at].features.zero_();
  return data;
}

}  // namespace

TEST_CASE("a finite loss with a NaN gradient is refused, and its own window is named") {
  const auto check = [](auto make) {
    auto ours = toy::net(), theirs = toy::net();
    auto a = make(ours->parameters()), b = make(theirs->parameters());
    lt::Trainer trainer(ours, a, norm_of, lt::ClipGradNorm{1.0}, lt::Accumulate<2>{});
    try {
      trainer.fit(with_zeros(2), {.epochs = 1});
      FAIL("nothing was thrown");
    } catch (const lt::NonFiniteGradient& error) {
      CHECK(error.step == 1);
      CHECK(error.first_batch == 2);
      CHECK(error.last_batch == 3);
      CHECK_THAT(error.what(),
                 Catch::Contains(
                     "the losses are finite, but gradients of update or their norm are NaN or infinite in "
                     "step 1, batch 2 to 3 of epoch 0. The update was skipped."));
    }
    lt::Trainer good(theirs, b, norm_of, lt::ClipGradNorm{1.0}, lt::Accumulate<2>{});
    good.fit(with_zeros(2), {.max_steps = 1});
    CHECK(toy::distance(ours, theirs) == 0.0);
    CHECK(trainer.updates()[0].skipped == 1);
    CHECK(trainer.fit(with_zeros(2), {.epochs = 1}).steps == 3);  // goes on after it
    CHECK(std::isfinite(toy::distance(ours, theirs)));

    auto skipping = toy::net();
    auto c = make(skipping->parameters());
    lt::Trainer skips(skipping, c, norm_of,
                      lt::ClipGradNorm{.max_norm = 1.0, .on_non_finite = lt::OnNonFinite::skip},
                      lt::Accumulate<2>{});
    const auto result = skips.fit(with_zeros(2), {.epochs = 1});
    CHECK(result.skipped == 1);
    CHECK(toy::distance(ours, skipping) == 0.0);
    lt::Trainer ignores(skipping, c, norm_of,
                        lt::ClipGradNorm{.max_norm = 1.0, .on_non_finite = lt::OnNonFinite::ignore});
    CHECK_THROWS_AS(ignores.fit(with_zeros(2), {.epochs = 1}), lt::NonFiniteLoss);
    CHECK(std::isnan(toy::distance(ours, skipping)));
  };
  check([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  check([](auto parameters) { return lt::FusedAdamW(parameters); });
}

TEST_CASE("an overflow under Autocast<fp16> is skipped by the loss scale, and not refused") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer trainer(net, adamw, norm_of, lt::ClipGradNorm{1.0},
                      lt::Autocast<lt::fp16>{.initial_scale = 16});
  CHECK(trainer.fit(with_zeros(2), {.epochs = 1}).skipped == 1);
}

TEST_CASE("ClipGradNorm: recorded norms are those of applied updates") {
  const auto batches = toy::batches(6);
  for (const bool throws : {false, true}) {
    toy::Net net = toy::net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    bool due = throws;
    lt::Trainer trainer(net, optimizer, toy::objective, lt::ClipGradNorm{.max_norm = 1.0, .record = true},
                        lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                                 if (update.run.progress().step != 2) return;
                                 update.veto(!throws);
                                 if (std::exchange(due, false)) throw std::runtime_error("in mid-window");
                               }});
    if (throws) CHECK_THROWS_WITH(trainer.fit(batches), Catch::Contains("in mid-window"));
    trainer.fit(batches);
    const lt::UpdateView& view = trainer.updates()[0];
    CHECK(view.metrics.at("gradient_norm").totals().weight == static_cast<double>(view.applied));
  }
}
