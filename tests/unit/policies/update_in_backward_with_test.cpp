// SPDX-License-Identifier: MIT
// UpdateInBackward over windows of several micro-batches, against Accumulate and against the rule of AdamA.
// Tests optim/state: moment_accumulator
// Tests optim/narrow: rounded_sum
// Tests policies/accumulation: narrow_sums, moment_sums
#include "support/precompiled.hpp"

#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;

namespace update_in_backward_with_test {

using InBf16 = lt::UpdateInBackward<lt::SumsInBf16>;
using InMoments = lt::UpdateInBackward<lt::SumsInMoments>;

constexpr InBf16 kRounded{.sums = {.min_size = 1}};

template <class Optimizer = lt::FusedAdamW, class Objective = decltype(&toy::objective), class... Policies>
toy::Net trained(typename Optimizer::Options options, Objective objective,
                 const std::vector<toy::Batch>& data, Policies... policies) {
  auto net = toy::net();
  Optimizer optimizer(net->parameters(), options);
  lt::Trainer trainer(net, optimizer, objective, policies...);
  trainer.fit(data, {.epochs = 2});
  CHECK_FALSE(toy::has_gradients(net));
  return net;
}

constexpr lt::FusedAdamWOptions kOptions{.lr = 1e-2};

/// The same weights, left on their device as those of an accelerator are.
lt::Loss unread(toy::Net& net, const toy::Batch& batch) {
  const auto loss = toy::objective(net, batch);
  return {.value = loss.value, .weight = lt::Quantity::unread(torch::tensor(loss.weight.number()))};
}

/// Equal weights.
at::Tensor unweighed(toy::Net& net, const toy::Batch& batch) { return toy::objective(net, batch).value; }

TEST_CASE(
    "sums in their gradients' dtype give Accumulate's numbers, short windows and unequal weights included") {
  auto data = toy::batches(11);
  data[0] = {data[0].features.narrow(0, 0, 1), data[0].labels.narrow(0, 0, 1)};  // the unit grows
  auto expected = trained(kOptions, &toy::objective, data, lt::Accumulate<4>{});
  auto found = trained(kOptions, &toy::objective, data, lt::Accumulate<4>{}, InBf16{});
  CHECK(toy::distance(expected, found) < 1e-12);
  found = trained(kOptions, &unread, data, lt::Accumulate<4>{}, InBf16{});
  CHECK(toy::distance(expected, found) < 1e-12);
  const auto schedule = [] {
    return lt::ScheduleLr{.decay = lt::StepDecay{.every = 2, .factor = 0.5}, .warmup_steps = 2};
  };
  expected = trained(kOptions, &toy::objective, data, lt::Accumulate<4>{}, schedule());
  found = trained(kOptions, &toy::objective, data, lt::Accumulate<4>{}, schedule(), InBf16{});
  CHECK(toy::distance(expected, found) < 1e-12);
}

TEST_CASE("windows of one micro-batch under UpdateInBackward<Sums> are UpdateInBackward's, bit for bit") {
  const auto data = toy::batches(5);
  auto expected = trained(kOptions, &toy::objective, data, lt::UpdateInBackward{});
  auto found = trained(kOptions, &toy::objective, data, kRounded);
  CHECK(toy::distance(expected, found) == 0);
}

TEST_CASE("sums in bf16 repeat by their seed, and lose nothing on average") {
  const auto data = toy::batches(8);
  const auto by = [&](std::uint64_t seed) {
    auto net = toy::net();
    lt::FusedSGD sgd(net->parameters(), {.lr = 1});
    lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<8>{},
                        InBf16{.sums = {.seed = seed, .min_size = 1}});
    trainer.fit(data);
    return net->first->weight.detach().clone();
  };
  auto exact = toy::net();
  lt::FusedSGD sgd(exact->parameters(), {.lr = 1});
  lt::Trainer trainer(exact, sgd, toy::objective, lt::Accumulate<8>{});
  trainer.fit(data);
  const at::Tensor goal = exact->first->weight.detach(), one = by(0);
  CHECK(one.equal(by(0)));
  CHECK_FALSE(one.equal(by(1)));
  CHECK((one - goal).abs().max().item<double>() > 0);
  at::Tensor mean = torch::zeros_like(goal);
  for (std::uint64_t seed = 0; seed < 400; ++seed) mean += by(seed) / 400;
  const double single = (one - goal).norm().item<double>(), averaged = (mean - goal).norm().item<double>();
  CHECK(averaged < single / 6);
}

