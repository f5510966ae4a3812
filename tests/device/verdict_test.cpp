// SPDX-License-Identifier: MIT
// What the device decides and the host reads later: overflow under Autocast<fp16> and losses that are not
// numbers. A step waits for neither.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

toy::Net fp32_net(at::Device device) {
  auto net = toy::net();
  net->to(device, at::kFloat);
  return net;
}

/// Batches on `device`, of which those with these numbers lead to infinite losses.
std::vector<toy::Batch> batches(int64_t count, at::Device device, const std::vector<int64_t>& poisoned = {}) {
  auto result = toy::batches(count);
  for (int64_t i = 0; i < count; ++i) {
    auto& batch = result[static_cast<std::size_t>(i)];
    batch.features = batch.features.to(at::kFloat).to(device);
    batch.labels = batch.labels.to(device);
    if (std::count(poisoned.begin(), poisoned.end(), i)) batch.features.fill_(INFINITY);
  }
  return result;
}

lt::Loss objective(toy::Net& net, const toy::Batch& batch) {
  return {.value = torch::nn::functional::cross_entropy(net(batch.features).to(at::kFloat), batch.labels),
          .weight = batch.labels.size(0)};
}

/// A range whose iterator tells sample indices: two a batch, from 10 on.
struct Indexed {
  std::vector<toy::Batch> batches;
  struct Iterator {
    using iterator_concept = std::forward_iterator_tag;
    using value_type = toy::Batch;
    using difference_type = std::ptrdiff_t;
    const std::vector<toy::Batch>* all = nullptr;
    std::int64_t at = 0;
    mutable std::array<std::int64_t, 2> samples{};
    const toy::Batch& operator*() const { return (*all)[static_cast<std::size_t>(at)]; }
    std::span<const std::int64_t> indices() const {
      samples = {10 + 2 * at, 11 + 2 * at};
      return samples;
    }
    Iterator& operator++() { return ++at, *this; }
    Iterator operator++(int) {
      Iterator before = *this;
      ++at;
      return before;
    }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const { return {&batches, 0, {}}; }
  Iterator end() const { return {&batches, static_cast<std::int64_t>(batches.size()), {}}; }
};

struct VetoAll {
  static constexpr lt::Phase phase = lt::Phase::check;
  static constexpr bool changes_gradients = false;
  void before_update(lt::UpdateContext& update) const { update.veto(); }
};

}  // namespace

TEST_CASE("overflows on a device skip what they skip on the CPU") {
  if (!has_device()) return;
  const auto trained = [](at::Device device) {
    auto net = fp32_net(device);
    lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
    lt::Trainer trainer(net, adamw, objective,
                        lt::Autocast<lt::fp16>{.initial_scale = 256, .growth_interval = 2},
                        lt::ClipGradNorm{1.0}, lt::Accumulate<2>{}, lt::ScheduleLr{.warmup_steps = 2});
    const auto result = trainer.fit(batches(16, device, {0, 5, 11}), {.epochs = 2});
    return std::tuple(result.skipped, trainer.policy<lt::Autocast<lt::fp16>>().scale.item<double>(),
                      adamw.moments()[0].steps[0].item<double>(), adamw.param_groups()[0].options().get_lr());
  };
  const auto on_cpu = trained(at::kCPU);
  CHECK(std::get<0>(on_cpu) == 6);
  CHECK(trained(test_device()) == on_cpu);
}

TEST_CASE("the loss scale follows a model that moves between two windows") {
  if (!has_device()) return;
  const auto trained = [](const std::vector<at::Device>& places) {
    auto net = fp32_net(at::kCPU);
    lt::FusedAdamW adamw(net->parameters(), {.lr = 0.01});
    lt::Trainer trainer(net, adamw, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0},
                        lt::Autocast<lt::fp16>{.initial_scale = 256, .growth_interval = 2});
    for (const at::Device place : places) {
      net->to(place);
      for (const toy::Batch& batch : batches(6, at::kCPU, {3})) trainer.step(batch);
      const auto& state = trainer.policy<lt::Autocast<lt::fp16>>();
      CHECK(state.scale.device() == place);
      CHECK(state.growth_tracker.device() == place);
    }
    trainer.finish_window();
    CHECK(trainer.progress().skipped == static_cast<std::int64_t>(places.size()));
    return net;
  };
  auto still = trained({at::kCPU, at::kCPU, at::kCPU});
  auto moved = trained({at::kCPU, test_device(), at::kCPU});
  CHECK(toy::distance(still, moved) <= tolerance(1e-2));
}

