// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/training_program.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace app = looptorch::app;
using Catch::Contains;

namespace training_program {

template <class Body>
int run(app::TrainingProgram& program, std::vector<std::string> words, const Body& body) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return program.run(static_cast<int>(argv.size()), argv.data(), body);
}

}  // namespace training_program

TEST_CASE("TrainingProgram: the session has the flags, over the program's defaults") {
  const looptorch::testing::TemporaryFolder folder;
  app::TrainingProgram program("digits", "Reads digits.", {.epochs = 20, .learning_rate = 3e-3});
  double dropout = 0.1;
  program.line().option("dropout", "P", dropout, "share of units that are dropped");
  bool ran = false;
  CHECK(training_program::run(
            program, {"--output", (folder / "run").string(), "--batch-size", "5", "--dropout", "0.3"},
            [&](app::Session& session) {
              ran = true;
              CHECK(session.options().epochs == 20);
              CHECK(session.options().learning_rate == 3e-3);
              CHECK(session.options().batch_size == 5);
              CHECK(session.output() == folder / "run");
            }) == app::kDone);
  CHECK(ran);
  CHECK(dropout == 0.3);
}

TEST_CASE("TrainingProgram: an error is a line and an exit code; flags that it cannot serve are not there") {
  const looptorch::testing::TemporaryFolder folder;
  app::TrainingProgram program("digits", "Reads digits.");
  for (const char* flag : {"preflight", "memory-cap", "gradient-checkpointing", "cache", "on-bad-audio"})
    CHECK_FALSE(program.line().has(flag));
  // Without the flag nothing lists what is skipped, so a bad sample ends the run.
  CHECK(program.options().loader_options().on_error == looptorch::OnError::fail);
  CHECK_THAT(program.line().help(),
             Contains("Reads digits.") && Contains("A run lists ") && Contains("SnapshotEvery"));
  looptorch::testing::CapturedStderr said;
  CHECK(training_program::run(program, {}, [](app::Session&) {}) == app::kError);
  CHECK(training_program::run(program, {"--output", (folder / "run").string()}, [](app::Session&) {
          throw looptorch::UsageError("no digits");
        }) == app::kError);
  CHECK_THAT(said.text(), Contains("digits: ") && Contains("--output") && Contains("digits: no digits\n"));
}

TEST_CASE("TrainingProgram: no run begins in a folder that it reads, or that holds a file that it reads") {
  const looptorch::testing::TemporaryFolder folder;
  const auto output = folder / "run";
  std::filesystem::create_directories(output);
  std::ofstream(output / "model.pt2") << "x";
  std::filesystem::path model, data, none;
  app::TrainingProgram program("digits", "Reads digits.");
  program.line().option("model", "FILE", model, "a model").option("data", "DIR", data, "digits");
  program.reads(model).reads(data).reads(none);
  const auto code = [&](const std::string& flag, const std::filesystem::path& path) {
    model.clear(), data.clear();
    return training_program::run(program, {"--output", output.string(), flag, path.string()},
                                 [](app::Session&) {});
  };
  looptorch::testing::CapturedStderr said;
  CHECK(code("--model", output / "model.pt2") == app::kError);
  CHECK_THAT(said.text(), Contains("model.pt2, which the run reads and could overwrite"));
  CHECK(code("--data", output) == app::kError);
  CHECK_THAT(said.text(), Contains("run: is the folder of the data"));
  CHECK(code("--model", folder / "model.pt2") == app::kDone);
}