TEST_CASE("sums in bf16 continue from a snapshot with the seed of the run, bit for bit") {
  const auto data = toy::batches(9);
  const auto run = [&](toy::Net& net, auto policy, std::int64_t steps, const std::filesystem::path& from,
                       const TemporaryFolder& folder) {
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{}, policy,
                        lt::SnapshotEvery{folder / "run"});
    lt::FitOptions options{.max_steps = steps};
    if (!from.empty()) options.resume = from;
    trainer.fit(data, options);
  };
  const auto check = [&](auto policy, auto other_seed) {
    TemporaryFolder one, two;
    auto whole = toy::net(), half = toy::net(), rest = toy::net(7);
    run(whole, policy, 9, {}, one);
    run(half, policy, 4, {}, two);
    run(rest, other_seed, 9, two / "run", two);
    CHECK(toy::distance(whole, rest) == 0);
  };
  check(InBf16{.sums = {.seed = 5, .min_size = 1}}, InBf16{.sums = {.seed = 6, .min_size = 1}});
  check(InMoments{.sums = {.seed = 5}}, InMoments{.sums = {.seed = 6}});
}

// ---- In moments ----

/// AdamA's rule for one window whose gradients, times their shares of the window's weight, are `shares`.
struct AdamA {
  explicit AdamA(const at::Tensor& weight)
      : weight(weight.detach().clone()),
        first(torch::zeros_like(weight)),
        second(torch::zeros_like(weight)) {}
  void step(const std::vector<at::Tensor>& shares) {
    ++steps;
    first.mul_(0.9), second.mul_(0.999);
    for (const at::Tensor& share : shares) first.add_(share, 0.1), second.add_(share.square(), 0.001);
    const at::Tensor root = (second / (1 - std::pow(0.999, steps))).sqrt() + 1e-8;
    weight.mul_(1 - 1e-2 * 1e-2).sub_(1e-2 * first / (1 - std::pow(0.9, steps)) / root);
  }
  at::Tensor weight, first, second;
  int steps = 0;
};

at::Tensor gradient_at(const toy::Net& net, const at::Tensor& weight, const toy::Batch& batch) {
  auto copy = toy::net();
  torch::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < copy->parameters().size(); ++i)
    copy->parameters()[i].copy_(net->parameters()[i]);
  copy->first->weight.copy_(weight);
  torch::AutoGradMode with_gradients(true);
  toy::objective(copy, batch).value.backward();
  return copy->first->weight.grad();
}

TEST_CASE("sums in moments have the numbers of AdamA") {
  const auto data = toy::batches(12);
  const auto check = [&](auto objective) {
    auto net = toy::net();
    lt::FusedAdamW optimizer({net->first->weight}, kOptions);
    lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<4>{}, InMoments{});
    AdamA rule(net->first->weight);
    for (std::size_t i = 0; i < data.size(); i += 4) {
      std::vector<at::Tensor> shares;
      for (std::size_t j = i; j < i + 4; ++j) shares.push_back(gradient_at(net, rule.weight, data[j]) / 4);
      rule.step(shares);
    }
    trainer.fit(data);
    CHECK(torch::allclose(net->first->weight, rule.weight, 1e-10, 1e-10));
    CHECK(torch::allclose(optimizer.moments()[0].first[0], rule.first, 1e-10, 1e-10));
    CHECK(torch::allclose(optimizer.moments()[0].second[0], rule.second, 1e-10, 1e-12));
  };
  check([](toy::Net& net, const toy::Batch& batch) { return unweighed(net, batch); });
  check([](toy::Net& net, const toy::Batch& batch) {
    return lt::Loss{.value = unweighed(net, batch), .weight = lt::Quantity::unread(torch::tensor(3.0))};
  });
}

