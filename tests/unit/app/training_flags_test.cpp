// SPDX-License-Identifier: MIT
//
// Tests app: run_log, training_flags
#include "support/precompiled.hpp"

#include <looptorch/app/run_log.hpp>
#include <looptorch/app/training_flags.hpp>

#include "support/parse_words.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::app::add_training_flags, looptorch::app::CommandLine, looptorch::app::Precision,
    looptorch::app::profile_policy, looptorch::app::TrainingFlag, looptorch::app::TrainingFlags,
    looptorch::app::TrainingOptions;

namespace {

TrainingOptions parsed(std::vector<std::string> words, TrainingOptions options = {},
                       const TrainingFlags& flags = {}) {
  CommandLine line("program", "");
  add_training_flags(line, options, flags);
  const bool runs = looptorch::testing::parse_words(line, std::move(words));
  REQUIRE(runs);
  return options;
}

std::string help_of(TrainingOptions options, const TrainingFlags& flags) {
  CommandLine line("program", "");
  add_training_flags(line, options, flags);
  return line.help();
}

}  // namespace

TEST_CASE("Every training flag reaches its field") {
  const auto options = parsed({"--epochs",
                               "3",
                               "--max-steps",
                               "40",
                               "--quick",
                               "--batch-size",
                               "5",
                               "--gradient-accumulation",
                               "6",
                               "--learning-rate",
                               "0.5",
                               "--warmup-steps",
                               "7",
                               "--bf16",
                               "--no-tf32",
                               "--cudnn-benchmark",
                               "--gradient-checkpointing",
                               "--flush-every",
                               "12",
                               "--prefetch",
                               "13",
                               "--memory",
                               "--preflight",
                               "--memory-cap",
                               "3.5",
                               "--device",
                               "cpu",
                               "--workers",
                               "9",
                               "--seed",
                               "10",
                               "--cache",
                               "kept",
                               "--snapshot-every",
                               "11",
                               "--resume-changed",
                               "--resume",
                               "auto",
                               "--autopsy",
                               "--replay",
                               "kept windows",
                               "--profile",
                               "10-15",
                               "--histograms",
                               "--on-bad-audio",
                               "stop"});
  CHECK(options.epochs == 3);
  CHECK(options.max_steps == 40);
  CHECK(options.quick);
  CHECK(options.batch_size == 5);
  CHECK(options.gradient_accumulation == 6);
  CHECK(options.learning_rate == 0.5);
  CHECK(options.warmup_steps == 7);
  CHECK(options.precision == Precision::bf16);
  CHECK(options.tf32 == false);
  CHECK(options.cudnn_benchmark == true);
  CHECK(options.gradient_checkpointing);
  CHECK(options.flush_every == 12);
  CHECK(options.prefetch == 13);
  CHECK(options.memory);
  CHECK(options.preflight);
  CHECK(options.memory_cap == 3.5);
  CHECK(options.device == "cpu");
  CHECK(options.workers == 9);
  CHECK(options.seed == 10);
  CHECK(options.cache == "kept");
  CHECK(options.snapshot_every == 11);
  CHECK(options.resume == "auto");
  CHECK(options.resume_changed);
  CHECK(options.autopsy);
  CHECK(options.histograms);
  CHECK(options.replay == "kept windows");
  CHECK(options.profiled_steps() == std::pair<std::int64_t, std::int64_t>(10, 15));
  CHECK(profile_policy(options, "out").flag);
  CHECK(profile_policy(options, "out").policy.folder == "out");
  CHECK(profile_policy(options, "out").policy.last == 15);
  CHECK(options.autopsy_policy("out").policy.folder == "out/bad-windows");
  CHECK(options.on_bad_audio == "stop");
}

TEST_CASE("Steps to trace are two numbers, or one") {
  CHECK_FALSE(profile_policy(parsed({}), "out").flag);
  CHECK(parsed({"--profile", "12"}).profiled_steps() == std::pair<std::int64_t, std::int64_t>(12, 12));
  const std::string takes = "--profile takes the first and the last step, as in 10-15, or one: ";
  CHECK_THROWS_WITH(parsed({"--profile", "5-4"}), takes + "4 is less than 5");
  CHECK_THROWS_WITH(parsed({"--profile", "0-4"}), takes + "0 is less than 1");
  CHECK_THROWS_WITH(parsed({"--profile", "1-x"}), takes + "\"x\" is not an integer");
  CHECK_THROWS_WITH(parsed({"--profile=-3"}), takes + "\"\" is not an integer");
}

