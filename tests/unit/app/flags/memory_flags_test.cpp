// SPDX-License-Identifier: MIT
// The flags of a program as words of a preflight and of WatchMemory.
#include "support/precompiled.hpp"

#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"

#include <string>

namespace app = looptorch::app;
namespace lt = looptorch;
using Catch::Matchers::Contains;
using Catch::Matchers::Matches;

namespace {

at::Tensor square(torch::nn::Linear& net, const at::Tensor& x) { return net(x).relu().pow(2).mean(); }

}  // namespace

TEST_CASE(
    "app: memory flags are a preflight's remedies as they are given, and those that are missing are not") {
  const app::MemoryFlags flags{.batch = "--batch-frames", .least_batch = 3, .recomputation = ""};
  const auto remedies = flags.remedies();
  CHECK(remedies.least_batch == 3);
  CHECK(remedies.batches(600, 4) == "--batch-frames 600 --gradient-accumulation 4");
  CHECK(remedies.recomputation("Checkpointed<Block>{}").empty());
  CHECK(remedies.bf16 == "--bf16");
  CHECK_FALSE(remedies.frozen);
  CHECK(app::MemoryFlags().remedies().recomputation("Checkpointed<Block>{}") == "--gradient-checkpointing");
  CHECK_FALSE(app::MemoryFlags{.batch = ""}.remedies().batches);
}

TEST_CASE("app: memory flags are what WatchMemory says of a peak's parts") {
  const auto words = app::MemoryFlags().of_parts();
  CHECK(words.activations ==
        "a smaller --batch-size with a larger --gradient-accumulation, --gradient-checkpointing, --bf16");
  CHECK((words.fragments == "give --flush-every 50" && words.long_inputs == "limit the longest input"));
  CHECK(app::MemoryFlags{.batch = ""}.of_parts().activations == "--gradient-checkpointing, --bf16");
  CHECK((words.optimizer.empty() && words.gradients.empty() && words.averages.empty()));
  const auto more =
      app::MemoryFlags{.optimizer = "--optimizer adafactor", .frozen = "--freeze-encoder"}.of_parts();
  CHECK(more.optimizer == "--optimizer adafactor or --freeze-encoder");
  CHECK(more.gradients == "--freeze-encoder");
}

TEST_CASE("app: a run that does not fit ends with flags that were tried and fit") {
  torch::nn::Linear net(64, 256);
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, square, lt::Accumulate<2>{});
  const auto hardest = [] { return std::vector{at::ones({4096, 64})}; };
  const double needed = static_cast<double>(lt::preflight(trainer, hardest(), {.cap = 1'000'000'000}).needed);
  const looptorch::testing::CapturedStderr said;
  const app::TrainingOptions options{.preflight = true, .memory_cap = needed / 1e9};
  CHECK_THROWS_WITH(app::check_memory(options, trainer, hardest, {.recomputation = ""}),
                    Matches("the run does not fit into .*: give --batch-size [0-9]+ --gradient-accumulation "
                            "[0-9]+, or leave out --preflight"));
  CHECK_THAT(said.text(), Contains("): --batch-size ") && !Contains("Accumulate<"));
}

TEST_CASE("app: a precision that is a remedy stands instead of one that is given") {
  const app::MemoryFlags flags;
  CHECK(app::beside_given(flags, {}).bf16 == "--bf16");
  CHECK(app::beside_given(flags, {.fp32_given = true}).bf16 == "--bf16 (instead of --fp32)");
  CHECK(app::beside_given({.bf16 = ""}, {.fp32_given = true}).bf16.empty());

  torch::nn::Linear net(64, 256);
  lt::FusedAdam adam(net->parameters(), lt::FusedAdamOptions{});
  lt::Trainer trainer(net, adam, square);
  const auto hardest = [] { return std::vector{at::ones({64, 64})}; };
  const looptorch::testing::CapturedStderr said;
  CHECK_THROWS_AS(app::check_memory({.fp32_given = true, .preflight = true, .memory_cap = 1e-6}, trainer,
                                    hardest, {.batch = "", .recomputation = ""}),
                  app::DoesNotFit);
  CHECK_THAT(said.text(), Contains("--bf16 (instead of --fp32)"));
}
