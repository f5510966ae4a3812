// SPDX-License-Identifier: MIT
// Policies whose work is done on a device: averages, clipping by value, process-wide switches, flushes.
#include "support/precompiled.hpp"

#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/average_weights.hpp>
#include <looptorch/policies/backend_flags.hpp>
#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/policies/validate.hpp>
#include <looptorch/policies/watch_memory.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

/// The loss under the averages, and what is left of them in the model, after a run on `device`.
struct Averaged {
  double loss;
  toy::Net net;
};

Averaged averaged(at::Device device, bool offload = false) {
  auto net = toy::net();
  net->to(device);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  // The third update is skipped, which only the device knows.
  int update = 0;
  const lt::On veto{lt::kCheck, [&](lt::UpdateContext& context) {
                      context.veto(torch::full({}, update++ == 2, at::TensorOptions(device)));
                    }};
  lt::Trainer trainer(net, optimizer, toy::objective, veto, lt::ClipGradValue{0.05},
                      lt::AverageWeights{.rule = lt::Ema{.decay = 0.8}, .offload = offload});
  const auto result = trainer.fit(toy::batches(8));
  CHECK(result.skipped == 1);
  const auto& averages = trainer.policy<lt::AverageWeights>();
  CHECK(averages.count() == 7);
  for (const auto& [name, average] : averages.named())
    CHECK(average.device() == (offload ? at::Device(at::kCPU) : device));
  const at::Tensor before = net->first->weight.detach().clone();
  const double loss = trainer.evaluate(toy::batches(3, 5)).loss;
  CHECK(torch::equal(net->first->weight, before));
  averages.copy_to(*net);
  net->to(at::kCPU);
  return {loss, net};
}

}  // namespace

TEST_CASE("averages and gradients clipped by value on a device have the CPU's numbers") {
  if (!has_device()) return;
  auto cpu = averaged(at::kCPU), there = averaged(test_device());
  CHECK(toy::distance(cpu.net, there.net) <= tolerance(1e-9));
  CHECK(there.loss == Approx(cpu.loss).epsilon(1e-9));
}

TEST_CASE("averages on the host have the bits of those on the device") {
  if (!has_device()) return;
  auto there = averaged(test_device()), offloaded = averaged(test_device(), /*offload=*/true);
  CHECK(toy::distance(there.net, offloaded.net) == 0.0);
  CHECK(there.loss == offloaded.loss);
}

TEST_CASE("averages on the host are read when they have arrived, in snapshots too") {
  if (!has_device()) return;
  const auto trained = [](bool offload) {
    auto net = toy::net();
    net->to(test_device());
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(net, optimizer, toy::objective,
                        lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}, .offload = offload});
    std::vector<at::Tensor> seen;
    for (const auto& batch : toy::batches(4)) {
      trainer.step(batch);
      for (const auto& [name, average] : trainer.policy<lt::AverageWeights>().named())
        seen.push_back(average.to(at::kCPU, average.scalar_type(), false, /*copy=*/true));
    }
    trainer.finish_window();
    return std::pair(seen, trainer.state_dict());
  };
  const auto [seen, saved] = trained(false);
  const auto [seen_on_host, saved_on_host] = trained(true);
  REQUIRE(seen.size() == seen_on_host.size());
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i].equal(seen_on_host[i]));

  // What one kind has saved the other continues.
  std::vector<at::Tensor> seen_after;
  for (const bool offload : {false, true}) {
    auto net = toy::net(3);
    net->to(test_device());
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
    lt::Trainer trainer(net, optimizer, toy::objective,
                        lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}, .offload = offload});
    trainer.load_state_dict(offload ? saved : saved_on_host);
    trainer.step(toy::batches(5).back());
    trainer.finish_window();
    seen_after.push_back(trainer.policy<lt::AverageWeights>()
                             .named()
                             .at("first.weight")
                             .to(at::kCPU, at::kDouble, false, true));
  }
  CHECK(seen_after[0].equal(seen_after[1]));
}

TEST_CASE("averages on the host leave the device's memory to training") {
  if (!has_device()) return;
  const auto peak = [](bool averages, bool offload) {
    torch::nn::Sequential net;
    for (int i = 0; i < 16; ++i) net->push_back(torch::nn::Linear(64, 64));
    net->to(test_device());
    lt::FusedSGD optimizer(net->parameters(), {.lr = 1e-2});
    const auto objective = [](torch::nn::Sequential& net, const at::Tensor& x) {
      return net->forward(x).square().mean();
    };
    lt::Trainer trainer(net, optimizer, objective, lt::When{averages, lt::AverageWeights{.offload = offload}},
                        lt::Validate{std::vector(1, torch::ones({4, 64})), {.every = 2}}, lt::WatchMemory{});
    trainer.fit(std::vector(4, torch::ones({4, 64})));
    return static_cast<double>(trainer.policy<lt::WatchMemory>().peak().bytes);
  };
  const double without = peak(false, false);
  CHECK(peak(true, false) > 1.2 * without);
  CHECK(peak(true, true) == Approx(without).epsilon(0.05));
}

