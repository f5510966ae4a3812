// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/command_line.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using Catch::Contains;
using whisper::CommandLine;
using whisper::CommandLineError;

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
  std::string on_bad_audio = "skip", recompute = "none";
  std::vector<std::string> files;
  CommandLine line{"program", "Does things."};
};

void refuses(std::vector<std::string> words, const std::string& message) {
  CAPTURE(words);
  REQUIRE_THROWS_AS(Program().parse(words), CommandLineError);
  REQUIRE_THROWS_WITH(Program().parse(words), Contains(message));
}

/// What run_main returned and wrote.
struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(std::vector<std::string> words, const std::function<void()>& body) {
  std::ostringstream out, err;
  auto* old_out = std::cout.rdbuf(out.rdbuf());
  auto* old_err = std::cerr.rdbuf(err.rdbuf());
  Program program;
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int code = whisper::run_main(static_cast<int>(words.size()), argv.data(), program.line, body);
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_err);
  return {code, out.str(), err.str()};
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

TEST_CASE("command line: faults name the flag and the value") {
  refuses({"x"}, "--model is missing");
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

TEST_CASE("command line: help shows every flag with its default") {
  const auto outcome = run({"--help"}, [] { FAIL("the body ran"); });
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  for (const auto* text :
       {"usage: program --model DIR [options] FILE...", "Does things.", "--model DIR", "(required)",
        "--batch-size N", "clips at once [8]", "[0.0001]", "--bf16", "--fp32", "--help", "audio",
        "--on-bad-audio skip|stop", "what then [skip]", "--recompute [none|encoder|all]", "layers [none]"}) {
    CHECK_THAT(outcome.out, Contains(text));
  }
}

TEST_CASE("command line: errors are one line on stderr and an exit code") {
  const auto outcome_of = [](const std::function<void()>& body) { return run({"--model=m", "x"}, body); };
  const auto good = outcome_of([] {});
  CHECK((good.code == 0 && good.out.empty() && good.err.empty()));

  const auto flags = run({"--batch-size=0"}, [] { FAIL("the body ran"); });
  CHECK(flags.code == 2);
  CHECK(flags.err == "program: --batch-size: 0 is less than 1 (see --help)\n");

  const auto typed = outcome_of([] { throw looptorch::Error("x.wav: is silent"); });
  CHECK((typed.code == 2 && typed.err == "program: x.wav: is silent\n"));

  const auto torch_error = outcome_of([] { TORCH_CHECK(false, "first\nsecond"); });
  CHECK((torch_error.code == 2 && torch_error.err == "program: first\n"));

  const auto no_folder = outcome_of([] { std::filesystem::create_directories("/dev/null/x"); });
  CHECK((no_folder.code == 2 && no_folder.err.find("/dev/null/x") != std::string::npos));

  const auto stopped_by = [&](const char* reason) {
    return outcome_of([reason] { throw whisper::Interrupted(reason, 7); });
  };
  const auto stopped = stopped_by("SIGINT was received");
  CHECK(stopped.code == 130);
  CHECK(stopped.err == "program: SIGINT was received: stopped after 7 steps; go on with --resume auto\n");
  CHECK(stopped_by("SIGTERM was received").code == 143);

  const auto other = outcome_of([] { throw std::runtime_error("surprise"); });
  CHECK((other.code == 1 && other.err == "program: surprise\n"));
}
