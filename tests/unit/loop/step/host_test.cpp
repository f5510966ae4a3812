// SPDX-License-Identifier: MIT
// Policies of a user that call their Trainer: evaluations, averaged weights, snapshots, what feeds fit.
#include <looptorch/policies.hpp>
#include <looptorch/state/snapshot/snapshot.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace lt = looptorch;

using Net = torch::nn::Linear;
struct Batch {
  at::Tensor x, y;
};
using Batches = std::vector<Batch>;

lt::Loss squared_error(Net& net, const Batch& batch) {
  return {.value = (net(batch.x) - batch.y).square().mean(), .weight = batch.x.size(0)};
}

Batches some_batches(std::int64_t count) {
  at::manual_seed(3);
  Batches batches;
  for (std::int64_t i = 0; i < count; ++i) batches.push_back({at::randn({4, 2}), at::randn({4, 1})});
  return batches;
}

struct AbsoluteError {
  double operator()(Net& net, const Batch& batch) const {
    return (net(batch.x) - batch.y).abs().mean().item<double>();
  }
};

/// Evaluates by its own measure and by the objective wherever a policy may.
struct Evaluating {
  Batches held_out;
  using evaluates = std::tuple<lt::Evaluates<const Batches, AbsoluteError>, lt::Evaluates<const Batches>>;
  struct State {
    std::vector<std::string> moments;
    std::vector<double> errors, losses;
  };

  void on_fit_ready(lt::FitContext& fit, State& state) const { look(fit.run, "ready", state); }
  void on_epoch_begin(lt::EpochContext& epoch, State& state) const { look(epoch.run, "begin", state); }
  void on_window_end(lt::WindowContext& window, State& state) const { look(window.run, "window", state); }
  void on_epoch_end(lt::EpochContext& epoch, State& state) const { look(epoch.run, "end", state); }
  void on_fit_end(lt::FitContext& fit, State& state) const { look(fit.run, "fit end", state); }

 private:
  void look(lt::Run& run, const char* moment, State& state) const {
    state.moments.emplace_back(moment);
    state.errors.push_back(run.evaluate(held_out, AbsoluteError{}).loss);
    state.losses.push_back(run.evaluate(held_out).loss);
  }
};

TEST_CASE("a user's policy evaluates at every moment between windows, as the Trainer does") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const Batches batches = some_batches(2);
  lt::Trainer trainer(net, optimizer, squared_error, Evaluating{batches});
  const double before = trainer.evaluate(batches).loss;
  trainer.fit(batches, {.epochs = 1});
  const auto& state = trainer.policy<Evaluating>();
  CHECK(state.moments == std::vector<std::string>{"ready", "begin", "window", "window", "end", "fit end"});
  CHECK(state.losses.front() == before);
  CHECK(state.losses.back() == trainer.evaluate(batches).loss);
  CHECK(state.losses[2] != state.losses[3]);
  CHECK(state.errors.back() == trainer.evaluate(batches, AbsoluteError{}).loss);
}

TEST_CASE("a policy that evaluates leaves a seeded run as it is, bit for bit") {
  const Batches batches = some_batches(5);
  const auto weights_after = [&](auto... policies) {
    at::manual_seed(1);
    Net net(2, 1);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    lt::Trainer trainer(net, optimizer, squared_error, lt::Accumulate<2>{}, policies...);
    trainer.fit(batches, {.epochs = 2});
    return net->weight.detach().clone();
  };
  CHECK(weights_after(Evaluating{batches}).equal(weights_after()));
}

TEST_CASE("evaluations and snapshots work in a loop of step, too") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const Batches batches = some_batches(2);
  lt::Trainer trainer(net, optimizer, squared_error, Evaluating{batches});
  trainer.step(batches[0]);
  auto moved = std::move(trainer);  // the policies follow
  moved.step(batches[1]);
  CHECK(moved.policy<Evaluating>().moments == std::vector<std::string>{"ready", "window", "window"});
}

struct Early {
  Batches held_out;
  using evaluates = lt::Evaluates<const Batches>;
  void on_fit_begin(lt::FitContext& fit) const { (void)fit.run.evaluate(held_out); }
};
struct Undeclared {
  Batches held_out;
  void on_window_end(lt::WindowContext& window) const { (void)window.run.evaluate(held_out); }
};
struct NotDeclaredSnapshot {
  void on_window_end(lt::WindowContext& window) const { (void)window.run.snapshot(); }
};
struct WithinUpdate {
  static constexpr bool takes_snapshots = true;
  void before_update(lt::UpdateContext& update) const { (void)update.run.snapshot(); }
};

TEST_CASE("calls that cannot be are refused in a sentence that says what to do") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const Batches batches = some_batches(1);
  const auto message_of = [&](auto policy) -> std::string {
    lt::Trainer trainer(net, optimizer, squared_error, policy);
    try {
      trainer.fit(batches);
    } catch (const lt::UsageError& error) {
      return error.what();
    }
    return {};
  };
  CHECK_THAT(message_of(Early{batches}),
             Catch::Contains("run.evaluate()") && Catch::Contains("call it in on_fit_ready or later"));
  CHECK_THAT(message_of(Undeclared{batches}),
             Catch::Contains("no listed policy declares") && Catch::Contains("using evaluates = "));
  CHECK_THAT(message_of(NotDeclaredSnapshot{}), Catch::Contains("takes_snapshots = true"));
  CHECK_THAT(message_of(WithinUpdate{}), Catch::Contains("within a window"));
}