TEST_CASE("averages follow a model to a device, and evaluating there does not disturb training") {
  if (!has_device()) return;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::AverageWeights{.rule = lt::Swa{}},
                      lt::Validate{toy::batches(2, 5), {.every = 1}});
  trainer.fit(toy::batches(2));
  net->to(test_device());
  trainer.fit(toy::batches(2), {.epochs = 2});
  const auto place = [&] { return trainer.policy<lt::AverageWeights>().named().at("first.weight").device(); };
  CHECK(place() == test_device());
  CHECK(trainer.policy<lt::AverageWeights>().count() == 4);
  const auto batch = toy::batches(1).front();
  trainer.step(batch);
  net->to(at::kCPU);  // between two windows
  trainer.step(batch);
  trainer.finish_window();
  CHECK(place() == at::Device(at::kCPU));
  CHECK(trainer.policy<lt::AverageWeights>().count() == 6);
}

TEST_CASE("tf32 changes matmuls on the GPU, and only while it is on", "[cuda]") {
  if (!has_cuda()) return;
  torch::manual_seed(0);
  const auto a = torch::randn({256, 256}, test_device()), b = torch::randn({256, 256}, test_device());
  const at::Tensor exact = a.to(at::kDouble).matmul(b.to(at::kDouble));
  const auto error = [&](bool tf32) {
    const lt::BackendScope scope(lt::BackendFlags{.tf32 = tf32});
    return (a.matmul(b) - exact).abs().max().item<double>();
  };
  const double exact_error = error(false), tf32_error = error(true);
  CHECK(exact_error < 1e-3);
  CHECK(tf32_error >= exact_error);  // greater from Ampere on
  CHECK(error(false) == exact_error);
}

TEST_CASE("Autopsy on a device refuses gradients that are not finite, as on a CPU") {
  if (!has_device()) return;
  torch::manual_seed(1);
  torch::nn::Linear net(4, 1);
  net->to(test_device());
  const at::Tensor before = net->weight.detach().cpu().clone();
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.1});
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& x) {
    const at::Tensor zero = net->weight - net->weight.detach();  // the root's slope is infinite there
    return net(x).square().mean() + zero.sum().sqrt();
  };
  lt::Trainer trainer(net, adamw, objective, lt::Autopsy{.report = [](const std::string&) {}});
  const std::vector<at::Tensor> batches(3, torch::ones({2, 4}, test_device()));
  CHECK_THROWS_AS(trainer.fit(batches), lt::NonFiniteGradient);
  CHECK(net->weight.detach().cpu().equal(before));
  CHECK(trainer.progress().step == 1);
}

TEST_CASE("averages that memory was too short for begin with a later update") {
  if (!is_simulated()) return;
  using Options = looptorch_test::accelerator::Options;
  const auto batches = toy::batches(3);
  for (std::int64_t failing = 1, more = 3; more > 0; ++failing) {
    CAPTURE(failing);
    auto net = toy::net();
    net->to(test_device());
    lt::FusedSGD sgd(net->parameters(), {.lr = 0.1});
    lt::Trainer trainer(net, sgd, toy::objective, lt::AverageWeights{});
    {
      const looptorch_test::accelerator::With one_fails(Options{.fail_allocation_at = failing});
      try {
        trainer.fit(batches, {.max_steps = 1});
        --more;  // memory sufficed
      } catch (const c10::OutOfMemoryError&) {
      }
    }
    CHECK(std::isfinite(trainer.evaluate(batches).loss));
    trainer.fit(batches, {.max_steps = trainer.progress().step + 1});
    const auto& averages = trainer.policy<lt::AverageWeights>();
    CHECK(averages.named().size() == net->parameters().size());
    if (averages.count() == 1)
      for (const auto& [name, average] : averages.named())
        CHECK(average.cpu().equal(net->named_parameters()[name].detach().cpu()));
  }
}

TEST_CASE("flushes within a run give unused memory back and report it") {
  if (!has_device()) return;
  torch::nn::Linear net(4, 1);
  net->to(test_device());
  torch::optim::SGD sgd(net->parameters(), 1e-3);
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& batch) {
    const auto large = torch::empty({64 << 20}, torch::TensorOptions(at::kFloat).device(test_device()));
    return net(batch).mean();
  };
  lt::Trainer trainer(net, sgd, objective, lt::CacheFlushEvery<1>{.at_epoch_end = true});
  trainer.fit(std::vector{torch::ones({8, 4}), torch::ones({8, 4})});
  const auto& report = trainer.policy<lt::CacheFlushEvery<1>>();
  CHECK(report.flushes == 3);
  CHECK(report.freed_bytes >= 2 * (256 << 20));
  CHECK(report.last_freed_bytes < 256 << 20);  // at the epoch's end little was left to give
}
