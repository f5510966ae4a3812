// SPDX-License-Identifier: MIT
// WatchMemory and preflight on a device: numbers of its allocator, no waits, and a device that is too small.
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/temporary_folder.hpp"

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace lt = looptorch;
using Catch::Matchers::Contains;
using looptorch::testing::has_device;
using looptorch::testing::is_simulated;
using looptorch::testing::NoWaits;
using looptorch::testing::test_device;
using lt::MemoryPhase;

namespace {

struct Net {
  torch::nn::Sequential layers{torch::nn::Linear(256, 1024), torch::nn::ReLU(), torch::nn::Linear(1024, 256),
                               torch::nn::ReLU(), torch::nn::Linear(256, 8)};
  std::optional<lt::FusedAdam> adam;

  Net() {
    layers->to(test_device());
    adam.emplace(layers->parameters(), lt::FusedAdamOptions{});
  }
  [[nodiscard]] std::int64_t weight_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& parameter : layers->parameters()) bytes += std::int64_t(parameter.nbytes());
    return bytes;
  }
};

at::Tensor mean_square(torch::nn::Sequential& net, const at::Tensor& x) {
  return net->forward(x).square().mean();
}

std::vector<at::Tensor> rows(int count, std::int64_t size) {
  return std::vector<at::Tensor>(std::size_t(count), torch::ones({size, 256}, test_device()));
}

}  // namespace

TEST_CASE("memory of a device: the watch reads its allocator, and never waits") {
  if (!has_device()) return;
  Net net;
  lt::Trainer trainer(net.layers, *net.adam, mean_square, lt::WatchMemory{.out = nullptr});
  const auto data = rows(6, 512);
  trainer.fit(data, {.max_steps = 2});
  {
    const NoWaits none;
    for (const auto& batch : data) trainer.step(batch);
  }
  const auto& memory = trainer.policy<lt::WatchMemory>();
  const auto parts = memory.breakdown();
  CHECK(parts.total() == memory.peak().bytes);
  CHECK(parts.weights == net.weight_bytes());
  CHECK(parts.optimizer >= 2 * net.weight_bytes());
  CHECK(parts.activations >= 4 * 512 * (1024 + 256));  // what ReLU returns, which Linear keeps
  CHECK(memory.peak_reserved() >= memory.peak().bytes);
  CHECK(memory.peak_in(MemoryPhase::update) >= 4 * net.weight_bytes());
  CHECK(memory.findings().empty());
  CHECK(memory.capacity());
}

TEST_CASE("memory of a device: a leak has its phase there, too") {
  if (!has_device()) return;
  Net net;
  std::vector<at::Tensor> outputs;
  const auto leaking = [&](torch::nn::Sequential& net, const at::Tensor& x) {
    outputs.push_back(net->forward(x).detach());
    return mean_square(net, x);
  };
  lt::Trainer trainer(net.layers, *net.adam, leaking, lt::WatchMemory{.out = nullptr});
  trainer.fit(rows(100, 256));
  const auto& findings = trainer.policy<lt::WatchMemory>().findings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == lt::MemoryFinding::Kind::growth);
  CHECK(findings[0].phase == MemoryPhase::forward);
  CHECK(findings[0].bytes >= 256 * 8 * 4);
}

