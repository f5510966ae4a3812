// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run_main.hpp>

#include "support/temporary_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

using Catch::Contains;
using looptorch::app::Interrupted, looptorch::app::run_main;

namespace {

/// What run_main returned and wrote.
struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(std::vector<std::string> words, const std::function<void()>& body) {
  std::ostringstream out, err;
  auto* old_out = std::cout.rdbuf(out.rdbuf());
  auto* old_err = std::cerr.rdbuf(err.rdbuf());
  std::filesystem::path model;
  std::int64_t batch_size = 8;
  std::vector<std::string> files;
  looptorch::app::CommandLine line("program", "Does things.");
  line.required("model", "DIR", model, "the model");
  line.option("batch-size", "N", batch_size, "clips at once", {.min = 1, .max = 64});
  line.positional("FILE", files, "audio");
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int code = run_main(static_cast<int>(words.size()), argv.data(), line, body);
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_err);
  return {code, out.str(), err.str()};
}

}  // namespace

TEST_CASE("run_main: --help goes to stdout, and the body does not run") {
  const auto outcome = run({"--help"}, [] { FAIL("the body ran"); });
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(outcome.out, Contains("usage: program --model DIR [options] FILE..."));
}

TEST_CASE("run_main: a file beyond the limit of its size is an error, and does not kill the program") {
  const auto before = std::signal(SIGXFSZ, SIG_DFL);
  const auto outcome = run({"--model=m", "x"}, [] { std::raise(SIGXFSZ); });
  CHECK((outcome.code == 0 && outcome.err.empty()));
  std::signal(SIGXFSZ, before);
}

TEST_CASE("run_main: a file never takes the descriptor of a closed standard stream") {
  const std::vector<int> streams{STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  std::vector<int> kept;
  for (const int stream : streams) kept.push_back(::fcntl(stream, F_DUPFD_CLOEXEC, 10));
  for (const int stream : streams) ::close(stream);
  int opened = -1;
  std::vector<ssize_t> moved;
  const auto outcome = run({"--model=m", "x"}, [&] {
    char byte = 'x';
    opened = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    moved = {::read(STDIN_FILENO, &byte, 1), ::write(STDOUT_FILENO, &byte, 1),
             ::write(STDERR_FILENO, &byte, 1)};
  });
  for (std::size_t i = 0; i < streams.size(); ++i) ::dup2(kept[i], streams[i]), ::close(kept[i]);
  ::close(opened);
  CHECK(opened > STDERR_FILENO);
  CHECK(moved == std::vector<ssize_t>{-1, -1, -1});
  CHECK(outcome.code == 0);
}

TEST_CASE("run_main: a working directory that was removed is an error") {
  const looptorch::testing::TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "gone");
  std::filesystem::current_path(folder / "gone");
  std::filesystem::remove(folder / "gone");
  const auto outcome = run({"--model=m", "x"}, [] { FAIL("the body ran"); });
  std::filesystem::current_path(before);
  CHECK(outcome.code == 2);
  CHECK(outcome.err == "program: the working directory was removed; change to one that exists\n");
}

TEST_CASE("run_main: errors are one line on stderr and an exit code") {
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

  const auto no_thread = outcome_of(
      [] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); });
  CHECK(no_thread.code == 2);
  CHECK_THAT(no_thread.err, Contains("a thread cannot be started: ") && Contains("ulimit -u"));

  const auto no_folder = outcome_of([] { std::filesystem::create_directories("/dev/null/x"); });
  CHECK((no_folder.code == 2 && no_folder.err.find("/dev/null/x") != std::string::npos));

  const auto stopped_by = [&](const char* reason, int signal) {
    return outcome_of([reason, signal] { throw Interrupted(reason, signal, 7); });
  };
  const auto stopped = stopped_by("SIGINT was received", SIGINT);
  CHECK(stopped.code == 130);
  CHECK(stopped.err == "program: SIGINT was received: stopped after 7 steps; go on with --resume auto\n");
  CHECK(stopped_by("SIGTERM was received", SIGTERM).code == 143);
  CHECK(stopped_by("rank 1: SIGTERM was received", SIGTERM).code == 143);
  const auto interrupted =
      outcome_of([] { throw Interrupted("SIGINT was received", SIGINT, "read up to 3 s"); });
  CHECK((interrupted.code == 130 && interrupted.err == "program: SIGINT was received: read up to 3 s\n"));
  CHECK(stopped_by("the time limit of 60 s is reached", 0).code == 75);

  const auto other = outcome_of([] { throw std::runtime_error("surprise"); });
  CHECK((other.code == 1 && other.err == "program: surprise\n"));
}

TEST_CASE("run_main: looptorch's warnings are lines of the program") {
  const auto outcome = run({"--model=m", "x"}, [] { TORCH_WARN("looptorch: the rate jumps"); });
  CHECK((outcome.code == 0 && outcome.err == "program: warning: the rate jumps\n"));
}
