// SPDX-License-Identifier: MIT
// Tests app/flags: command_words, flag_table, flag_values
#include "support/precompiled.hpp"

#include <looptorch/app/command_line.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::app::CommandLine, looptorch::app::CommandLineError;

namespace {

/// A program with each kind of flag.
struct Program {
  Program() {
    line.required("model", "DIR", model, "the model");
    line.option("batch-size", "N", batch_size, "clips at once", {.min = 1, .max = 64});
    line.option("learning-rate", "X", learning_rate, "step width", {.above = 0});
    line.flag("bf16", bf16, true, "bfloat16").flag("fp32", bf16, false, "float32");
    line.choice("on-bad-audio", on_bad_audio, {"skip", "stop"}, "what then");
    line.choice("recompute", recompute, {"none", "encoder", "all"}, "layers", "all");
    line.toggle("shuffle", shuffle, "another order each time").toggle("tf32", tf32, "fewer bits");
    line.option("prefetch", "N", prefetch, "ahead", {.min = 0});
    line.flag("json", format, "json", "objects").one_of("format");
    line.flag("text", format, "text", "sentences").one_of("format").alias("plain");
    line.positional("FILE", files, "audio");
  }

  bool parse(std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return line.parse(static_cast<int>(words.size()), argv.data());
  }

  std::filesystem::path model;
  std::int64_t batch_size = 8;
  double learning_rate = 1e-4;
  bool bf16 = false;
  std::string on_bad_audio = "skip", recompute = "none", format = "text";
  bool shuffle = true;
  std::optional<bool> tf32;
  std::optional<std::int64_t> prefetch;
  std::vector<std::string> files;
  CommandLine line{"program", "Does things."};
};

void refuses(std::vector<std::string> words, const std::string& message) {
  CAPTURE(words);
  REQUIRE_THROWS_AS(Program().parse(words), CommandLineError);
  REQUIRE_THROWS_WITH(Program().parse(words), Contains(message));
}

}  // namespace

TEST_CASE("command line: values reach their variables, the others keep their defaults") {
  Program program;
  REQUIRE(program.parse({"a.wav", "--model", "m", "--learning-rate=3e-5", "--bf16", "b.wav"}));
  CHECK(program.model == "m");
  CHECK(program.learning_rate == 3e-5);
  CHECK(program.bf16);
  CHECK(program.batch_size == 8);
  CHECK(program.files == std::vector<std::string>{"a.wav", "b.wav"});
}

TEST_CASE("command line: of two flags on one variable the last one wins, and -- ends the flags") {
  Program program;
  REQUIRE(program.parse({"--model=m", "--bf16", "--fp32", "--", "--batch-size"}));
  CHECK_FALSE(program.bf16);
  CHECK(program.files == std::vector<std::string>{"--batch-size"});
}

TEST_CASE(
    "command line: a toggle has a --no-, of which the last one wins, and leaves an optional bool alone") {
  Program program;
  REQUIRE(program.parse({"--model=m", "a.wav"}));
  CHECK(program.shuffle);
  CHECK_FALSE(program.tf32.has_value());
  REQUIRE(program.parse({"--model=m", "--no-shuffle", "--tf32", "a.wav"}));
  CHECK_FALSE(program.shuffle);
  CHECK(program.tf32 == true);
  REQUIRE(program.parse({"--model=m", "--no-shuffle", "--shuffle", "--tf32", "--no_tf32", "a.wav"}));
  CHECK(program.shuffle);
  CHECK(program.tf32 == false);
  refuses({"--model=m", "--no-shuffle=yes", "a.wav"}, "--no-shuffle takes no value");
  refuses({"--model=m", "--no-bf16", "a.wav"}, "unknown option --no-bf16");
}

TEST_CASE("command line: two flags of one group are refused, and one of them may be repeated") {
  Program program;
  REQUIRE(program.parse({"--model=m", "--json", "--json", "--bf16", "--fp32", "a.wav"}));
  CHECK(program.format == "json");
  refuses({"--model=m", "--json", "--plain", "a.wav"},
          "--json and --text exclude each other: give one of them");
}

TEST_CASE("command line: an optional number is empty until it is given") {
  Program program;
  REQUIRE(program.parse({"--model=m", "a.wav"}));
  CHECK_FALSE(program.prefetch.has_value());
  CHECK_THAT(program.line.help(), Contains("ahead\n"));
  REQUIRE(program.parse({"--model=m", "--prefetch", "0", "a.wav"}));
  CHECK(program.prefetch == 0);
  CHECK_THAT(program.line.help(), Contains("ahead [0]\n"));
  refuses({"--model=m", "--prefetch=-1", "a.wav"}, "--prefetch: -1 is less than 0");
}

