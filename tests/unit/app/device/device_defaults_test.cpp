// SPDX-License-Identifier: MIT
// What is on by default on a card, by what is known about it; no GPU is needed.
#include "support/precompiled.hpp"

#include <looptorch/app/device/device_defaults.hpp>
#include <looptorch/app/training_flags.hpp>

#include "support/parse_words.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace app = looptorch::app;
using app::Capability, app::DeviceFacts, app::OpenSettings, app::Precision, app::TrainingOptions;

namespace {

constexpr OpenSettings kOpen{
    .precision = true, .tf32 = true, .cudnn_benchmark = true, .workers = true, .fixed_shapes = true};

DeviceFacts card(Capability capability, std::int64_t cores = 8) {
  return {.name = "cuda:0 (GPU)", .capability = capability, .cores = cores};
}

std::string on(const DeviceFacts& device, const OpenSettings& open = kOpen) {
  std::string text;
  for (const auto& flag : app::device_defaults(device, open))
    text += (text.empty() ? "" : " ") + flag.flag + (flag.value.empty() ? "" : " " + flag.value);
  return text;
}

/// Parses words as a training program on that card does.
TrainingOptions parsed(const DeviceFacts& device, std::vector<std::string> words, bool fixed_shapes = true,
                       app::NotByDefault excluded = {}) {
  TrainingOptions options;
  app::CommandLine line("program", "");
  app::add_training_flags(line, options);
  line.complete_by([&](const app::CommandLine& given) {
    const auto flags = app::open_defaults(given, options, device, fixed_shapes, excluded);
    options.on_by_default = app::describe_defaults(device, flags);
    app::CommandLine::FlagValues values;
    for (const auto& flag : flags) values.emplace_back(flag.flag, flag.value);
    return values;
  });
  words.insert(words.end(), {"--device", "cpu"});  // whose own defaults are none
  REQUIRE(looptorch::testing::parse_words(line, words));
  return options;
}

}  // namespace

TEST_CASE("a card gets the precision that it computes fast: fp16 before Ampere, then bf16 with TF32") {
  const OpenSettings numbers{.precision = true, .tf32 = true};
  for (const Capability old : {Capability{5, 2}, Capability{6, 1}, Capability{7, 0}, Capability{7, 5}})
    CHECK(on(card(old), numbers) == "fp16");
  for (const Capability recent : {Capability{8, 0}, Capability{8, 9}, Capability{9, 0}, Capability{12, 0}})
    CHECK(on(card(recent), numbers) == "bf16 tf32");
  CHECK(on(card({7, 5}), {.precision = true, .fp16 = false}).empty());
  CHECK(on(card({9, 0}), {.precision = true, .fp16 = false}) == "bf16");
}

TEST_CASE("a precision that was given is meant as it stands, and TF32 does not join it") {
  CHECK(on(card({9, 0}), {.tf32 = true}).empty());
  CHECK(on(card({7, 5}), {.tf32 = true}).empty());
}

TEST_CASE("cuDNN searches where all batches have one shape") {
  CHECK(on(card({6, 1}), {.cudnn_benchmark = true, .fixed_shapes = true}) == "cudnn-benchmark");
  CHECK(on(card({6, 1}), {.cudnn_benchmark = true}).empty());
  CHECK(on(card({6, 1}), {.fixed_shapes = true}).empty());
}

TEST_CASE("workers are one less than the cores, at most 6, and never fewer than before") {
  const auto workers = [](std::int64_t cores, std::int64_t usual = 2) {
    return on(card({8, 0}, cores), {.workers = true, .usual_workers = usual});
  };
  CHECK(workers(1).empty());
  CHECK(workers(2).empty());
  CHECK(workers(3).empty());
  CHECK(workers(4) == "workers 3");
  CHECK(workers(6) == "workers 5");
  CHECK(workers(7) == "workers 6");
  CHECK(workers(64) == "workers 6");
  CHECK(workers(64, 8).empty());
  CHECK(on(card({8, 0}, 64), {}).empty());
}

TEST_CASE("a step is retried when memory runs out, on one process and where the program can") {
  CHECK(on(card({6, 1}), {.retry_on_oom = true}) == "retry-on-oom");
  auto of_two = card({6, 1});
  of_two.processes = 2;
  CHECK(on(of_two, {.retry_on_oom = true}).empty());
  CHECK_FALSE(parsed(card({6, 1}), {"--no-retry-on-oom"}).retry_on_oom);
  CHECK_FALSE(parsed(card({6, 1}), {}, true, {.retry_on_oom = true}).retry_on_oom);
  CHECK(parsed({.cores = 4}, {"--retry-on-oom"}).retry_on_oom);
}

