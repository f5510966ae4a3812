// SPDX-License-Identifier: MIT
// What WatchMemory measures and finds, on runs whose memory is known.
// Tests memory/measure: unfreed_blocks
// Tests policies/watching: memory_watch
// Tests loop/step: count_held_memory
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/toy.hpp"

#include <functional>
#include <optional>
#include <random>
#include <vector>

namespace lt = looptorch;
using Catch::Matchers::Contains;
using lt::MemoryPhase;
using lt::WatchMemory;

namespace {

const WatchMemory kQuiet{.out = nullptr};

std::vector<at::Tensor> inputs(int count, std::int64_t rows = 64) {
  return std::vector<at::Tensor>(std::size_t(count), torch::ones({rows, 32}));
}

struct Wide {
  torch::nn::Sequential net{torch::nn::Linear(torch::nn::LinearOptions(32, 256).bias(false)),
                            torch::nn::ReLU(),
                            torch::nn::Linear(torch::nn::LinearOptions(256, 8).bias(false))};
  lt::FusedAdam adam{net->parameters(), lt::FusedAdamOptions{}};
  static constexpr std::int64_t kWeights = 4 * (32 * 256 + 256 * 8);
};

at::Tensor objective(torch::nn::Sequential& net, const at::Tensor& x) {
  return net->forward(x).square().mean();
}

struct Updated {
  std::function<void()> call;
  void after_update(lt::UpdateContext&) const { call(); }
};

/// Trains by a loop that keeps tensors in `phase`; returns what is found.
std::optional<lt::MemoryFinding> found_growth(MemoryPhase phase, int steps = 120) {
  Wide wide;
  std::vector<at::Tensor> kept;
  const auto keep = [&](MemoryPhase now) {
    if (now == phase) kept.push_back(torch::zeros(500));
  };
  const auto leaking = [&](torch::nn::Sequential& net, const at::Tensor& x) {
    keep(MemoryPhase::forward);
    at::Tensor out = net->forward(x);
    if (out.requires_grad()) out.register_hook([&](const at::Tensor&) { keep(MemoryPhase::backward); });
    return out.square().mean();
  };
  const auto held_out = inputs(1);
  const auto measure = [&](torch::nn::Sequential& net, const at::Tensor& x) {
    keep(MemoryPhase::evaluation);
    return net->forward(x).mean();
  };
  lt::Trainer trainer(wide.net, wide.adam, leaking, kQuiet, lt::Validate{held_out, measure, {.every = 1}},
                      Updated{[&] { keep(MemoryPhase::update); }},
                      lt::On{lt::kObserve, [&](lt::WindowContext&) { keep(MemoryPhase::between); }});
  trainer.fit(inputs(steps));
  for (const auto& finding : trainer.policy<WatchMemory>().findings())
    if (finding.kind == lt::MemoryFinding::Kind::growth) return finding;
  return std::nullopt;
}

}  // namespace

TEST_CASE("WatchMemory: the peak and its parts, to the byte where they are known") {
  Wide wide;
  lt::Trainer trainer(wide.net, wide.adam, objective, kQuiet);
  const std::int64_t before = lt::MemoryCounter(at::kCPU).read().allocated;
  const auto data = inputs(6);
  trainer.fit(data);
  const auto& memory = trainer.policy<WatchMemory>();
  const auto parts = memory.breakdown();
  CHECK(parts.total() == memory.peak().bytes);
  CHECK(parts.weights == Wide::kWeights);
  CHECK(parts.optimizer >= 2 * Wide::kWeights);  // and step counts
  CHECK(parts.optimizer < 2 * Wide::kWeights + 64);
  CHECK(parts.averages == 0);
  // The first layer's output and its ReLU, [64, 256] each, the second's output, and scalars.
  CHECK(parts.activations >= 4 * 64 * (256 + 8));
  CHECK(parts.activations <= 4 * 64 * (2 * 256 + 4 * 8));
  CHECK(memory.peak().phase == MemoryPhase::backward);
  CHECK(memory.peak_in(MemoryPhase::backward) >= memory.peak_in(MemoryPhase::forward));
  CHECK(memory.peak_in(MemoryPhase::evaluation) == 0);
  CHECK(memory.findings().empty());
  CHECK(trainer.held_memory().gradients == Wide::kWeights);
  const std::int64_t left = lt::MemoryCounter(at::kCPU).read().allocated - before;
  CHECK(left >= 2 * Wide::kWeights + 6 * 64 * 32 * 4 / 6);  // moments, and one tensor shared by the data
  REQUIRE(memory.capacity());
  CHECK_THAT(memory.text(), Contains(" GB at the peak, in backward of step ") && Contains("weights 41 KB") &&
                                Contains("optimizer 81.9 KB"));
}

