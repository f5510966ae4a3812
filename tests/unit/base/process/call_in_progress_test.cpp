// SPDX-License-Identifier: MIT
// A Trainer that is called by its own hooks and objectives.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <functional>

namespace lt = looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

using Action = std::function<void()>;

auto make_trainer(toy::Net& net, torch::optim::SGD& sgd, Action& in_window, Action& at_window_end,
                  const std::filesystem::path& folder) {
  const auto objective = [&in_window](toy::Net& net, const toy::Batch& batch) {
    if (in_window) in_window();
    return toy::objective(net, batch);
  };
  const auto at_end = [&at_window_end](lt::WindowContext&) {
    if (at_window_end) at_window_end();
  };
  return lt::Trainer(net, sgd, objective, lt::On{lt::kObserve, at_end},
                     lt::SnapshotEvery{.folder = folder, .steps = 1, .on_signals = false});
}

/// A Trainer whose objective and hook do what a test puts in.
struct Reentrant {
  TemporaryFolder folder;
  toy::Net net = toy::net();
  torch::optim::SGD sgd{net->parameters(), 0.5};
  Action in_window, at_window_end;
  std::vector<toy::Batch> data = toy::batches(4);
  decltype(make_trainer(net, sgd, in_window, at_window_end, folder.path())) trainer =
      make_trainer(net, sgd, in_window, at_window_end, folder.path());
};

}  // namespace

TEST_CASE(
    "fit, step and what replaces the run are refused within fit, and fit continues where that is caught") {
  Reentrant plain, run;
  plain.trainer.fit(plain.data);
  const auto contents = run.trainer.snapshot();
  const auto state = run.trainer.state_dict();
  int refused = 0;
  const auto attempt = [&] {
    CHECK_THROWS_WITH(run.trainer.fit(run.data), Catch::Contains("fit() was called within fit()"));
    CHECK_THROWS_WITH(run.trainer.step(run.data[0]), Catch::Contains("step() was called within fit()"));
    CHECK_THROWS_WITH(run.trainer.finish_window(),
                      Catch::Contains("finish_window() was called within fit()"));
    CHECK_THROWS_WITH(run.trainer.restore(contents), Catch::Contains("restore() was called within fit()"));
    CHECK_THROWS_WITH(run.trainer.load_state_dict(state),
                      Catch::Contains("load_state_dict() was called within fit()"));
    ++refused;
  };
  run.in_window = run.at_window_end = attempt;
  CHECK(run.trainer.fit(run.data).steps == 4);
  CHECK(refused == 8);
  CHECK(toy::distance(plain.net, run.net) == 0.0);
  CHECK(lt::list_snapshots(run.folder.path()).size() == 3);
}

TEST_CASE("evaluate and, between windows, snapshot and state_dict are legal within fit") {
  Reentrant plain, run;
  plain.trainer.fit(plain.data);
  std::vector<double> losses;
  run.at_window_end = [&] {
    losses.push_back(run.trainer.evaluate(run.data, toy::objective).loss);
    CHECK(run.trainer.snapshot().step == run.trainer.progress().step);
    CHECK_FALSE(run.trainer.state_dict().empty());
  };
  run.in_window = [&] {
    CHECK_THROWS_WITH(run.trainer.snapshot(), Catch::Contains("snapshot() was called within a window"));
    CHECK_THROWS_WITH(run.trainer.state_dict(), Catch::Contains("state_dict() was called within a window"));
  };
  run.trainer.fit(run.data);
  CHECK(losses.size() == 4);
  CHECK(toy::distance(plain.net, run.net) == 0.0);
}

TEST_CASE("training and saving are refused within evaluate, where averages may stand in the weights' place") {
  Reentrant run;
  const auto measure = [&](toy::Net&, const toy::Batch&) {
    CHECK_THROWS_WITH(run.trainer.fit(run.data), Catch::Contains("fit() was called within evaluate()"));
    CHECK_THROWS_WITH(run.trainer.step(run.data[0]), Catch::Contains("within evaluate()"));
    CHECK_THROWS_WITH(run.trainer.snapshot(), Catch::Contains("snapshot() was called within evaluate()"));
    CHECK_THROWS_WITH(run.trainer.state_dict(), Catch::Contains("within evaluate()"));
    return 1.0;
  };
  CHECK(run.trainer.evaluate(run.data, measure).batches == 4);
  CHECK(run.trainer.fit(run.data).steps == 4);
}

TEST_CASE("after a fit that was left by an exception the Trainer can be called again") {
  Reentrant run;
  run.in_window = [] { throw std::runtime_error("x"); };
  CHECK_THROWS_WITH(run.trainer.fit(run.data), "x");
  run.in_window = nullptr;
  CHECK(run.trainer.fit(run.data).steps == 4);
}
