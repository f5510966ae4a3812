// SPDX-License-Identifier: MIT
//
// Tests app/flags: config_file
#include "support/precompiled.hpp"

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/flags/config_file.hpp>
#include <looptorch/app/training_flags.hpp>
#include <looptorch/base/random.hpp>

#include "support/parse_words.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::app::CommandLine, looptorch::app::Precision, looptorch::app::TrainingOptions;

namespace {

struct Program {
  TrainingOptions training;
  std::filesystem::path output = "run";
  std::string recipe = "slow", optimizer = "adamw";
  std::optional<double> share;
  std::vector<std::string> parts;
  std::string config;  // what it would write

  void parse(std::vector<std::string> words) {
    CommandLine line("program", "");
    line.required("output", "DIR", output, "");
    line.preset("recipe", recipe, {"slow", "fast"}, "",
                [&](const std::string& name) { training.learning_rate = name == "fast" ? 0.5 : 0.25; });
    line.choice("optimizer", optimizer, {"adamw", "adafactor"}, "");
    line.option("share", "X", share, "");
    line.option("part", "NAME", parts, "");
    add_training_flags(line, training, {});
    const bool runs = looptorch::testing::parse_words(line, std::move(words));
    REQUIRE(runs);
    config = training.config;
  }
};

Program parsed(const std::vector<std::string>& words) {
  Program program;
  program.parse(words);
  return program;
}

struct ConfigFile {
  looptorch::testing::TemporaryFolder folder;
  std::string write(const std::string& text, const std::string& name = "run.conf") const {
    std::ofstream(folder.path() / name) << text;
    return (folder.path() / name).string();
  }
};

}  // namespace

TEST_CASE("config file: lines of KEY=VALUE, with comments, quotes, and the spellings of the command line") {
  const ConfigFile file;
  const auto program =
      parsed({"--config", file.write("# a recipe\n\n  output = \"my run\"  \nbatch_size=5\r\n"
                                     "--per_device_train_batch_size=6\nlr = 0.125\nquick\n"
                                     "report=False\nshare=0.1\nfp16=true\nresume='a=b'")});
  CHECK(program.output == "my run");
  CHECK(program.training.batch_size == 6);
  CHECK(program.training.learning_rate == 0.125);
  CHECK(program.training.quick);
  CHECK_FALSE(program.training.report);
  CHECK(program.share == 0.1);
  CHECK(program.training.precision == Precision::fp16);
  CHECK(program.training.resume == "a=b");
}

TEST_CASE("config file: a JSON object") {
  const ConfigFile file;
  const auto program = parsed({"--config", file.write(R"( {"output": "j", "per_device_train_batch_size": 7,
      "learning_rate": 1e-5, "bf16": true, "report": false, "cache": null, "optim": "adafactor"})",
                                                      "run.json")});
  CHECK(program.output == "j");
  CHECK(program.training.batch_size == 7);
  CHECK(program.training.learning_rate == 1e-5);
  CHECK(program.training.precision == Precision::bf16);
  CHECK_FALSE(program.training.report);
  CHECK(program.optimizer == "adafactor");
}

TEST_CASE("config file: a byte-order mark is skipped, and numbers of JSON are taken as they are written") {
  const ConfigFile file;
  const std::string mark = "\xEF\xBB\xBF";
  CHECK(parsed({"--config", file.write(mark + "output=a\nbatch-size=5\n", "1")}).training.batch_size == 5);
  const auto json =
      mark + R"({"output": "4\" 5", "batch_size": 7, "cache": null, "share": 2.5E-1, "lr": 1e-5})";
  const auto program = parsed({"--config", file.write(json, "2")});
  CHECK(program.output == "4\" 5");
  CHECK(program.training.batch_size == 7);
  CHECK(program.share == 0.25);
  CHECK(program.training.learning_rate == 1e-5);
  CHECK_THROWS_WITH(parsed({"--output=x", "--config", file.write("{\"seed\": 12345678901234567890}", "3")}),
                    Contains("seed: --seed: ") && Contains("12345678901234567890"));
}

TEST_CASE("config file: the command line counts first, and a later file before an earlier one") {
  const ConfigFile file;
  const auto first = file.write("output=a\nbatch-size=5\nfp16\nepochs=3\nreport=true\nrecipe=fast\n", "1");
  const auto second = file.write("batch-size=6\nepochs=4\n", "2");
  const auto program =
      parsed({"--batch_size", "9", "--config", first, "--bf16", "--no-report", "--config", second});
  CHECK(program.training.batch_size == 9);
  CHECK(program.training.epochs == 4);
  CHECK(program.training.precision == Precision::bf16);
  CHECK_FALSE(program.training.report);
  CHECK(program.training.learning_rate == 0.5);
  CHECK(parsed({"--config", first, "--learning-rate", "0.75"}).training.learning_rate == 0.75);
  CHECK(parsed({"--config", first, "--recipe", "slow"}).training.learning_rate == 0.25);
}