TEST_CASE(
    "command line: a choice takes one of its values, and one that may stand alone leaves other words alone") {
  const auto parsed = [](std::vector<std::string> words) {
    Program program;
    words.insert(words.begin(), "--model=m");
    REQUIRE(program.parse(words));
    CHECK(program.files == std::vector<std::string>{"a.wav"});
    return program.on_bad_audio + " " + program.recompute;
  };
  CHECK(parsed({"a.wav"}) == "skip none");
  CHECK(parsed({"--on-bad-audio", "stop", "a.wav"}) == "stop none");
  CHECK(parsed({"--recompute", "a.wav"}) == "skip all");
  CHECK(parsed({"a.wav", "--recompute"}) == "skip all");
  CHECK(parsed({"a.wav", "--recompute", "encoder", "--on-bad-audio=skip"}) == "skip encoder");
  CHECK(parsed({"--recompute=encoder", "a.wav"}) == "skip encoder");
  CHECK(parsed({"--recompute", "--on-bad-audio", "stop", "a.wav"}) == "stop all");
  CHECK(parsed({"--recompute", "--recompute", "none", "a.wav"}) == "skip none");
  refuses({"--model=m", "--on-bad-audio", "ignore", "a.wav"}, "--on-bad-audio: \"ignore\" is not skip|stop");
  refuses({"--model=m", "--on-bad-audio=", "a.wav"}, "--on-bad-audio: \"\" is not skip|stop");
  refuses({"--model=m", "--recompute=some", "a.wav"}, "--recompute: \"some\" is not none|encoder|all");
}

TEST_CASE(
    "command line: an option with an implied value may stand alone, and takes the next word that is no flag") {
  const auto size_of = [](std::vector<std::string> words) {
    std::string size = "none";
    bool other = false;
    CommandLine line("program", "");
    line.option("fit", "SIZE", size, "of memory").implied("free").toggle("other", other, "");
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    REQUIRE(line.parse(static_cast<int>(argv.size()), argv.data()));
    CHECK_THAT(line.help(), Contains("--fit [SIZE]"));
    return size;
  };
  CHECK(size_of({}) == "none");
  CHECK(size_of({"--fit"}) == "free");
  CHECK(size_of({"--fit", "--other"}) == "free");
  CHECK(size_of({"--other", "--fit", "4GB"}) == "4GB");
  CHECK(size_of({"--fit=4GB", "--other"}) == "4GB");
}

TEST_CASE("command line: faults name the flag and the value") {
  refuses({"x"}, "--model is missing");
  refuses({"--model=", "x"}, "--model is empty");
  refuses({"--model", "", "x"}, "--model is empty");
  refuses({"--model", "m", "--model", "", "x"}, "--model is empty");
  refuses({"--model", "m"}, "no FILE given");
  refuses({"--model"}, "--model needs a value");
  refuses({"--model", "m", "--colour", "x"}, "unknown option --colour");
  refuses({"--model", "m", "-z", "x"}, "unknown option -z");
  refuses({"--bf16=yes", "x"}, "--bf16 takes no value");
  refuses({"--batch-size", "0", "x"}, "--batch-size: 0 is less than 1");
  refuses({"--batch-size", "65", "x"}, "--batch-size: 65 is more than 64");
  refuses({"--batch-size", "8x", "x"}, "--batch-size: \"8x\" is not an integer");
  refuses({"--batch-size", "1.5", "x"}, "--batch-size: \"1.5\" is not an integer");
  refuses({"--batch-size", "99999999999999999999", "x"}, "is not an integer");
  refuses({"--batch-size", "", "x"}, "--batch-size: \"\" is not an integer");
  refuses({"--learning-rate", "0", "x"}, "--learning-rate: 0 is not above 0");
  refuses({"--learning-rate", "nan", "x"}, "--learning-rate: \"nan\" is not a number");
}

TEST_CASE("command line: a program without positional arguments takes none") {
  CommandLine line("program", "");
  std::string program = "program", word = "word";
  std::vector<char*> argv{program.data(), word.data(), nullptr};
  CHECK_THROWS_WITH(line.parse(2, argv.data()), Contains("unexpected argument word"));
}