TEST_CASE("a CPU and accelerators of other kinds stay as they are") {
  CHECK(on({.cores = 64}).empty());
  CHECK(app::describe_defaults({.cores = 64}, {}).empty());
  CHECK_FALSE(app::facts_of(at::kCPU, 8, {}, [] { return app::CudaFacts{}; }).capability);
}

TEST_CASE("what is known of a card comes from the driver, and cores are shared out") {
  const app::CudaMachine machine{.driver = 13000, .gpus = {{"Tesla T4", {7, 5}}, {"A100", {8, 0}}}};
  const app::CudaQuery query = [&] { return app::CudaFacts{std::nullopt, machine}; };
  const auto facts = app::facts_of({at::kCUDA, 1}, 12, {.size = 4, .local_size = 2}, query);
  CHECK(facts.name == "cuda:1 (A100)");
  CHECK(facts.capability == Capability{8, 0});
  CHECK((facts.cores == 6 && facts.processes == 4));
  CHECK(app::facts_of(at::kCUDA, 12, {}, query).name == "cuda:0 (Tesla T4)");
  CHECK_FALSE(app::facts_of({at::kCUDA, 2}, 12, {}, query).capability);
  CHECK(app::facts_of(at::kCPU, 0, {.size = 4, .local_size = 4}, query).cores == 1);
}

TEST_CASE("flags that are on by default are set as if they were given, and one line says which") {
  const auto hopper = parsed(card({9, 0}), {});
  CHECK(hopper.precision == Precision::bf16);
  CHECK(hopper.tf32 == true);
  CHECK(hopper.cudnn_benchmark == true);
  CHECK(hopper.workers == 6);
  CHECK(hopper.on_by_default ==
        "on by default on cuda:0 (GPU): --bf16 (off: --fp32), --tf32 (off: --no-tf32), --cudnn-benchmark "
        "(off: --no-cudnn-benchmark), --workers 6, --retry-on-oom (off: --no-retry-on-oom)");
  CHECK(hopper.retry_on_oom);
  // The file that repeats the run has them, on any device.
  for (const auto* line : {"\nbf16=true\n", "\ntf32=true\n", "\nworkers=6\n", "\nretry-on-oom=true\n"})
    CHECK_THAT(hopper.config, Catch::Contains(line));
  const auto turing = parsed(card({7, 5}), {"--workers", "1"}, /*fixed_shapes=*/false);
  CHECK(turing.precision == Precision::fp16);
  CHECK_FALSE(turing.tf32);
  CHECK(turing.workers == 1);
  CHECK(turing.on_by_default ==
        "on by default on cuda:0 (GPU): --fp16 (off: --fp32), --retry-on-oom (off: --no-retry-on-oom)");
}

TEST_CASE("flags that are given count, whatever the device") {
  const auto plain = parsed(card({9, 0}), {"--fp32"});
  CHECK(plain.precision == Precision::fp32);
  CHECK_FALSE(plain.tf32);
  CHECK(parsed(card({9, 0}), {"--fp16"}).precision == Precision::fp16);
  CHECK(parsed(card({7, 5}), {"--mixed-precision"}).precision == Precision::mixed);
  CHECK_FALSE(parsed(card({9, 0}), {"--bf16"}).tf32);
  CHECK(parsed(card({9, 0}), {"--no-tf32"}).tf32 == false);
  CHECK(parsed(card({9, 0}), {"--no-cudnn-benchmark"}).cudnn_benchmark == false);
  CHECK_FALSE(parsed(card({9, 0}), {"--capture"}).cudnn_benchmark);  // a graph cannot hold a search
  const auto own = parsed(card({9, 0}), {}, true, {.precision = true});
  CHECK(own.precision == Precision::fp32);
  CHECK_FALSE(own.tf32);
  CHECK(parsed(card({7, 5}), {}, true, {.fp16 = true}).precision == Precision::fp32);
}

TEST_CASE("on a CPU nothing is on by default, and nothing is said") {
  const auto options = parsed({.cores = 64}, {});
  CHECK(options.precision == Precision::fp32);
  CHECK_FALSE(options.tf32);
  CHECK_FALSE(options.cudnn_benchmark);
  CHECK(options.workers == 2);
  CHECK(options.on_by_default.empty());
}