TEST_CASE("moments take windows of one micro-batch as FusedAdamW does") {
  const auto data = toy::batches(6);
  auto expected = trained(kOptions, &unweighed, data);
  auto found = trained(kOptions, &unweighed, data, InMoments{});
  CHECK(toy::distance(expected, found) < 1e-12);
}

TEST_CASE("in moments a window's gradient is right for unequal weights, and it counts by its weight") {
  auto data = toy::batches(7);  // windows of 4 and 3 micro-batches
  const double beta = 0.9;
  auto net = toy::net();
  lt::FusedAdamW optimizer({net->first->weight}, {.lr = 0, .weight_decay = 0});
  lt::Trainer trainer(net, optimizer, &toy::objective, lt::Accumulate<4>{}, InMoments{});
  const at::Tensor weight = net->first->weight.detach().clone();
  const auto mean = [&](std::size_t begin, std::size_t end) {
    return gradient_at(net, weight, toy::join(data, begin, end));
  };
  const auto weight_of = [&](std::size_t begin, std::size_t end) {
    return static_cast<double>(toy::join(data, begin, end).labels.size(0));
  };
  trainer.fit(data);
  // Means of both windows, weighed beta and 1 by age, and by their weights: the mean of an AdamW whose
  // windows are as often repeated as they have examples, to first order in 1 - beta.
  const double ratio = weight_of(0, 4) / weight_of(4, 7);
  const double old_share = beta * ratio * (1 - beta), new_share = 1 - beta;
  const at::Tensor expected = (mean(0, 4) * old_share + mean(4, 7) * new_share) / (old_share + new_share);
  const at::Tensor found = optimizer.moments()[0].first[0] / (1 - beta * beta);
  CHECK(torch::allclose(found, expected, 1e-10, 1e-12));
}

TEST_CASE("sums in moments of bf16 round stochastically") {
  auto net = toy::net();
  net->to(torch::kBFloat16);
  lt::AdamWBf16 optimizer(net->parameters(), {.lr = 1e-2});
  const auto objective = [](toy::Net& model, const toy::Batch& batch) {
    return torch::nn::functional::cross_entropy(model(batch.features.to(torch::kBFloat16)).to(torch::kFloat),
                                                batch.labels);
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<4>{}, InMoments{});
  const auto data = toy::batches(8);
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data, {.epochs = 60});
  CHECK(trainer.evaluate(data).loss < 0.8 * before);
  for (const auto& moment : optimizer.moments()[0].first) CHECK(moment.isfinite().all().item<bool>());
}

// ---- Windows that are not made ----

template <class Policy>
void check_bad_loss(Policy policy) {
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters());
  auto data = toy::batches(4);
  data[1].features.fill_(NAN);
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<4>{}, policy);
  auto before = toy::net();
  CHECK_THROWS_AS(trainer.fit(data), lt::NonFiniteLoss);
  CHECK(toy::distance(net, before) == 0);
}

TEST_CASE("a loss that is not finite in mid-window reaches no parameter") {
  check_bad_loss(InBf16{});
  check_bad_loss(kRounded);
  check_bad_loss(InMoments{});
}

TEST_CASE("sums of a window that an exception ended do not enter the next one") {
  const auto data = toy::batches(4);
  bool fails = true;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    if (fails && batch.features.is_same(data[2].features)) throw std::runtime_error("a bad sample");
    return toy::objective(net, batch);
  };
  auto net = toy::net();
  lt::FusedAdamW optimizer(net->parameters(), kOptions);
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<4>{}, InBf16{});
  for (int i = 0; i < 2; ++i) trainer.step(data[i]);
  CHECK_THROWS_WITH(trainer.step(data[2]), "a bad sample");
  fails = false;
  for (const auto& batch : data) trainer.step(batch);
  trainer.step(data[0]);
  trainer.finish_window();
  auto expected = toy::net();
  lt::FusedAdamW other(expected->parameters(), kOptions);
  lt::Trainer plain(expected, other, &toy::objective, lt::Accumulate<4>{});
  for (const auto& batch : data) plain.step(batch);
  plain.step(data[0]);
  plain.finish_window();
  CHECK(toy::distance(net, expected) < 1e-12);
}

