// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run_log.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <filesystem>

namespace app = looptorch::app;
namespace lt = looptorch;
using Catch::Contains;

namespace run_log {

void train(const app::TrainingOptions& training, const std::filesystem::path& output) {
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adam, toy::objective,
                      app::run_log(training, output, *net, {{"clips", "9"}, {"batch-size", "8"}}));
  trainer.fit(toy::batches(3));
}

}  // namespace run_log

TEST_CASE("run_log: the page has the program, the model's sizes, the flags, and facts in their place") {
  const lt::testing::TemporaryFolder folder;
  app::TrainingOptions training;
  training.program = "toy_train";
  training.settings = {{"epochs", "1"}, {"batch-size", "0"}};
  run_log::train(training, folder / "run");
  const auto page = lt::read_file(folder / "run" / "report.html");
  CHECK_THAT(page, Contains("<h1>toy_train: " + (folder / "run").string() + "</h1>"));
  CHECK_THAT(page, Contains("[\"model type\",\"toy::Net\"]"));
  auto net = toy::net();
  const auto sizes = std::to_string(app::detail::count_parameters(*net)) + ": first " +
                     std::to_string(app::detail::count_parameters(*net->first)) + ", second " +
                     std::to_string(app::detail::count_parameters(*net->second));
  CHECK_THAT(page, Contains("[\"parameters\",\"" + sizes + "\"]"));
  CHECK_THAT(page, Contains("[\"clips\",\"9\"]") && Contains("[\"epochs\",\"1\"]"));
  CHECK_THAT(page, Contains("[\"batch-size\",\"8\"]") && !Contains("[\"batch-size\",\"0\"]"));
  CHECK_THAT(page, Contains("completed, step 3"));
  for (const char* file : {"metrics.jsonl", "metrics.csv"})
    CHECK(std::filesystem::file_size(folder / "run" / file) > 0);
}

TEST_CASE("run_log: without a report there is no file") {
  const lt::testing::TemporaryFolder folder;
  app::TrainingOptions training;
  training.report = false;
  run_log::train(training, folder / "run");
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}