TEST_CASE("a loss that is not a number is vetoed on a device and reported before the next update") {
  if (!has_device()) return;
  const auto check = [](auto make_optimizer) {
    auto net = fp32_net(test_device()), before = fp32_net(test_device());
    auto optimizer = make_optimizer(net->parameters());
    lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<2>{});
    try {
      trainer.fit(Indexed{batches(8, test_device(), {1})});
      FAIL("nothing was thrown");
    } catch (const lt::NonFiniteLoss& error) {
      CHECK(error.step == 0);
      CHECK(error.first_batch == 0);
      CHECK(error.last_batch == 1);
      CHECK(error.samples == std::vector<std::int64_t>{10, 11, 12, 13});
    }
    CHECK(toy::distance(net, before) == 0.0);
    CHECK_FALSE(toy::has_gradients(net));
    CHECK(trainer.updates()[0].skipped == 1);
    const auto good = trainer.fit(batches(4, test_device()));  // and the run may go on
    CHECK(good.skipped == 1);
    CHECK(std::isfinite(good.loss));
  };
  check([](auto parameters) { return lt::FusedAdamW(parameters); });
  check([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
}

TEST_CASE("a step with a fused optimizer waits for nothing, with and without loss scaling") {
  if (!has_device()) return;
  auto net = fp32_net(test_device());
  const auto data = batches(12, test_device());
  lt::FusedAdamW adamw(net->parameters());
  const auto check = [&](auto&& trainer) {
    for (std::size_t i = 0; i < 4; ++i) trainer.step(data[i]);  // allocators and handles are there afterwards
    const NoWaits no_waits;
    for (std::size_t i = 4; i < 12; ++i) CHECK_NOTHROW(trainer.step(data[i]));
    CHECK_THROWS(trainer.updates()[0].loss.mean());  // so that a wait would have shown
  };
  check(lt::Trainer(net, adamw, objective));
  check(lt::Trainer(net, adamw, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0}, lt::ClipGradValue{1.0},
                    lt::AverageWeights{}, lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 3}));
  check(lt::Trainer(net, adamw, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0},
                    lt::Autocast<lt::fp16>{}));
}

TEST_CASE("gradients that are not finite in an update already vetoed end no fit, on a device as on the CPU") {
  for (const at::Device device : {at::Device(at::kCPU), test_device()}) {
    torch::nn::Linear net(4, 3);
    net->to(device);
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
    const auto objective = [](torch::nn::Linear& model, const at::Tensor& x) {
      return x.mean() + (model->weight * 0).sqrt().sum();  // the root's gradient at 0 is NaN
    };
    lt::Trainer trainer(net, optimizer, objective, VetoAll{}, lt::ClipGradNorm{1.0});
    CHECK(trainer.fit(std::vector<at::Tensor>(2, torch::ones({2, 4}, device))).skipped == 2);
  }
}

TEST_CASE("metrics have the losses of their own windows, also after one whose update was skipped") {
  if (!has_device()) return;
  const lt::testing::TemporaryFolder folder;
  torch::manual_seed(1);
  torch::nn::Linear net(4, 3);
  net->to(test_device());
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.01});
  std::vector<double> losses;
  const auto objective = [&](torch::nn::Linear& model, const at::Tensor& x) {
    const at::Tensor loss = model(x).to(torch::kFloat).pow(2).mean();
    if (model->is_training()) losses.push_back(loss.item<double>());
    return loss;
  };
  std::vector<at::Tensor> data;
  for (int i = 0; i < 48; ++i) data.push_back(torch::randn({6, 4}).to(test_device()));
  const std::vector<at::Tensor> held{data[0]};
  lt::Trainer trainer(net, optimizer, objective,
                      lt::Autocast<lt::fp16>{.initial_scale = 1 << 12, .growth_interval = 2},
                      lt::Validate{held, objective, {.every = 2}}, lt::LogMetrics{.folder = folder.path()});
  losses.clear();
  trainer.fit(data);
  REQUIRE(trainer.progress().skipped > 2);

  lt::report::MetricNames names;
  std::ifstream file(folder / "metrics.jsonl");
  std::size_t compared = 0;
  for (std::string line; std::getline(file, line);) {
    const auto row = lt::report::read_json_line(line, names);
    REQUIRE(row);
    for (const auto& [id, value] : row->values)
      if (names[id] == "loss") {
        CAPTURE(row->step);
        CHECK(value == Approx(losses.at(static_cast<std::size_t>(row->step - 1))));
        ++compared;
      }
  }
  CHECK(compared >= data.size() - static_cast<std::size_t>(trainer.progress().skipped));
}
