// SPDX-License-Identifier: MIT
// The standard policies: each is switched by its flag, and may be taken out for one of the program's own.
#include "support/precompiled.hpp"

#include <looptorch/app/run_policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <filesystem>
#include <tuple>

namespace app = looptorch::app;
namespace lt = looptorch;
using Catch::Contains;
using lt::testing::TemporaryFolder;

namespace run_policies {

template <class P, class Bundle>
bool is_on(const Bundle& bundle) {
  return std::get<lt::When<P>>(bundle.policies).flag;
}

}  // namespace run_policies

TEST_CASE("run_policies: flags switch their policies") {
  auto net = toy::net();
  const auto off = app::run_policies({.report = false}, "run", *net);
  CHECK_FALSE(run_policies::is_on<lt::Autocast<>>(off));
  CHECK_FALSE(run_policies::is_on<lt::CacheFlushEvery<>>(off));
  CHECK_FALSE(run_policies::is_on<lt::CaptureGraphs>(off));
  CHECK_FALSE(run_policies::is_on<lt::Autopsy>(off));
  CHECK_FALSE(run_policies::is_on<lt::Profile>(off));
  CHECK_FALSE(run_policies::is_on<app::RunSettings>(off));
  CHECK_FALSE(run_policies::is_on<lt::SnapshotEvery>(off));
  CHECK_FALSE(run_policies::is_on<lt::WatchMemory>(off));
  CHECK_FALSE(run_policies::is_on<lt::LogMetrics>(off));
  CHECK(std::get<lt::Accumulate<>>(off.policies).micro_batches() == 1);

  app::TrainingOptions training{.gradient_accumulation = 3,
                                .precision = app::Precision::bf16,
                                .tf32 = true,
                                .capture = true,
                                .flush_every = 5,
                                .memory = true,
                                .snapshot_every = 10,
                                .autopsy = true,
                                .profile = "2-4"};
  const auto on = app::run_policies(training, "run", *net, {.settings = {{"--mixup", "on"}}});
  CHECK(run_policies::is_on<lt::Autocast<>>(on));
  CHECK(run_policies::is_on<lt::CacheFlushEvery<>>(on));
  CHECK(run_policies::is_on<lt::CaptureGraphs>(on));
  CHECK(run_policies::is_on<lt::Autopsy>(on));
  CHECK(run_policies::is_on<lt::Profile>(on));
  CHECK(run_policies::is_on<app::RunSettings>(on));
  CHECK(run_policies::is_on<lt::SnapshotEvery>(on));
  CHECK(run_policies::is_on<lt::WatchMemory>(on));
  CHECK(run_policies::is_on<lt::LogMetrics>(on));
  CHECK(std::get<lt::Accumulate<>>(on.policies).micro_batches() == 3);
  CHECK(std::get<lt::BackendFlags>(on.policies).tf32 == true);
  CHECK(std::get<lt::When<lt::SnapshotEvery>>(on.policies).policy.folder ==
        std::filesystem::path("run/snapshots"));
  CHECK(std::get<lt::When<lt::SnapshotEvery>>(on.policies).policy.steps == 10);
}

TEST_CASE("run_policies: a program lists one of them with its own options") {
  const TemporaryFolder folder;
  const lt::testing::CapturedStderr silent;
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  const app::TrainingOptions training{.snapshot_every = 1, .report = false};
  lt::Trainer trainer(net, adam, toy::objective,
                      app::run_policies(training, folder / "run", *net).without<lt::SnapshotEvery>(),
                      lt::SnapshotEvery{.folder = folder / "own", .steps = 2});
  trainer.fit(toy::batches(4));
  CHECK(std::filesystem::exists(folder / "own" / "step-00000002"));
  CHECK_FALSE(std::filesystem::exists(folder / "run" / "snapshots"));
}

TEST_CASE("run_policies: their names, for --help") {
  CHECK_THAT(app::names_of_run_policies(),
             Contains("Accumulate, Autocast, BackendFlags, CacheFlushEvery, CaptureGraphs, ") &&
                 Contains("SnapshotEvery") && Contains("ShowProgress"));
}
