// SPDX-License-Identifier: MIT
// The loop on a device: the same numbers as on the CPU, batches that are moved there, caches that are given
// back.
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

/// Trains with everything that touches gradients, and a weight that only the device knows if `unread`.
toy::Net trained(at::Device device, bool unread) {
  auto net = toy::net();
  net->to(device);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    if (unread) loss.weight = torch::full({}, loss.weight.number(), batch.features.options());
    return loss;
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<3>{}, lt::ClipGradNorm{0.5},
                      lt::ScheduleLr{.warmup_steps = 2}, lt::CacheFlushEvery<2>{});
  const auto result = trainer.fit(toy::batches(10), {.epochs = 3});
  CHECK(result.steps == 12);
  CHECK(trainer.updates()[0].applied == 12);
  CHECK(std::isfinite(result.loss));
  net->to(at::kCPU);
  return net;
}

struct Rows {
  std::int64_t size() const { return 64; }
  at::Tensor get(std::int64_t index) const { return torch::full({4}, static_cast<float>(index)); }
};

}  // namespace

TEST_CASE("a run on a device has the CPU's numbers, with known and with unread weights") {
  if (!has_device()) return;
  auto reference = trained(at::kCPU, false);
  for (const bool unread : {false, true}) {
    auto net = trained(test_device(), unread);
    CHECK(toy::distance(reference, net) <= tolerance(1e-9));
  }
}

TEST_CASE("a model that moved is followed, in fit and in evaluate, and pinned batches reach it") {
  if (!has_device()) return;
  torch::nn::Linear net(4, 1);
  lt::PinnedPrefetchLoader loader(Rows{}, {.batch_size = 8, .workers = 2});
  for (const auto& batch : loader) CHECK(batch.is_pinned());
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& batch) {
    CHECK(batch.device() == net->weight.device());
    return net(batch).mean();
  };
  torch::optim::SGD sgd(net->parameters(), 1e-3);
  lt::Trainer trainer(net, sgd, objective);
  trainer.fit(loader);
  net->to(test_device());
  trainer.evaluate(loader);
  CHECK(trainer.fit(loader).steps == 16);
}

TEST_CASE("autocast runs matrix products in bfloat16, and gradients stay fp32") {
  if (!has_device()) return;
  torch::nn::Linear net(4, 1);
  net->to(test_device());
  torch::optim::SGD sgd(net->parameters(), 1e-3);
  const auto objective = [](torch::nn::Linear& net, const at::Tensor& batch) {
    CHECK(net(batch).scalar_type() == at::kBFloat16);
    return net(batch).to(at::kFloat).mean();
  };
  lt::Trainer trainer(net, sgd, objective, lt::Autocast<lt::bf16>{},
                      lt::On{lt::kClip, [](lt::UpdateContext& update) {
                               for (const auto& gradient : update.gradients())
                                 CHECK(gradient.scalar_type() == at::kFloat);
                             }});
  trainer.fit(std::vector{torch::ones({8, 4})});
}

TEST_CASE("a flush gives the caching allocator's unused memory back, and counts it") {
  if (!has_device()) return;
  { const auto large = torch::empty({64 << 20}, torch::TensorOptions(at::kFloat).device(test_device())); }
  CHECK(lt::empty_cache(test_device()) >= 256 << 20);
  CHECK(lt::empty_cache(test_device()) == 0);
}

TEST_CASE("a loop of one's own on a device has the CPU's numbers, a shorter last window included") {
  if (!has_device()) return;
  const auto trained = [](at::Device device) {
    auto net = toy::net();
    net->to(device);
    lt::FusedSGD sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
    lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<3>{});
    for (const toy::Batch& batch : toy::batches(10)) trainer.step(batch);
    trainer.finish_window();
    CHECK(trainer.progress().step == 4);
    const lt::Evaluation evaluation = trainer.evaluate(toy::batches(5, 2));
    net->to(at::kCPU);
    return std::pair(net, evaluation.loss);
  };
  auto [on_cpu, cpu_loss] = trained(at::kCPU);
  auto [there, loss] = trained(test_device());
  CHECK(toy::distance(on_cpu, there) <= tolerance(1e-9));
  CHECK(std::abs(loss - cpu_loss) <= tolerance(1e-9));
}

TEST_CASE("an optimizer that evaluates its objective again has the CPU's numbers on a device") {
  if (!has_device()) return;
  const auto trained = [](at::Device device) {
    auto net = toy::net();
    net->to(device);
    torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
    lt::Trainer trainer(net, lbfgs, toy::objective, lt::Accumulate<2>{});
    trainer.fit(toy::batches(8));
    net->to(at::kCPU);
    return net;
  };
  auto on_cpu = trained(at::kCPU), there = trained(test_device());
  CHECK(toy::distance(on_cpu, there) <= tolerance(1e-6));
}