TEST_CASE("command line: of a required flag that is given twice the last value counts, empty or not") {
  Program program;
  REQUIRE(program.parse({"--model", "", "--model", "m", "x"}));
  CHECK(program.model == "m");
}

TEST_CASE("command line: help shows a default that no word can give") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double longest = kInfinity, least = -kInfinity, share = std::nan("");
  CommandLine line("program", "");
  line.option("longest", "S", longest, "").option("least", "S", least, "").option("share", "X", share, "");
  const auto help = line.help();
  for (const auto* text : {"[inf]", "[-inf]", "[nan]"}) CHECK_THAT(help, Contains(text));
}

TEST_CASE("command line: help shows every flag with its default") {
  const auto help = Program().line.help();
  for (const auto* text : {"usage: program --model DIR [options] FILE...",
                           "Does things.",
                           "--model DIR",
                           "(required)",
                           "--batch-size N",
                           "clips at once [8]",
                           "[0.0001]",
                           "--bf16",
                           "--fp32",
                           "--help",
                           "audio",
                           "--on-bad-audio skip|stop",
                           "what then [skip]",
                           "--recompute [none|encoder|all]",
                           "layers [none]",
                           "another order each time [default]",
                           "  --[no-]tf32 ",
                           "fewer bits\n",
                           "sentences [default]",
                           "objects\n",
                           "float32 [default]"}) {
    CHECK_THAT(help, Contains(text));
  }
  CHECK_THAT(help, !Contains("--no-tf32"));
}

TEST_CASE("command line: underscores and hyphens in a flag's name are the same, and values keep theirs") {
  Program program;
  REQUIRE(program.parse(
      {"--model=a_b", "--batch_size", "9", "--learning_rate=2", "--on_bad-audio", "stop", "a_b.wav"}));
  CHECK(program.model == "a_b");
  CHECK(program.batch_size == 9);
  CHECK(program.learning_rate == 2);
  CHECK(program.on_bad_audio == "stop");
  CHECK(program.files == std::vector<std::string>{"a_b.wav"});
  refuses({"--model=m", "--batch_size=0", "x"}, "--batch-size: 0 is less than 1");

  std::int64_t value = 0;
  CommandLine listed("program", "");
  listed.option("mel_bins", "N", value, "");
  CHECK_THAT(listed.help(), Contains("--mel-bins N") && !Contains("mel_bins"));
}

TEST_CASE("command line: an alias sets the flag before it, and help does not show it") {
  std::int64_t workers = 0, other = 0;
  CommandLine line("program", "");
  line.option("workers", "N", workers, "").alias("dataloader-num-workers").alias("threads");
  line.option("others", "N", other, "");
  const auto parse = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return line.parse(static_cast<int>(words.size()), argv.data());
  };
  REQUIRE(parse({"--dataloader_num_workers", "3"}));
  CHECK(workers == 3);
  REQUIRE(parse({"--threads=4", "--others", "1"}));
  CHECK(workers == 4);
  CHECK(other == 1);
  CHECK_THAT(line.help(), !Contains("threads"));
  CHECK_THROWS_WITH(parse({"--threads", "x"}), Contains("--workers: \"x\" is not an integer"));

  line.option("threads", "N", other, "");
  CHECK_THROWS_AS(parse({}), looptorch::UsageError);
  CHECK_THROWS_WITH(parse({}), "CommandLine: --threads is listed twice");
}

TEST_CASE("command line: a list that is given replaces its default, also from the file that repeats a run") {
  const looptorch::testing::TemporaryFolder folder;
  std::vector<std::string> layers;
  CommandLine line("program", "");
  line.option("layer", "NAME", layers, "").config_files();
  const auto parse = [&](std::vector<std::string> words) {
    layers = {"q", "v"};
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    REQUIRE(line.parse(static_cast<int>(words.size()), argv.data()));
    return layers;
  };
  using Layers = std::vector<std::string>;
  CHECK(parse({}) == Layers{"q", "v"});
  CHECK(parse({"--layer", "k", "--layer=o"}) == Layers{"k", "o"});
  std::ofstream(folder / "run.conf") << line.config_text();
  CHECK(parse({"--config", (folder / "run.conf").string()}) == Layers{"k", "o"});
}

