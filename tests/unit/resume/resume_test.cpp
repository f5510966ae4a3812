// SPDX-License-Identifier: MIT
// A run that is cut at any step and goes on in new objects ends with the bits of one that was not: weights,
// buffers, moments, averages, random numbers, counters, means, and the losses on the way.
// Tests base/device: accelerator, generator_state, random_states
// Tests loop: resume_report
// Tests loop/step: run_state
// Tests loop/compose: policy_states
// Tests resume: snapshots, take_snapshot
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/resume/window_bundle.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"
#include "support/whole_run.hpp"

#include <string>
#include <vector>

namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;
using whole_run::Ending;

namespace {

lt::SnapshotEvery into(const TemporaryFolder& folder, std::int64_t steps = 0) {
  return {.folder = folder.path(), .steps = steps, .keep = 0, .best = "held_out.loss", .on_signals = false};
}

const Ending& uncut() {
  static const Ending ending = [] {
    TemporaryFolder folder;
    return whole_run::run({.snapshots = into(folder)});
  }();
  return ending;
}

/// The end and the last lines are those of the run that was not cut.
void check_end(const Ending& end, std::int64_t from) {
  CHECK(whole_run::difference(uncut().contents, end.contents) == "");
  CHECK(end.lines == std::vector<std::string>(uncut().lines.begin() + from, uncut().lines.end()));
  CHECK(end.result.status == uncut().result.status);
  CHECK(end.result.resumed->step == from);
}

at::Tensor cpu_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

/// Counts how often a fit is prepared, and keeps the generator's state as policies begin.
struct SeesBeginning {
  int* prepared;
  at::Tensor* generator;

  bool may_rerun() const { return ++*prepared, false; }
  void on_fit_begin(lt::FitContext&) const { *generator = cpu_state(); }
};

}  // namespace

TEST_CASE("the run has what it is to show: overflows, a falling rate, averages, all windows") {
  const auto& state = uncut().contents.state;
  CHECK(uncut().result.skipped > 0);
  CHECK(uncut().contents.step == whole_run::kSteps);
  CHECK(uncut().lines.size() == whole_run::kSteps);
  CHECK(state.get<std::int64_t>("run.update.0.applied") < whole_run::kSteps);
  CHECK(uncut().contents.averaged.size() == uncut().contents.model.size());
  CHECK_FALSE(looptorch::testing::bits_equal(uncut().contents.averaged.at("norm.running_var"),
                                             uncut().contents.model.at("norm.running_var")));
  const std::string& line = uncut().lines.back();
  const double rate = std::stod(line.substr(line.rfind(' ')));
  CHECK(rate < 0.05);
  CHECK(rate > 0);
}

TEST_CASE("a fit that ended after any number of steps continues in new objects") {
  for (std::int64_t cut = 1; cut < whole_run::kSteps; ++cut) {
    TemporaryFolder folder;
    INFO("cut at " << cut);
    const auto first = whole_run::run({.snapshots = into(folder), .max_steps = cut});
    CHECK(first.contents.step == cut);
    check_end(whole_run::run({.snapshots = into(folder), .resume = folder.path()}), cut);
  }
}

TEST_CASE(
    "every snapshot that a run wrote on its way continues to the same end, and writing them changes nothing") {
  TemporaryFolder folder;
  const auto all = whole_run::run({.snapshots = into(folder, 1)});
  CHECK(whole_run::difference(uncut().contents, all.contents) == "");
  CHECK(all.lines == uncut().lines);
  const auto written = lt::list_snapshots(folder.path());
  REQUIRE(written.size() == whole_run::kSteps);
  for (const auto& snapshot : written) {
    TemporaryFolder other;
    INFO(snapshot.path.filename().string());
    check_end(whole_run::run({.snapshots = into(other), .resume = snapshot.path}), snapshot.step);
  }
}

TEST_CASE("a run that is resumed twice, and the same snapshot resumed again, end the same") {
  TemporaryFolder folder;
  (void)whole_run::run({.snapshots = into(folder), .max_steps = 4});
  const auto second = whole_run::run({.snapshots = into(folder), .max_steps = 11, .resume = folder.path()});
  CHECK(second.result.resumed->snapshot == folder / "step-00000004");
  for (const char* slash : {"", "/"}) {
    TemporaryFolder other;
    check_end(
        whole_run::run({.snapshots = into(other), .resume = (folder / "step-00000011").string() + slash}),
        11);
  }
  check_end(whole_run::run({.snapshots = into(folder), .resume = folder.path()}), 11);
}

TEST_CASE("a run that had ended ends at once when it is resumed, and its epoch's end is made up for") {
  TemporaryFolder folder;
  (void)whole_run::run({.snapshots = into(folder, 1), .max_steps = 10});
  const auto again = whole_run::run({.snapshots = into(folder), .max_steps = 10, .resume = folder.path()});
  CHECK(again.lines.empty());
  CHECK(again.result.status == lt::FitStatus::max_steps);
  CHECK(again.result.epochs == 2);
}

TEST_CASE("a run that a policy had stopped stays stopped when it is resumed") {
  TemporaryFolder folder, other;
  const auto stopped = whole_run::run({.snapshots = into(folder, 1), .patience = 1});
  REQUIRE(stopped.result.status == lt::FitStatus::stopped);
  const auto again = whole_run::run({.snapshots = into(other), .resume = folder.path(), .patience = 1});
  CHECK(again.result.status == lt::FitStatus::stopped);
  CHECK(again.result.reason == stopped.result.reason);
  CHECK(again.contents.step == stopped.contents.step);
  CHECK(again.result.epochs == stopped.result.epochs);
  CHECK(again.lines.empty());
}

TEST_CASE("modules that a run had set to eval are so again") {
  TemporaryFolder folder;
  whole_run::Process first({.snapshots = into(folder), .max_steps = 2});
  first.net->norm->eval();
  (void)first.run();
  whole_run::Process second({.snapshots = into(folder), .max_steps = 3, .resume = folder.path()});
  (void)second.run();
  CHECK_FALSE(second.net->norm->is_training());
  CHECK(second.net->is_training());
}

TEST_CASE("a resumed fit is prepared once, and sets the generators once: after policies have begun") {
  TemporaryFolder folder;
  int prepared = 0;
  at::Tensor own, at_begin, before, after;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    before = cpu_state();
    (void)torch::rand({1});
    after = cpu_state();
    return toy::objective(net, batch);
  };
  const auto fit = [&](const lt::FitOptions& options) {
    toy::Net net = toy::net();
    lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
    lt::Trainer trainer(net, optimizer, objective, SeesBeginning{&prepared, &at_begin},
                        lt::SnapshotEvery{.folder = folder.path(), .on_signals = false});
    const auto batches = toy::batches(4);
    own = cpu_state();
    (void)trainer.fit(batches, options);
  };
  fit({.max_steps = 2});
  CHECK(prepared == 1);
  const at::Tensor saved = after;
  fit({.max_steps = 3, .resume = folder.path()});
  CHECK(prepared == 2);
  CHECK(torch::equal(at_begin, own));
  CHECK_FALSE(torch::equal(own, saved));
  CHECK(torch::equal(before, saved));
}
