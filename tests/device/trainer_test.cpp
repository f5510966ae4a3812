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

struct Trained {
  toy::Net net;
  double loss;
};

/// How an objective gives its weight: as a number, as a tensor on the device, or as the same tensor on the
/// device each time, with a new value.
enum class Weight { known, unread, refilled };

/// Trains with everything that touches gradients.
Trained trained(at::Device device, Weight weight) {
  auto net = toy::net();
  net->to(device);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  const at::Tensor refilled = torch::zeros({}, at::TensorOptions(at::kDouble).device(device));
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    lt::Loss loss = toy::objective(net, batch);
    const double number = loss.weight.number();
    if (weight == Weight::unread) loss.weight = torch::full({}, number, batch.features.options());
    if (weight == Weight::refilled) loss.weight = refilled.fill_(number);
    return loss;
  };
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<3>{}, lt::ClipGradNorm{0.5},
                      lt::ScheduleLr{.warmup_steps = 2}, lt::CacheFlushEvery<2>{});
  const auto result = trainer.fit(toy::batches(10), {.epochs = 3});
  CHECK(result.steps == 12);
  CHECK(trainer.updates()[0].applied == 12);
  CHECK(std::isfinite(result.loss));
  net->to(at::kCPU);
  return {net, result.loss};
}

/// Batches of the toy, each in the same pinned memory as the one before.
struct Refilling {
  explicit Refilling(std::int64_t count) : all(toy::batches(count)) {}

  struct Iterator {
    using value_type = toy::Batch;
    using difference_type = std::ptrdiff_t;
    const Refilling* of = nullptr;
    std::size_t at = 0;
    toy::Batch operator*() const {
      const toy::Batch& batch = of->all[at];
      const std::int64_t size = batch.labels.size(0);
      return {of->features.narrow(0, 0, size).copy_(batch.features),
              of->labels.narrow(0, 0, size).copy_(batch.labels)};
    }
    Iterator& operator++() { return ++at, *this; }
    void operator++(int) { ++at; }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, all.size()}; }

  std::vector<toy::Batch> all;
  at::Tensor features = torch::empty({4, 4}, at::TensorOptions(at::kDouble).pinned_memory(true));
  at::Tensor labels = torch::empty({4}, at::TensorOptions(at::kLong).pinned_memory(true));
};

struct Rows {
  std::int64_t size() const { return 64; }
  at::Tensor get(std::int64_t index) const { return torch::full({4}, static_cast<float>(index)); }
};

}  // namespace

TEST_CASE("a run on a device has the CPU's numbers, with known and with unread weights") {
  if (!has_device()) return;
  auto reference = trained(at::kCPU, Weight::known);
  for (const Weight weight : {Weight::known, Weight::unread, Weight::refilled}) {
    CAPTURE(static_cast<int>(weight));
    auto there = trained(test_device(), weight);
    CHECK(toy::distance(reference.net, there.net) <= tolerance(1e-9));
    CHECK(there.loss == Approx(reference.loss).epsilon(1e-12));
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

TEST_CASE("autocast runs matmuls in bfloat16, and gradients stay fp32") {
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

TEST_CASE(
    "batches may share pinned memory that is refilled, in fit, in evaluate and in a loop of one's own") {
  if (!has_device()) return;
  const auto trained = [](at::Device device) {
    auto net = toy::net();
    net->to(device);
    lt::FusedSGD sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
    lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<3>{});
    trainer.fit(Refilling(9));
    const lt::Evaluation evaluation = trainer.evaluate(Refilling(5));
    for (const toy::Batch& batch : Refilling(9)) trainer.step(batch);
    CHECK(trainer.progress().step == 6);
    net->to(at::kCPU);
    return std::pair(net, evaluation.loss);
  };
  auto [on_cpu, cpu_loss] = trained(at::kCPU);
  auto [there, loss] = trained(test_device());
  CHECK(toy::distance(on_cpu, there) <= tolerance(1e-9));
  CHECK(std::abs(loss - cpu_loss) <= tolerance(1e-9));
  if (is_simulated()) CHECK(looptorch_test::accelerator::take_violations() == std::vector<std::string>{});
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
