// SPDX-License-Identifier: MIT
//
// Tests app/flags: familiar_flags
#include "support/precompiled.hpp"

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flags/familiar_flags.hpp>
#include <looptorch/app/training_flags.hpp>

#include "support/parse_words.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::app::CommandLine, looptorch::app::Precision, looptorch::app::TrainingOptions;

namespace {

/// A program with the standard flags and those of the examples that others have, too.
struct Program {
  TrainingOptions training;
  std::filesystem::path output = "run", train;
  std::string optimizer = "adamw", best = "wer", recomputed = "none";
  bool chunking = false;
  std::int64_t validate_every = 0;

  void parse(std::vector<std::string> words) {
    CommandLine line("program", "");
    line.option("output", "DIR", output, "");
    line.option("train", "FILE", train, "");
    line.choice("optimizer", optimizer, {"adamw", "adamw8bit", "adafactor"}, "");
    line.choice("best", best, {"wer", "loss"}, "");
    line.choice("recompute", recomputed, {"none", "all"}, "", "all");
    line.flag("no-recompute", recomputed, "none", "");
    line.toggle("chunking", chunking, "");
    line.option("validate-every", "STEPS", validate_every, "");
    add_training_flags(line, training, {});
    const bool runs = looptorch::testing::parse_words(line, std::move(words));
    REQUIRE(runs);
  }
};

Program parsed(const std::vector<std::string>& words) {
  Program program;
  program.parse(words);
  return program;
}

}  // namespace

TEST_CASE("familiar flags: transformers' TrainingArguments are understood") {
  const auto program = parsed({"--output_dir",
                               "out",
                               "--per_device_train_batch_size",
                               "16",
                               "--gradient_accumulation_steps=2",
                               "--learning_rate",
                               "1e-5",
                               "--num_train_epochs",
                               "3",
                               "--max_steps",
                               "4000",
                               "--save_steps",
                               "1000",
                               "--eval_steps",
                               "500",
                               "--dataloader_num_workers",
                               "4",
                               "--dataloader_prefetch_factor",
                               "3",
                               "--optim",
                               "adamw_bnb_8bit",
                               "--fp16",
                               "True",
                               "--tf32",
                               "True",
                               "--gradient_checkpointing",
                               "True",
                               "--report_to",
                               "tensorboard",
                               "--resume_from_checkpoint",
                               "True",
                               "--train_file",
                               "train.csv",
                               "--use_cpu"});
  CHECK(program.output == "out");
  CHECK(program.train == "train.csv");
  CHECK(program.training.batch_size == 16);
  CHECK(program.training.gradient_accumulation == 2);
  CHECK(program.training.learning_rate == 1e-5);
  CHECK(program.training.epochs == 3);
  CHECK(program.training.max_steps == 4000);
  CHECK(program.training.snapshot_every == 1000);
  CHECK(program.validate_every == 500);
  CHECK(program.training.workers == 4);
  CHECK(program.training.prefetch == 3);
  CHECK(program.optimizer == "adamw8bit");
  CHECK(program.training.precision == Precision::fp16);
  CHECK(program.training.tf32 == true);
  CHECK(program.training.gradient_checkpointing);
  CHECK(program.training.report);
  CHECK(program.training.resume == "auto");
  CHECK(program.training.device == "cpu");
}

TEST_CASE("familiar flags: those of Accelerate, Lightning and scripts are understood") {
  CHECK(parsed({"--mixed_precision", "fp16"}).training.precision == Precision::fp16);
  CHECK(parsed({"--mixed_precision=bf16"}).training.precision == Precision::bf16);
  CHECK(parsed({"--mixed_precision", "no"}).training.precision == Precision::fp32);
  CHECK(parsed({"--mixed_precision"}).training.precision == Precision::mixed);
  CHECK(parsed({"--mixed_precision", "--epochs", "2"}).training.precision == Precision::mixed);
  const auto program =
      parsed({"--lr", "0.5", "--num_workers", "6", "--max_epochs", "7", "--accumulate_grad_batches", "8",
              "--use_chunking", "--report_to", "none", "--resume_from_checkpoint", "run/5"});
  CHECK(program.training.learning_rate == 0.5);
  CHECK(program.training.workers == 6);
  CHECK(program.training.epochs == 7);
  CHECK(program.training.gradient_accumulation == 8);
  CHECK(program.chunking);
  CHECK_FALSE(program.training.report);
  CHECK(program.training.resume == "run/5");
}

TEST_CASE("familiar flags: True and False after a flag without a value") {
  CHECK(parsed({"--chunking", "True"}).chunking);
  CHECK(parsed({"--chunking=true"}).chunking);
  CHECK_FALSE(parsed({"--chunking", "--chunking", "False"}).chunking);
  CHECK(parsed({"--recompute", "True"}).recomputed == "all");
  CHECK(parsed({"--recompute", "--recompute=False"}).recomputed == "none");
  CHECK(parsed({"--no_cuda", "False"}).training.device == "auto");
  CHECK(parsed({"--no_cuda=True"}).training.device == "cpu");
  CHECK_THROWS_WITH(parsed({"--no_cuda=maybe"}), "--no_cuda=maybe: \"maybe\" is not true|false");
  CHECK(parsed({"--fp16", "False"}).training.precision == Precision::fp32);
  CHECK_THROWS_WITH(parsed({"--bf16", "False"}), "--bf16 takes no value; leave it out for \"no\"");
  CHECK_THROWS_WITH(parsed({"--chunking=1"}), "--chunking takes no value: --chunking=1");
}

TEST_CASE("familiar flags: without an equal, the sentence says what to write") {
  CHECK_THROWS_WITH(parsed({"--save_total_limit", "2"}),
                    "unknown option --save_total_limit: old snapshots are removed by themselves");
  CHECK_THROWS_WITH(parsed({"--pin_memory"}), Contains("unknown option --pin_memory: batches are pinned"));
  CHECK_THROWS_WITH(parsed({"--data_dir", "d"}), Contains("--train, --validation and --test"));
  CHECK_THROWS_WITH(parsed({"--num_processes", "2"}), Contains("torchrun --nproc-per-node"));
  CHECK_THROWS_WITH(parsed({"--optim", "lion"}), Contains("--optimizer: \"lion\" is not adamw|"));
  CHECK_THROWS_WITH(parsed({"--wd", "0"}),
                    Contains("unknown option --wd"));  // this program has no --weight-decay
  CHECK_THROWS_WITH(parsed({"--per_device_train_batch_size", "x"}),
                    Contains("--batch-size: \"x\" is not an integer"));
  CHECK_THROWS_WITH(parsed({"--per_device_train_batch_size"}), "--batch-size needs a value");
}

TEST_CASE("familiar flags: a program's own flag of that name comes first, and no row stands twice") {
  std::int64_t epochs = 0, theirs = 0;
  CommandLine line("program", "");
  line.option("epochs", "N", epochs, "").option("num-epochs", "N", theirs, "");
  std::string words[] = {"program", "--num_epochs", "5"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  REQUIRE(line.parse(3, argv));
  CHECK(theirs == 5);
  CHECK(epochs == 0);

  std::set<std::string> rows;
  for (const auto& flag : looptorch::app::detail::kFamiliarFlags)
    CHECK(rows.insert(std::string(flag.theirs) + ">" + std::string(flag.ours)).second);
  for (const auto& flag : looptorch::app::detail::kFlagsWithoutEqual)
    CHECK(rows.insert(std::string(flag.theirs) + ">" + std::string(flag.where)).second);
}