TEST_CASE("The spellings of other projects' scripts are accepted") {
  const auto options = parsed({"--num_epochs", "3", "--batch_size", "5", "--gradient_accumulation_steps", "6",
                               "--mixed_precision", "--dataloader_num_workers", "9"});
  CHECK(options.epochs == 3);
  CHECK(options.batch_size == 5);
  CHECK(options.gradient_accumulation == 6);
  CHECK(options.precision == Precision::mixed);
  CHECK(options.workers == 9);
  const auto others = parsed({"--num-train-epochs=4", "--per_device_train_batch_size=2"});
  CHECK(others.epochs == 4);
  CHECK(others.batch_size == 2);
}

TEST_CASE("One precision can be asked for, and the defaults of a program can be switched off") {
  CHECK(parsed({}).precision == Precision::fp32);
  CHECK(parsed({"--fp16"}).precision == Precision::fp16);
  CHECK(parsed({"--fp32"}, {.precision = Precision::mixed}).precision == Precision::fp32);
  CHECK_THROWS_WITH(parsed({"--fp16", "--bf16"}), "--fp16 and --bf16 exclude each other: give one of them");
  CHECK_THROWS_WITH(parsed({"--mixed_precision", "--fp32"}),
                    "--mixed-precision and --fp32 exclude each other: give one of them");
  CHECK_THAT(help_of({.precision = Precision::bf16}, {}), Contains("CPUs with AMX [default]\n"));
  const TrainingOptions defaults{.gradient_checkpointing = true, .memory = true};
  const auto options = parsed({"--no-gradient-checkpointing", "--no_memory"}, defaults);
  CHECK_FALSE(options.gradient_checkpointing);
  CHECK_FALSE(options.memory);
}

TEST_CASE("A program chooses defaults, flags and their help") {
  const TrainingOptions defaults{.epochs = 12, .workers = 3};
  const auto all = help_of(defaults, {});
  CHECK_THAT(all, Contains("--epochs N") && Contains("[12]") && Contains("--workers N") && Contains("[3]"));
  CHECK_THAT(all, !Contains("_"));

  const auto some = help_of(defaults, {.without = {TrainingFlag::cache, TrainingFlag::learning_rate},
                                       .help = {{TrainingFlag::epochs, "rounds"}}});
  CHECK_THAT(some, !Contains("--cache") && !Contains("--learning-rate") && Contains("--warmup-steps"));
  CHECK_THAT(some, Contains("rounds [12]") && !Contains("passes over"));

  const auto few = help_of(defaults, {.only = {TrainingFlag::device, TrainingFlag::workers}});
  CHECK_THAT(few, Contains("--device NAME") && Contains("--workers N") && !Contains("--epochs"));
  CHECK(parsed({"--workers", "1"}, defaults, {.only = {TrainingFlag::workers}}).epochs == 12);
}

TEST_CASE("Training flags refuse what no run can have") {
  CHECK_THROWS_WITH(parsed({"--epochs", "0"}), "--epochs: 0 is less than 1");
  CHECK_THROWS_WITH(parsed({"--gradient_accumulation_steps", "0"}),
                    "--gradient-accumulation: 0 is less than 1");
  CHECK_THROWS_WITH(parsed({"--learning-rate", "0"}), "--learning-rate: 0 is not above 0");
  CHECK_THROWS_WITH(parsed({"--on-bad-audio", "wait"}), "--on-bad-audio: \"wait\" is not skip|stop");
  CHECK_THROWS_WITH(parsed({"--flush-every", "-1"}), "--flush-every: -1 is less than 0");
  CHECK_THROWS_WITH(parsed({"--prefetch", "-1"}), "--prefetch: -1 is less than 0");
  CHECK_THROWS_WITH(parsed({"--gradient", "2"}),
                    Contains("--gradient-accumulation and --gradient-checkpointing"));
}

TEST_CASE("The flag of the report keeps all flags for it, whatever a preset assigns before") {
  const auto options = parsed({"--epochs", "3", "--bf16"});
  CHECK(options.report);
  CHECK(options.program == "program");
  using Setting = std::pair<std::string, std::string>;
  for (const auto& setting : {Setting{"epochs", "3"}, Setting{"precision", "bf16"}, Setting{"report", "yes"}})
    CHECK(std::count(options.settings.begin(), options.settings.end(), setting) == 1);
  CHECK_FALSE(parsed({"--no-report"}).report);
  CHECK(parsed({}, {}, {.without = {TrainingFlag::report}}).settings.empty());
}