TEST_CASE("config file: a later file replaces a flag's whole list, and another flag of its group") {
  const ConfigFile file;
  const auto first = file.write("output=a\nbf16\npart=one\npart=two\n", "1");
  const auto second = file.write("fp32\npart=three\npart=four\n", "2");
  CHECK(parsed({"--config", first}).parts == std::vector<std::string>{"one", "two"});
  const auto program = parsed({"--config", first, "--config", second});
  CHECK(program.training.precision == Precision::fp32);
  CHECK(program.parts == std::vector<std::string>{"three", "four"});
  CHECK(parsed({"--config", first, "--config", second, "--part", "five"}).parts ==
        std::vector<std::string>{"five"});
}

TEST_CASE("config file: what a run writes gives the same settings again") {
  const ConfigFile file;
  const auto given = parsed({"--output", " my \"run\"", "--lr", "1.23456789012345e-05", "--mixed_precision",
                             "fp16", "--no-report", "--recipe", "fast", "--optim", "adafactor", "--share=0.3",
                             "--tf32", "False", "--save_steps", "100", "--num_workers", "3"});
  CHECK_THAT(given.config,
             Contains("# program --config FILE") && Contains("\nlearning-rate=1.23456789012345e-05\n") &&
                 Contains("\nfp16=true\n") && Contains("\nreport=false\n") && Contains("\ntf32=false\n") &&
                 Contains("\nsnapshot-every=100\n") && Contains("\n# seed=1\n") &&
                 Contains("\nrecipe=fast\n") && !Contains("\nepochs"));
  const auto again = parsed({"--config", file.write(given.config)});
  CHECK(again.config == given.config);
  CHECK(again.output == given.output);
  CHECK(again.training.learning_rate == given.training.learning_rate);
  CHECK(again.training.tf32 == false);
  CHECK(again.training.precision == Precision::fp16);
  CHECK(again.optimizer == "adafactor");
  CHECK(again.share == 0.3);
  CHECK(again.training.settings == given.training.settings);
}

TEST_CASE("config file: every text comes back as it was written") {
  const auto read_back = [](const std::string& value) {
    const auto text = looptorch::app::detail::config_line("part", value);
    const auto words = looptorch::app::detail::ConfigLines("run.conf", text).read();
    return words.size() == 1 ? words.front().word : std::to_string(words.size()) + " words";
  };
  for (const std::string value :
       {"",       " ",      "\t",         "\ttab",     "tab\t",      "\rreturn", "return\r",
        "\nline", "line\n", "two\nlines", "\"",        "\"quoted\"", "'",        "'a' and 'b'",
        "$'a'",   "$'",     "$''",        "$'a\\nb'",  "C:\\n",      "\\",       "a\\\n'b",
        "#",      "a=b",    "--part=x",   "{\"a\": 1}"})
    CHECK(read_back(value) == "--part=" + value);
  looptorch::SplitMix64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string value;
    for (auto left = random.below(7); left > 0; --left) value += " \t\r\n\"'$\\#=n-a"[random.below(13)];
    if (read_back(value) != "--part=" + value) FAIL("lost: " << looptorch::app::detail::escaped(value));
  }
  const ConfigFile file;
  const auto given = parsed({"--output=\tmy\nrun\r", "--part=a\nb", "--part= c"});
  const auto again = parsed({"--config", file.write(given.config)});
  CHECK(again.output == given.output);
  CHECK(again.parts == given.parts);
  CHECK(again.config == given.config);
}

TEST_CASE("config file: mistakes name the file and the line or key") {
  const ConfigFile file;
  const auto refused = [&](const std::string& text, const std::string& sentence) {
    CHECK_THROWS_WITH(parsed({"--output", "x", "--config", file.write(text)}), Contains(sentence));
  };
  refused("\n\nbatch-sise=5\n", "run.conf:3: unknown option --batch-sise=5; did you mean --batch-size?");
  refused("seed=x\n", "run.conf:1: --seed: \"x\" is not an integer");
  refused("seed\n", "run.conf:1: --seed needs a value");
  refused("# yaml\nlearning_rate: 1e-4\n",
          "run.conf:2: \"learning_rate: 1e-4\" is not KEY=VALUE; YAML is not read");
  refused("---\n", "run.conf:1: \"---\" is not KEY=VALUE; YAML is not read");
  refused("two words\n", "run.conf:1: \"two words\" is not KEY=VALUE");
  refused("=5\n", "has no name before the =");
  refused("save_total_limit=2\n", "run.conf:1: unknown option --save_total_limit=2: old snapshots");
  refused("config=other\n", "run.conf:1: a file of flags names no other one");
  refused("fp16\nbf16\n", "--fp16 and --bf16 exclude each other");
  refused("{\"seed\": 1.5}", "run.conf: seed: --seed: \"1.5\" is not an integer");
  refused("{\"seed\": [1]}", "run.conf: seed is an array; a flag's value is text, a number, true or false");
  refused("{\"seed\": {}}", "run.conf: seed is an object");
  refused("{\"seed\": 1,}", "run.conf: ");
  CHECK_THROWS_AS(parsed({"--output", "x", "--config", file.write("{\"seed\": ")}),
                  looptorch::app::CommandLineError);
  CHECK_THROWS_WITH(parsed({"--output", "x", "--config", "/nowhere/run.conf"}),
                    Contains("/nowhere/run.conf: cannot open"));
  CHECK_THROWS_WITH(parsed({"--config", file.write("seed=1")}), "--output is missing");
  CHECK_THROWS_AS(parsed({"--output", "x", "--config", file.folder.path().string()}),
                  looptorch::app::CommandLineError);
}
