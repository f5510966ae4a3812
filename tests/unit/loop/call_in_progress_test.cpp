// SPDX-License-Identifier: MIT
// A Trainer that is called by its own hooks and objectives, and several Trainers on one model.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <functional>
#include <thread>

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
    "fit, step and what replaces the run are refused within fit, and fit goes on where that is caught") {
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

TEST_CASE("a Trainer does not begin in the middle of another's window on the same parameters") {
  const auto data = toy::batches(4);
  auto net = toy::net(), plain = toy::net();
  torch::optim::SGD a(net->parameters(), 0.5), b(net->parameters(), 0.5), c(plain->parameters(), 0.5);
  lt::Trainer one(net, a, toy::objective, lt::Accumulate<2>{});
  lt::Trainer two(net, b, toy::objective);
  lt::Trainer by_itself(plain, c, toy::objective, lt::Accumulate<2>{});
  one.step(data[0]), by_itself.step(data[0]);
  CHECK_THROWS_WITH(two.step(data[1]), Catch::Contains("call its finish_window() first"));
  CHECK_THROWS_WITH(two.fit(data), Catch::Contains("another Trainer has a window open"));
  one.step(data[1]), by_itself.step(data[1]);
  CHECK(toy::distance(net, plain) == 0.0);
  two.step(data[2]);  // begun between the windows of the other
  one.step(data[2]);
  CHECK_THROWS_AS(two.step(data[3]), lt::UsageError);
  one.finish_window();
  CHECK(two.step(data[3]).window_ended);
}

TEST_CASE("a window that is left open ends with its Trainer") {
  const auto data = toy::batches(2);
  auto net = toy::net();
  torch::optim::SGD a(net->parameters(), 0.5), b(net->parameters(), 0.5);
  {
    lt::Trainer one(net, a, toy::objective, lt::Accumulate<2>{});
    one.step(data[0]);
    lt::Trainer moved(std::move(one));
  }
  lt::Trainer two(net, b, toy::objective);
  CHECK(two.fit(data).steps == 2);
}

TEST_CASE("Trainers of different parameters of one model may take turns in mid-window on one thread") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.5), b(net->second->parameters(), 0.5);
  lt::Trainer one(net, a, toy::objective, lt::Accumulate<2>{}),
      two(net, b, toy::objective, lt::Accumulate<2>{});
  for (const auto& batch : data) one.step(batch), two.step(batch);
  CHECK(two.progress().step == 2);
}

TEST_CASE("on two threads Trainers of one model are refused, and flags stay as they were") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.5), b(net->second->parameters(), 0.5);
  std::string error;
  const auto other = [&] {
    lt::Trainer two(net, b, toy::objective);
    try {
      two.fit(data);
    } catch (const lt::UsageError& thrown) {
      error = thrown.what();
    }
  };
  lt::Trainer one(net, a, [&](toy::Net& net, const toy::Batch& batch) {
    if (error.empty()) std::thread(other).join();
    return toy::objective(net, batch);
  });
  CHECK(one.fit(data).steps == 4);
  CHECK_THAT(error, Catch::Contains("on another thread"));
  for (const auto& parameter : net->parameters()) CHECK(parameter.requires_grad());
}