TEST_CASE("memory of a device: what others take of it, the host's share, and advice where little is left") {
  if (!has_device() || !is_simulated()) return;
  using looptorch_test::accelerator::With;
  lt::empty_cache(test_device());
  const auto held = std::size_t(lt::MemoryCounter(test_device()).read().reserved);
  std::FILE* const file = std::tmpfile();
  const auto watch = [&](std::size_t cap, std::size_t others) {
    const With card({.cap_bytes = cap, .others_bytes = others});
    Net net;
    lt::Trainer trainer(net.layers, *net.adam, mean_square, lt::WatchMemory{.out = file});
    trainer.fit(rows(4, 4096));
    const auto& memory = trainer.policy<lt::WatchMemory>();
    return std::tuple(memory.taken_by_others(), memory.text(), memory.advice());
  };
  const auto [none, roomy, no_advice] = watch(held + 4'000'000'000, 0);
  CHECK(none == 0);
  CHECK_THAT(roomy, !Contains("other programs") && Contains("; host "));
  CHECK(no_advice.empty());
  const auto [others, tight, advice] = watch(held + 90'000'000, 1'200'000'000);
  CHECK(others == 1'200'000'000);
  CHECK_THAT(tight, Contains("; other programs and contexts take 1.2 GB"));
  REQUIRE_FALSE(advice.empty());
  CHECK_THAT(advice[0], Contains("Accumulate<N>"));  // activations are the greatest part
  std::rewind(file);
  std::string written;
  for (int c; (c = std::fgetc(file)) != EOF;) written += static_cast<char>(c);
  std::fclose(file);
  CHECK_THAT(written, Contains("memory: little is left. activations: smaller micro-batches"));
}

TEST_CASE("memory of a device: the best weights wait on the host") {
  if (!has_device()) return;
  const auto peak_of = [](bool keeps_best) {
    torch::manual_seed(1);
    Net net;
    std::vector<at::Tensor> after_step;
    const auto note = [&](lt::WindowContext&) {
      after_step.push_back(net.layers->parameters().front().detach().cpu());
    };
    lt::Trainer trainer(net.layers, *net.adam, mean_square,
                        lt::Validate{rows(1, 64), mean_square, {.every = 1}}, lt::On{lt::kObserve, note},
                        lt::When{keeps_best, lt::RestoreBest{.out = nullptr}});
    const lt::MemoryCounter counter(test_device());
    (void)counter.take();
    trainer.fit(rows(8, 256));
    if (keeps_best) {
      const auto& state = trainer.policy<lt::RestoreBest>();
      const at::Tensor best = after_step.at(std::size_t(state.best.step() - 1));
      CHECK(state.weights.by_name().at("0.weight").is_cpu());
      CHECK(state.weights.by_name().at("0.weight").equal(best));
      CHECK(net.layers->parameters().front().cpu().equal(best));
    }
    return double(counter.read().peak);
  };
  const double without = peak_of(false);
  CHECK(peak_of(true) <= 1.01 * without);
}

TEST_CASE("memory of a device: the report's curve of the peak has activations and gradients") {
  if (!has_device()) return;
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  lt::Trainer trainer(net.layers, *net.adam, mean_square,
                      lt::LogMetrics{.folder = folder.path(), .flush_seconds = 0});
  trainer.fit(rows(6, 1024));
  std::ifstream file(folder / "metrics.jsonl");
  std::string line;
  double held = 0, peak = 0;
  while (std::getline(file, line)) {
    const lt::Json row = lt::Json::parse(line);
    if (row.contains("device_bytes")) held = row.at("device_bytes").as_number();
    if (row.contains("device_bytes_peak")) peak = row.at("device_bytes_peak").as_number();
  }
  CHECK(held >= 3.0 * double(net.weight_bytes()));                     // weights and moments
  CHECK(peak >= held + double(net.weight_bytes()) + 1024 * 1024 * 4);  // gradients, activations of a layer
}

TEST_CASE("preflight on a device: the peak of the fit that follows, and nothing else is left") {
  if (!has_device()) return;
  Net net;
  lt::Trainer trainer(net.layers, *net.adam, mean_square, lt::Accumulate<2>{},
                      lt::WatchMemory{.out = nullptr});
  const auto hard = rows(1, 1024);
  const lt::MemoryCounter counter(test_device());
  const std::int64_t before = counter.read().allocated;
  const auto report = lt::preflight(trainer, hard, {.cap = 1'000'000'000});
  CHECK(report.fits);
  CHECK(counter.read().allocated <= before + 2 * 512);  // two constants of the loop, made once
  trainer.fit(std::vector<at::Tensor>(6, hard[0]));
  CHECK(double(report.phases.peak().bytes) ==
        Approx(double(trainer.policy<lt::WatchMemory>().peak().bytes)).epsilon(0.02));
  CHECK(report.needed >= report.phases.peak().bytes);  // the allocator's blocks are larger
}

TEST_CASE("preflight on a device counts the memory of graphs, and says nothing of them") {
  if (!has_device()) return;
  const auto hard = rows(1, 1024);
  const auto needed = [&](bool captures, std::int64_t accumulate) {
    Net net;
    int reports = 0;
    lt::Trainer trainer(net.layers, *net.adam, mean_square, lt::Accumulate<>{accumulate},
                        lt::WatchMemory{.out = nullptr},
                        lt::When{captures, lt::CaptureGraphs{.report = [&](auto&) { ++reports; }}});
    const auto report = lt::preflight(trainer, hard, {.cap = 1'000'000'000, .evaluate = false});
    CHECK(reports == 0);
    CHECK(report.fits);
    trainer.fit(std::vector<at::Tensor>(8, hard[0]));
    CHECK(reports == captures);
    CHECK(double(report.phases.peak().bytes) ==
          Approx(double(trainer.policy<lt::WatchMemory>().peak().bytes)).epsilon(0.02));
    return report.needed;
  };
  for (const std::int64_t accumulate : {1, 2})
    if (is_simulated()) CHECK(needed(true, accumulate) > needed(false, accumulate) + (1 << 20));
}

TEST_CASE("preflight on a device that is too small: what it says fits does, and what does not fails") {
  if (!has_device() || !is_simulated()) return;
  using looptorch_test::accelerator::With;
  lt::empty_cache(test_device());
  Net net;
  const std::size_t cap = std::size_t(lt::MemoryCounter(test_device()).read().reserved) + 48'000'000;
  const With small({.cap_bytes = cap});
  lt::Trainer trainer(net.layers, *net.adam, mean_square, lt::Accumulate<2>{});
  const auto hard = rows(1, 4096);
  const auto report = lt::preflight(trainer, hard);
  REQUIRE_FALSE(report.fits);
  CHECK(report.out_of_memory);
  CHECK_THAT(report.text(), Contains("  fits (") && Contains("micro-batches of "));
  CHECK_THROWS_AS(trainer.fit(std::vector<at::Tensor>(4, hard[0])), c10::OutOfMemoryError);

  const auto found = lt::find_micro_batch(trainer, hard, {.margin = 0.05});
  REQUIRE(found.size > 0);
  REQUIRE(found.size < 4096);
  lt::Trainer smaller(net.layers, *net.adam, mean_square, lt::Accumulate<>{found.accumulate});
  smaller.fit(std::vector<at::Tensor>(std::size_t(2 * found.accumulate), hard[0].narrow(0, 0, found.size)));
  CHECK(smaller.progress().step == 2);
}
