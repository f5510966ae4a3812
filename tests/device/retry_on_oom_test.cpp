// SPDX-License-Identifier: MIT
// Simulated device only: RetryOnOom where an allocation of the device fails, each in turn, and on a device
// that is too small for the batches.
#include "support/precompiled.hpp"

#include <looptorch/memory/empty_cache.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using looptorch::testing::has_device;
using looptorch::testing::is_simulated;
using looptorch::testing::test_device;
using looptorch_test::accelerator::CountWaits;
using looptorch_test::accelerator::With;

namespace retry_on_oom {

struct Batch {
  at::Tensor x, y;  // [B, 64], [B]
};

std::vector<Batch> batches(std::int64_t count, std::int64_t size) {
  torch::manual_seed(2);
  std::vector<Batch> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back({torch::randn({size, 64}, torch::kDouble), torch::randint(0, 8, {size})});
  return result;
}

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Linear(256, 8));
  net->to(test_device(), torch::kDouble);
  return net;
}

lt::Loss objective(torch::nn::Sequential& net, const Batch& batch) {
  return {.value = torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y),
          .weight = batch.y.size(0)};
}

template <class... Policies>
std::pair<at::Tensor, std::int64_t> train(const std::vector<Batch>& data, Policies... policies) {
  auto net = make_net();
  lt::FusedAdamW adam(net->parameters());
  lt::Trainer trainer(net, adam, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0}, policies...);
  trainer.fit(data);
  (void)trainer.updates();
  return {net->parameters()[0].detach().cpu(), trainer.progress().step};
}

lt::RetryOnOom quiet() {
  return {.report = [](const std::string&) {}};
}

}  // namespace retry_on_oom

TEST_CASE("RetryOnOom on a device: wherever one of its allocations fails, the run ends as without") {
  if (!has_device() || !is_simulated()) return;
  using namespace retry_on_oom;
  const bool captures = GENERATE(false, true);
  const auto data = batches(captures ? 9 : 4, 6);
  const auto [expected, steps] = train(data);
  int recovered = 0, ended = 0;
  for (std::int64_t n = 1;; ++n) {
    CAPTURE(captures, n);
    auto net = make_net();
    lt::FusedAdamW adam(net->parameters());
    lt::Trainer trainer(net, adam, objective, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0}, quiet(),
                        lt::When{captures, lt::CaptureGraphs{.report = [](const std::string&) {}}});
    const With failing({.fail_allocation_at = n});
    const CountWaits counted;
    try {
      trainer.fit(data);
      (void)trainer.updates();
    } catch (const c10::OutOfMemoryError&) {
      ++ended;
      continue;
    }
    CHECK((net->parameters()[0].detach().cpu() - expected).abs().max().item<double>() < 1e-12);
    if (counted.counts().allocations < n) break;
    ++recovered;
  }
  CHECK(recovered > 20);
  CAPTURE(recovered, ended);
  CHECK(ended <= 1);  // eight bytes of the epoch's loss, once the update has been made
}

TEST_CASE("RetryOnOom on a device that is too small: the batches that do not fit are learnt in pieces") {
  if (!has_device() || !is_simulated()) return;
  using namespace retry_on_oom;
  const auto data = batches(4, 4096);
  const auto [expected, steps] = train(data);
  lt::empty_cache(test_device());
  const std::size_t cap = std::size_t(lt::MemoryCounter(test_device()).read().reserved) + 20'000'000;
  const With small({.cap_bytes = cap});
  CHECK_THROWS_AS(train(data), c10::OutOfMemoryError);
  const auto [found, made] = train(data, quiet());
  CHECK((made == 2 && steps == 2));
  CHECK((found - expected).abs().max().item<double>() < 1e-12);
}

TEST_CASE("RetryOnOom on a device: graphs give their memory back before a window is rerun") {
  if (!has_device() || !is_simulated()) return;
  using namespace retry_on_oom;
  auto data = batches(5, 1024);
  data.push_back(batches(1, 2048).front());
  const auto [expected, steps] = train(data);
  auto net = make_net();
  lt::FusedAdamW adam(net->parameters());
  const lt::MemoryCounter memory(test_device());
  std::vector<std::int64_t> held;  // as the large batch is begun
  std::optional<With> failing;
  const auto hungry = [&](torch::nn::Sequential& model, const Batch& batch) {
    if (batch.x.size(0) == 2048) lt::empty_cache(test_device());
    if (batch.x.size(0) == 2048 || !held.empty()) held.push_back(memory.read().reserved);
    failing.reset();
    if (held.size() == 1) failing.emplace(looptorch_test::accelerator::Options{.fail_allocation_at = 1});
    return objective(model, batch);
  };
  std::string said;
  lt::Trainer trainer(net, adam, hungry, lt::Accumulate<2>{}, lt::ClipGradNorm{1.0}, quiet(),
                      lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }});
  trainer.fit(data);
  (void)trainer.updates();
  CHECK_THAT(said, Catch::Contains("of which there are 1") && Catch::Contains("memory ran out"));
  REQUIRE(held.size() > 1);
  CHECK(held[1] < held[0] - 2'000'000);  // the last norm may keep a segment of the window's end
  CHECK((net->parameters()[0].detach().cpu() - expected).abs().max().item<double>() < 1e-12);
}
