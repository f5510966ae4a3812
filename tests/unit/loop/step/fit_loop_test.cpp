// SPDX-License-Identifier: MIT
// What a fit says of itself as it begins and ends.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <string>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;
using looptorch::testing::Warnings;

TEST_CASE("a model in eval mode is told once a Trainer, as a fit or a loop of one's own begins") {
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  Warnings warnings;
  {
    lt::Trainer trainer(net, adam, toy::objective, lt::Validate{toy::batches(1)});
    net->second->eval();  // a module within it may be
    trainer.fit(toy::batches(2), {.epochs = 2});
    trainer.evaluate(toy::batches(1));  // puts the mode back
    trainer.fit(toy::batches(2));
  }
  CHECK(warnings.texts.empty());
  net->eval();
  lt::Trainer trainer(net, adam, toy::objective);
  trainer.fit(toy::batches(2));
  trainer.fit(toy::batches(2));
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Contains("the model in eval mode") && Contains("call model->train() before"));
  lt::Trainer own(net, adam, toy::objective);
  own.step(toy::batches(1)[0]);
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE("on_resumed is called once, when nothing can refuse the snapshot any more") {
  const lt::testing::TemporaryFolder folder;
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  const auto fit = [&](lt::FitOptions options, bool refuses) {
    lt::Trainer trainer(net, adam, toy::objective, lt::SnapshotEvery{.folder = folder.path()},
                        lt::When{refuses, lt::LogMetrics{.folder = folder / "log", .every = 0}});
    trainer.fit(toy::batches(2), options);
  };
  std::vector<lt::ResumeReport> seen;
  const auto note = [&](const lt::ResumeReport& report) { seen.push_back(report); };
  fit({.epochs = 1, .on_resumed = note}, false);
  CHECK_THROWS_AS(fit({.epochs = 2, .resume = folder.path(), .on_resumed = note}, true), lt::UsageError);
  CHECK(seen.empty());
  fit({.epochs = 2, .resume = folder.path(), .on_resumed = note}, false);
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].step == 2);
  CHECK(seen[0].snapshot == folder / "step-00000002");
}