/// Writes a snapshot of its own after the first epoch.
struct OneSnapshot {
  std::filesystem::path folder;
  static constexpr bool takes_snapshots = true;
  static constexpr lt::Phase phase = lt::Phase::snapshot;
  struct State {
    std::optional<std::int64_t> resumed_at;
  };

  void before_resume(const lt::ResumeContext& resume, State& state) const { state.resumed_at = resume.step; }
  void on_epoch_end(lt::EpochContext& epoch, State&) const {
    if (epoch.run.progress().epoch == 1) lt::write_snapshot(folder, epoch.run.snapshot());
  }
};

TEST_CASE("a user's policy takes a snapshot from which a fit continues, bit for bit") {
  const looptorch::testing::TemporaryFolder folder;
  const Batches batches = some_batches(3);
  const auto train = [&](std::int64_t epochs, const std::filesystem::path& resume,
                         const std::filesystem::path& to) {
    at::manual_seed(1);
    Net net(2, 1);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    lt::Trainer trainer(net, optimizer, squared_error, OneSnapshot{to});
    trainer.fit(batches, {.epochs = epochs, .resume = resume});
    return std::pair(net->weight.detach().clone(), trainer.template policy<OneSnapshot>().resumed_at);
  };
  const auto whole = train(2, {}, folder.path() / "a");
  const auto resumed = train(2, folder.path() / "a", folder.path() / "b");
  CHECK(resumed.first.equal(whole.first));
  CHECK_FALSE(whole.second);
  CHECK(resumed.second == 3);
}

/// Notes what feeds the fit.
struct Feeding {
  struct State {
    std::optional<std::int64_t> batches;
    bool repeatable = false, is_loader = false;
    lt::StateDict identity;
    std::int64_t skipped = -1;
  };
  void on_fit_ready(lt::FitContext& fit, State& state) const {
    const lt::Feed& feed = fit.run.feed();
    state = {feed.batches, feed.repeatable, feed.stats != nullptr, feed.identity(), feed.skipped().count};
  }
};

/// Throws for one of its samples.
class Damaged {
 public:
  [[nodiscard]] std::int64_t size() const { return 4; }
  [[nodiscard]] Batch get(std::int64_t index) const {
    if (index == 1) throw std::runtime_error("damaged");
    return {at::ones({2}), at::ones({1})};
  }
};

TEST_CASE("a policy knows what feeds fit: a vector, a loader that is listed, and none afterwards") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(
      net, optimizer, squared_error, Feeding{},
      lt::PinnedPrefetchLoader({.batch_size = 2, .workers = 1, .on_error = lt::OnError::skip}));
  trainer.fit(some_batches(3));
  CHECK(trainer.policy<Feeding>().batches == 3);
  CHECK(trainer.policy<Feeding>().repeatable);
  CHECK_FALSE(trainer.policy<Feeding>().is_loader);
  CHECK(trainer.policy<Feeding>().identity.get<std::int64_t>("batches") == 3);

  trainer.fit(Damaged{}, {.epochs = 2});
  CHECK(trainer.policy<Feeding>().batches == 2);
  CHECK(trainer.policy<Feeding>().is_loader);
  CHECK(trainer.policy<Feeding>().identity.contains("batch_size"));
  trainer.fit(Damaged{}, {.epochs = 3});
}

/// Halves what it is given by making batches of every second sample.
struct EverySecond {
  static constexpr bool makes_loader = true;
  template <class Dataset>
  auto make(Dataset&& dataset) const {
    Batches batches;
    for (std::int64_t i = 0; i < dataset.size(); i += 2) batches.push_back(dataset.get(i));
    return batches;
  }
};

TEST_CASE("a user's policy makes fit's batches of a dataset") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(net, optimizer, squared_error, EverySecond{});
  CHECK(trainer.fit(Damaged{}).steps == 2);
}

/// Windows that grow with the run.
struct Growing {
  struct State {
    std::int64_t length = 1;
  };
  std::int64_t micro_batches(State& state) const { return state.length; }
  void on_epoch_end(lt::EpochContext&, State& state) const { ++state.length; }
};

TEST_CASE("a user's policy says how many micro-batches make a window") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(net, optimizer, squared_error, Growing{});
  CHECK(trainer.fit(some_batches(4), {.epochs = 2}).steps == 4 + 2);
}

struct NoMicroBatches {
  std::int64_t micro_batches() const { return 0; }
};

TEST_CASE("a window of no micro-batches, and two policies that count them, are refused") {
  Net net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer none(net, optimizer, squared_error, NoMicroBatches{});
  CHECK_THROWS_WITH(none.fit(some_batches(1)), Catch::Contains("must be at least 1, got 0"));
  lt::Trainer two(net, optimizer, squared_error, lt::Accumulate<2>{}, Growing{});
  CHECK_THROWS_AS(two.fit(some_batches(1)), lt::PolicyConflict);
}

}  // namespace
