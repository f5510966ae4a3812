// SPDX-License-Identifier: MIT
// Autopsy beside other policies, a hundred clean runs without an alarm, and its options. The faults that it
// names one by one are in autopsy/origin_test.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"
#include "unit/autopsy/faulty_net.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;
using namespace faulty_net;

TEST_CASE("Autopsy: a learning rate that explodes") {
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 1e25);
  Trainer trainer(
      net, optimizer, [](Net& net, const Batch& b) { return net->second(hidden(net, b)).pow(2).mean(); },
      Autopsy{});
  try {
    trainer.fit(batches_of(4));
    FAIL("no error");
  } catch (const NonFiniteLoss& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.step == 1 && error.finding->cause == Cause::operation && error.finding->op == "aten::pow"));
    CHECK(error.finding->after_parameter.starts_with("second"));
    CHECK(error.finding->inputs.at(0).most > 1e20);
  }
}

TEST_CASE(
    "Autopsy: under fp16, one layer that overflows in forward; gradients that overflow are the scale's") {
  const auto train = [](double weight, double factor, std::int64_t patience) {
    torch::manual_seed(0);
    Net net;
    at::NoGradGuard no_gradients;
    net->second->weight.fill_(weight);
    torch::optim::SGD optimizer(net->parameters(), 1e-9);
    const auto loss = [=](Net& net, const Batch& b) {
      return net->second(hidden(net, b)).to(torch::kFloat).abs().mean() * factor;
    };
    Trainer trainer(net, optimizer, loss, Autocast<fp16>{.initial_scale = 1 << 20},
                    Autopsy{.overflows = patience});
    trainer.fit(batches_of(12));
    return trainer.template policy<Autocast<fp16>>().scale.template item<double>();
  };
  CHECK(train(0.5, 1, 16) < 1 << 20);  // the scale falls, and nothing is found
  try {
    train(60000, 1, 16);
    FAIL("no error");
  } catch (const NonFiniteLoss& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.step == 0 && error.finding->op == "aten::addmm" && !error.finding->backward));
    CHECK(error.finding->parameter.starts_with("second"));
    CHECK(error.finding->output.type == at::kHalf);
  }
  try {
    train(0.5, 1e12, 5);  // whatever the scale
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.step == 4 && error.finding->backward && error.finding->op == "aten::copy_"));
    CHECK(error.finding->node.starts_with("ToCopyBackward"));
  }
}

namespace {

/// A block whose root is recomputed in backward.
struct RootImpl : torch::nn::Module {
  explicit RootImpl(std::int64_t width) : in(width, width) { register_module("in", in); }
  at::Tensor forward(const at::Tensor& x) {
    return torch::sqrt((in(x)*x.gt(-50).to(torch::kFloat)).pow(2).sum(1));
  }
  torch::nn::Linear in;
};
TORCH_MODULE(Root);
struct RecomputedImpl : torch::nn::Module {
  RecomputedImpl() { register_module("root", root); }
  Checkpointed<Root> root{4};
};
TORCH_MODULE(Recomputed);

}  // namespace

TEST_CASE("Autopsy: a fault in a layer that is recomputed") {
  torch::manual_seed(1);
  Recomputed net;
  auto batches = batches_of(3);
  batches[1].x[3].fill_(-100);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  Trainer trainer(
      net, optimizer, [](Recomputed& net, const Batch& b) { return net->root(b.x).sum(); },
      Checkpointed<Root>{}, Autopsy{});
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.finding->op == "aten::div" && error.finding->node.starts_with("SqrtBackward")));
  }
}

TEST_CASE("Autopsy: the second of several updates") {
  torch::manual_seed(3);
  Net net;
  auto batches = batches_of(6);
  poison(batches, 2, 100);
  torch::optim::SGD one(net->second->parameters(), 1e-3), other(net->first->parameters(), 1e-3);
  const auto plain = [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); };
  Trainer trainer(net, Update{one, plain, {.name = "head"}}, Update{other, sqrt_at_zero, {.name = "body"}},
                  Accumulate<3>{}, Autopsy{});
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    check(kSqrt, error);
    CHECK(std::string(error.what()).find("body") != std::string::npos);
  }
  CHECK(!toy::has_gradients(net));
}

TEST_CASE("Autopsy: a window in pieces, whose samples keep their numbers") {
  torch::manual_seed(3);
  Net net;
  auto batches = batches_of(6);
  poison(batches, 3, 100);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  int calls = 0;
  const auto loss = [&](Net& net, const Batch& b) {
    if (++calls == 5) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    return Loss{
        .value = torch::sqrt(hidden(net, b).pow(2).sum(1) * (1 - b.x.select(1, 0).gt(50).to(torch::kFloat)))
                     .mean(),
        .weight = b.x.size(0)};
  };
  Trainer trainer(net, optimizer, loss, Accumulate<3>{}, RetryOnOom{.report = [](const std::string&) {}},
                  Autopsy{});
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    Fault fault = kSqrt;
    fault.rows = {3};
    check(fault, error);
  }
  CHECK(trainer.policy<RetryOnOom>().windows == 1);
}