TEST_CASE("a parameter that the last micro-batch does not use is updated by its sum") {
  const auto data = toy::batches(3);
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) -> at::Tensor {
    if (batch.features.is_same(data[2].features))
      return net->second(torch::ones({2, 8}, torch::kDouble)).mean();
    return toy::objective(net, batch).value;
  };
  auto expected = trained(kOptions, objective, data, lt::Accumulate<3>{});
  auto found = trained(kOptions, objective, data, lt::Accumulate<3>{}, InBf16{});
  CHECK(toy::distance(expected, found) < 1e-12);
}

TEST_CASE("UpdateInBackward<Sums> clips the gradient of a window, each parameter by its own norm") {
  const auto data = toy::batches(4);
  auto by_hand = toy::net();
  lt::FusedSGD sgd(by_hand->parameters(), {.lr = 0.5});
  toy::objective(by_hand, toy::join(data, 0, 4)).value.backward();
  for (auto& parameter : by_hand->parameters()) torch::nn::utils::clip_grad_norm_({parameter}, 0.1);
  sgd.step();
  auto net = toy::net();
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.5});
  lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<4>{}, InBf16{.max_norm = 0.1});
  trainer.fit(data);
  CHECK(toy::distance(net, by_hand) < 1e-12);
}

// ---- Memory ----

/// Returns the most bytes that a step of four micro-batches holds beyond weights and moments.
template <class... Policies>
std::int64_t peak_of(Policies... policies) {
  auto& memory = lt::HostMemory::counted();
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 16; ++i) net->push_back(torch::nn::Linear(256, 256));
  lt::FusedAdamW optimizer(net->parameters());
  const auto objective = [](torch::nn::Sequential& layers, const at::Tensor& x) {
    return layers->forward(x).pow(2).mean();
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<4>{}, policies...);
  const std::vector<at::Tensor> data(4, torch::ones({2, 256}));
  trainer.fit(data);  // moments exist
  memory.reset_peak();
  const std::int64_t before = memory.allocated_bytes();
  trainer.fit(data, {.epochs = 2});
  return memory.peak_bytes() - before;
}

TEST_CASE("a window's sums take 2 bytes a parameter in bf16, and none in the moments") {
  constexpr std::int64_t kLayer = 256 * 256 + 256, kAll = 16 * kLayer;
  const std::int64_t plain = peak_of(), narrow = peak_of(InBf16{}), none = peak_of(InMoments{});
  INFO(plain << " " << narrow << " " << none);
  CHECK(plain > 4 * kAll);
  CHECK(narrow < 2 * kAll + 10 * kLayer);  // and one parameter's gradient, in fp32, with its update
  CHECK(none < 20 * kLayer);
}

TEST_CASE("UpdateInBackward<Sums> refuses as fit begins what it cannot do") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  lt::AdamW8bit narrow(net->parameters());
  lt::FusedAdamW no_beta(net->parameters(), {.betas = {0, 0.999}});
  const auto fit = [&](auto& optimizer, auto policy) {
    lt::Trainer trainer(net, optimizer, toy::objective, lt::Accumulate<2>{}, policy);
    trainer.fit(toy::batches(2));
  };
  CHECK_THROWS_WITH(fit(adamw, InBf16{.max_norm = 0}), Catch::Contains("a max_norm above 0, got 0"));
  CHECK_THROWS_WITH(fit(adamw, InBf16{.sums = {.min_size = 0}}), Catch::Contains("min_size is at least 1"));
  CHECK_THROWS_WITH(fit(adamw, InMoments{.max_norm = 1}), Catch::Contains("use SumsInBf16"));
  CHECK_THROWS_WITH(fit(narrow, InMoments{}),
                    Catch::Contains("train with FusedAdamW, FusedAdam or AdamWBf16"));
  CHECK_THROWS_WITH(fit(no_beta, InMoments{}), Catch::Contains("betas above 0"));
  struct Pairs {
    std::int64_t micro_batches() const { return 2; }
  };
  lt::Trainer trainer(net, adamw, toy::objective, Pairs{}, lt::UpdateInBackward{});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(2)), Catch::Contains("the window has more"));
}

}  // namespace update_in_backward_with_test