TEST_CASE("WatchMemory: averages, evaluations and several micro-batches have their parts") {
  Wide wide;
  const auto held_out = inputs(2, 2048);
  lt::Trainer trainer(wide.net, wide.adam, objective, kQuiet, lt::AverageWeights{}, lt::Accumulate<2>{},
                      lt::Validate{held_out});
  trainer.fit(inputs(8, 16));
  const auto& memory = trainer.policy<WatchMemory>();
  CHECK(memory.peak().phase == MemoryPhase::evaluation);  // of 2048 rows, where batches have 16
  CHECK(memory.breakdown().averages == Wide::kWeights);
  CHECK(memory.breakdown().activations == 0);
  CHECK(memory.peak_in(MemoryPhase::evaluation) > memory.peak_in(MemoryPhase::forward));
}

TEST_CASE("WatchMemory: moments of LibTorch's own optimizers count, and those of unknown ones do not") {
  Wide wide;
  torch::optim::SGD sgd(wide.net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  lt::Trainer trainer(wide.net, sgd, objective, kQuiet);
  CHECK(trainer.held_memory().optimizer == 0);
  trainer.fit(inputs(2));
  CHECK(trainer.held_memory().optimizer == Wide::kWeights);
}

TEST_CASE("WatchMemory: training is the same with and without it, bit for bit") {
  const auto train = [](auto... policies) {
    toy::Net net = toy::net();
    lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
    lt::Trainer trainer(net, adam, toy::objective, policies...);
    trainer.fit(toy::batches(20), {.epochs = 3});
    return net;
  };
  const toy::Net without = train(), with = train(kQuiet);
  for (std::size_t i = 0; i < without->parameters().size(); ++i)
    CHECK(torch::equal(without->parameters()[i], with->parameters()[i]));
}

TEST_CASE("WatchMemory: a leak is found with its phase and its bytes") {
  const auto phase = GENERATE(MemoryPhase::forward, MemoryPhase::backward, MemoryPhase::update,
                              MemoryPhase::evaluation, MemoryPhase::between);
  INFO(lt::to_string(phase));
  const auto found = found_growth(phase);
  REQUIRE(found);
  CHECK(found->phase == phase);
  CHECK(found->bytes >= 2000);  // an evaluation may keep more than once a step
  CHECK_THAT(found->text, Contains("memory grows by") &&
                              Contains("allocated in " + std::string(lt::to_string(phase)) + " stay"));
}

TEST_CASE("WatchMemory: what a sound run does is no leak") {
  Wide wide;
  std::mt19937 random(1);
  std::vector<at::Tensor> data;
  for (int i = 0; i < 150; ++i) data.push_back(torch::ones({std::int64_t(8 + random() % 64), 32}));
  const auto held_out = inputs(2);
  lt::Trainer trainer(wide.net, wide.adam, objective, kQuiet, lt::AverageWeights{.begin_after = 60},
                      lt::Validate{held_out, {.every = 10}}, lt::ClipGradNorm{1.0},
                      lt::UnfreezeAt{{.epoch = 1, .patterns = {"0.*"}}});
  trainer.fit(data, {.epochs = 2});
  CHECK(trainer.policy<WatchMemory>().findings().empty());
}

TEST_CASE("WatchMemory: a growth that is noticed as the fit ends has no phase") {
  const auto found = found_growth(MemoryPhase::forward, 57);
  REQUIRE(found);
  CHECK_FALSE(found->phase);
}

TEST_CASE("WatchMemory: one long batch is a spike, told once") {
  Wide wide;
  auto data = inputs(100, 200);
  data[70] = data[90] = torch::ones({2000, 32});
  const looptorch::testing::CapturedStderr captured;
  lt::Trainer trainer(wide.net, wide.adam, objective, WatchMemory{});
  trainer.fit(data);
  const auto& findings = trainer.policy<WatchMemory>().findings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == lt::MemoryFinding::Kind::spike);
  CHECK(findings[0].step == 71);
  CHECK_THAT(findings[0].text, Contains("step 71 needed") && Contains("LengthBucketSampler"));
}

TEST_CASE("WatchMemory: shows in the line of progress, and says the peak as the fit ends") {
  Wide wide;
  std::FILE* const file = std::tmpfile();
  lt::Trainer trainer(wide.net, wide.adam, objective, WatchMemory{file}, lt::ShowProgress{.out = file});
  trainer.fit(inputs(3));
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK_THAT(text, Contains("  memory ") && Contains("memory: ") && Contains(" at the peak, in "));
}

TEST_CASE("WatchMemory: says nothing of a peak if the fit could not begin") {
  Wide wide;
  std::FILE* const file = std::tmpfile();
  lt::Trainer trainer(wide.net, wide.adam, objective, WatchMemory{.out = file},
                      lt::SkipBadWindows{.max_skipped = -1});
  CHECK_THROWS_AS(trainer.fit(inputs(1)), lt::UsageError);
  CHECK(std::ftell(file) == 0);
  std::fclose(file);
}

TEST_CASE("WatchMemory: a policy that asks for memory without saying so gets an error that says how") {
  struct Asks {
    void on_window_end(lt::WindowContext& window) const { (void)window.run.held_memory(); }
  };
  Wide wide;
  lt::Trainer trainer(wide.net, wide.adam, objective, Asks{});
  CHECK_THROWS_WITH(trainer.fit(inputs(1)), Contains("static constexpr bool reads_memory = true"));
}