TEST_CASE("Autopsy: a window that SkipBadWindows skips is reported, and the fit continues") {
  std::vector<std::string> told;
  torch::manual_seed(3);
  Net net;
  auto batches = batches_of(6);
  poison(batches, 1, NAN);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  Trainer trainer(
      net, optimizer, [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); },
      SkipBadWindows{.report = [](const std::string&) {}},
      Autopsy{.report = [&](const std::string& text) { told.push_back(text); }});
  CHECK(trainer.fit(batches).steps == 6);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("autopsy of step 4") == 0);
  CHECK(told[0].find("Tensor 0 of micro-batch 0, sample 1 holds it") != std::string::npos);
}

namespace {

struct NoisyImpl : torch::nn::Module {
  NoisyImpl(std::int64_t width, bool norms) {
    register_module("in", in = torch::nn::Linear(4, width));
    register_module("out", out = torch::nn::Linear(width, 3));
    if (norms) register_module("norm", norm = torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = torch::relu(in(x));
    if (norm) h = norm(h);
    return out(torch::dropout(h, 0.3, is_training()));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Noisy);

/// Trains a seeded net of some kind; counts what Autopsy reports.
template <class... Policies>
std::vector<at::Tensor> trained(std::uint64_t seed, Policies... policies) {
  torch::manual_seed(seed);
  Noisy net(4 + static_cast<std::int64_t>(seed % 5) * 4, seed % 2 == 0);
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < 9; ++i) batches.push_back(batch_of(100 * seed + i));
  torch::manual_seed(seed);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto loss = [](Noisy& net, const Batch& b) {
    return torch::nn::functional::cross_entropy(net(b.x).to(torch::kFloat), b.y);
  };
  Trainer trainer(net, optimizer, loss, Accumulate<>{1 + static_cast<std::int64_t>(seed % 3)}, policies...);
  trainer.fit(batches, {.epochs = 2});
  std::vector<at::Tensor> state = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer);
  return state;
}
bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE(
    "Autopsy: a hundred clean runs, fp16 with overflows among them: no alarm, and the bits of runs without it") {
  int alarms = 0, overflows = 0;
  const Autopsy armed{.report = [&](const std::string&) { ++alarms; }};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const When half{seed % 3 == 0, Autocast<fp16>{.initial_scale = 1 << 30}};
    const When clipped{seed % 4 == 0, ClipGradNorm{0.5}};
    const On skipped{kObserve,
                     [&](WindowContext& window) { overflows += window.run.progress().skipped > 0; }};
    CHECK(same(trained(seed, half, clipped, armed, skipped), trained(seed, half, clipped)));
  }
  CHECK(alarms == 0);
  CHECK(overflows > 0);
}

TEST_CASE("Autopsy: windows that are looked into for a spike leave the run as it is, bit for bit") {
  int spikes = 0;
  const Autopsy eager{
      .spikes = 1e-6, .warm_up = 2, .max_traces = 1000, .report = [&](const std::string& text) {
        ++spikes;
        CHECK(text.find("standard deviations above the running mean") != std::string::npos);
      }};
  for (std::uint64_t seed = 0; seed < 6; ++seed) CHECK(same(trained(seed, eager), trained(seed)));
  CHECK(spikes > 10);
}

TEST_CASE("Autopsy: finite gradients whose norm is beyond fp32 are told from infinite ones") {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  const auto objective = [](torch::nn::Linear& net, const double& slope) {
    return ((net->weight - net->weight.detach()) * slope).sum();
  };
  Trainer trainer(net, optimizer, objective, ClipGradNorm{1.0}, Autopsy{});
  CHECK_THROWS_WITH(
      trainer.fit(std::vector{1e30}),
      Catch::Contains("gradients of update or their norm are NaN or infinite") &&
          Catch::Contains("finite numbers: look for gradients too large to be summed or squared"));
}

TEST_CASE("Autopsy: a norm of gradients far beyond the usual ones is reported, though the loss is as ever") {
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  const auto objective = [](torch::nn::Linear& net, const double& slope) {
    return ((net->weight - net->weight.detach()) * slope).sum();  // 0, whatever the slope
  };
  std::vector<std::string> told;
  Trainer trainer(
      net, optimizer, objective,
      Autopsy{.spikes = 9, .warm_up = 5, .report = [&](const std::string& text) { told.push_back(text); }});
  std::vector<double> slopes;
  for (int i = 0; i < 20; ++i) slopes.push_back(i == 15 ? 1000.0 : 1 + 0.01 * (i % 3));
  trainer.fit(slopes);
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Catch::Contains("step 15") && Catch::Contains("a norm of the gradients of 2000 is"));
}

TEST_CASE("Autopsy: options out of range are refused, and the state is in snapshots") {
  CHECK_THROWS_AS(trained(0, Autopsy{.spikes = -1}), UsageError);
  CHECK_THROWS_AS(trained(0, Autopsy{.warm_up = 1}), UsageError);
  CHECK_THROWS_AS(trained(0, Autopsy{.overflows = 0}), UsageError);
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  Trainer trainer(net, optimizer, toy::objective, Autopsy{.spikes = 9});
  trainer.fit(toy::batches(5));
  Trainer other(net, optimizer, toy::objective, Autopsy{.spikes = 9});
  other.load_state_dict(trainer.state_dict());
  const auto& then = trainer.policy<Autopsy>().updates.at(0);
  const auto& now = other.policy<Autopsy>().updates.at(0);
  CHECK((now.losses.count == 5 && now.losses.mean == then.losses.mean &&
         now.norms.variance == then.norms.variance));
}