TEST_CASE(
    "command line: a flag that is given by two names with two values is said, and the last one counts") {
  const looptorch::testing::CapturedStderr captured;
  const auto said = [&](std::vector<std::string> words) {
    Program program;
    words.insert(words.end(), {"--model", "m", "a.wav"});
    const auto before = captured.text().size();
    REQUIRE(program.parse(std::move(words)));
    return std::pair(program.batch_size, captured.text().substr(before));
  };
  using Said = std::pair<std::int64_t, std::string>;
  CHECK(said({"--batch-size", "8", "--per_device_train_batch_size=4"}) ==
        Said(4, "--batch-size 8 and --per_device_train_batch_size 4 are one flag: the last one counts\n"));
  CHECK(said({"--batch-size", "4", "--per_device_train_batch_size", "4"}) == Said(4, ""));
  CHECK(said({"--batch-size", "8", "--batch-size", "4"}) == Said(4, ""));
}

TEST_CASE(
    "command line: a name may be cut short while one flag is meant; wrong names come with the nearest") {
  Program program;
  REQUIRE(program.parse({"--mod=m", "--batch", "9", "x"}));
  CHECK(program.batch_size == 9);
  refuses({"--model=m", "--b", "9", "x"}, "--b is short for --batch-size and --bf16; write it out");
  refuses({"--model=m", "--bach-size=9", "x"}, "unknown option --bach-size=9; did you mean --batch-size?");
  refuses({"--model=m", "--=9", "x"}, "unknown option --=9");
}

TEST_CASE("command line: a preset sets the defaults of the other flags, wherever it stands") {
  struct Size {
    std::string preset = "small";
    std::int64_t width = 1, layers = 1;
  };
  const auto parsed = [](std::vector<std::string> words) {
    Size size;
    CommandLine line("program", "");
    line.option("width", "N", size.width, "columns");
    line.preset("preset", size.preset, {"small", "large"}, "size", [&size](const std::string& name) {
      if (name == "large") size = {.preset = {}, .width = 100, .layers = 10};
    });
    line.option("layers", "N", size.layers, "rows");
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const bool is_help = !line.parse(static_cast<int>(words.size()), argv.data());
    return is_help ? line.help() : looptorch::message(size.preset, " ", size.width, " ", size.layers);
  };
  CHECK(parsed({}) == "small 1 1");
  CHECK(parsed({"--preset", "large"}) == "large 100 10");
  CHECK(parsed({"--width", "7", "--preset=large"}) == "large 7 10");
  CHECK(parsed({"--pre", "large", "--layers=2"}) == "large 100 2");
  CHECK(parsed({"--preset=large", "--preset=small", "--layers=2"}) == "small 100 2");
  CHECK_THAT(parsed({"--help"}), Contains("columns [1]") && Contains("size [small]"));
  CHECK_THAT(parsed({"--preset", "large", "--help"}), Contains("columns [100]") && Contains("size [large]"));
  CHECK_THROWS_WITH(parsed({"--preset", "huge"}), "--preset: \"huge\" is not small|large");
}

TEST_CASE("command line: settings are all flags with their values, and are complete when a parse ends") {
  Program program;
  using Settings = std::vector<std::pair<std::string, std::string>>;
  Settings at_end;
  program.line.on_parsed([&](const CommandLine& line) { at_end = line.settings(); });
  CHECK(program.parse({"--model", "a b", "--batch-size", "4", "--no-shuffle", "--json", "x.wav"}));
  CHECK(at_end == Settings{{"model", "a b"},
                           {"batch-size", "4"},
                           {"learning-rate", "0.0001"},
                           {"fp32", "yes"},
                           {"on-bad-audio", "skip"},
                           {"recompute", "none"},
                           {"shuffle", "no"},
                           {"format", "json"}});
  program.tf32 = true, program.prefetch = 3, program.shuffle = true;
  const auto later = program.line.settings();
  for (const auto& setting : Settings{{"shuffle", "yes"}, {"tf32", "yes"}, {"prefetch", "3"}})
    CHECK(std::count(later.begin(), later.end(), setting) == 1);
}

TEST_CASE("A command line knows which flags it was given, by any of their names") {
  Program program;
  REQUIRE(program.parse({"--model=m", "--plain", "--fp32", "x.wav"}));
  for (const char* name : {"model", "text", "plain", "fp32"}) CHECK(program.line.is_given(name));
  for (const char* name : {"bf16", "json", "batch-size", "none"}) CHECK_FALSE(program.line.is_given(name));
  REQUIRE(program.parse({"--model=m", "x.wav"}));
  CHECK_FALSE(program.line.is_given("fp32"));
}
