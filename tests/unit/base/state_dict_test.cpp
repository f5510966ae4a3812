// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/state_dict.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// Counts windows, and saves that.
struct Counts {
  struct State {
    std::int64_t windows = 0;
  };
  void on_window_end(lt::WindowContext&, State& state) const { ++state.windows; }
  void state_dict(lt::StateDict& out, State& state) const { out.set("windows", state.windows); }
  void load_state_dict(const lt::StateDict& in, State& state) const {
    state.windows = in.get<std::int64_t>("windows");
  }
};

/// One of several of its kind.
struct Marks {
  double mark = 0;
  static constexpr bool repeatable = true;
  struct State {
    double seen = 0;
  };
  void on_window_end(lt::WindowContext&, State& state) const { state.seen += mark; }
  void on_fit_end(lt::FitContext& fit, State& state) const {
    fit.run.metrics().publish("mark." + std::to_string(mark), state.seen);
  }
  void state_dict(lt::StateDict& out, State& state) const { out.set("seen", state.seen); }
  void load_state_dict(const lt::StateDict& in, State& state) const { state.seen = in.get<double>("seen"); }
};

}  // namespace

TEST_CASE("a StateDict gives back what was put in, by type, and names what is missing") {
  lt::StateDict state;
  state.set("whole", 3);
  state.set("size", std::size_t{4});
  state.set("real", 0.5);
  state.set("flag", true);
  state.set("text", "words");
  state.set("tensor", torch::ones({2}));
  state.set("list", std::vector<at::Tensor>{torch::zeros({1}), torch::ones({3})});
  CHECK(state.get<std::int64_t>("whole") == 3);
  CHECK(state.get<std::int64_t>("size") == 4);
  CHECK(state.get<double>("real") == 0.5);
  CHECK(state.get<bool>("flag"));
  CHECK(state.get<std::string>("text") == "words");
  CHECK(state.get<at::Tensor>("tensor").numel() == 2);
  CHECK(state.tensors("list")[1].numel() == 3);
  CHECK_THROWS_WITH(state.get<double>("nowhere"), Catch::Contains("nothing under 'nowhere'"));
  CHECK_THROWS_WITH(state.get<double>("whole"), Catch::Contains("another type under 'whole'"));
}

TEST_CASE("nested states stand after a prefix, and only that prefix") {
  lt::StateDict inner, outer;
  inner.set("a", 1);
  inner.set("b.c", 2);
  outer.set("in", inner);
  outer.set("inner", 3);
  CHECK(outer.under("in").values().size() == 2);
  CHECK(outer.under("in").get<std::int64_t>("b.c") == 2);
  CHECK(outer.under("nothing").empty());
}

TEST_CASE("a Trainer continues from its state: counters, losses, metrics and policies") {
  const auto data = toy::batches(6);
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.1), b(theirs->parameters(), 0.1);
  lt::Trainer uncut(ours, a, toy::objective, Counts{}, lt::Accumulate<2>{}, lt::Validate{toy::batches(2)});
  const auto expected = uncut.fit(data, {.epochs = 2});

  lt::Trainer first(theirs, b, toy::objective, Counts{}, lt::Accumulate<2>{}, lt::Validate{toy::batches(2)});
  first.fit(data, {.epochs = 2, .max_steps = 4});
  lt::Trainer second(theirs, b, toy::objective, Counts{}, lt::Accumulate<2>{}, lt::Validate{toy::batches(2)});
  second.load_state_dict(first.state_dict());
  CHECK(second.metrics().find("validation.loss") == first.metrics().find("validation.loss"));
  const auto result = second.fit(data, {.epochs = 2});
  CHECK(result.loss == expected.loss);
  CHECK(result.steps == 6);
  CHECK(second.policy<Counts>().windows == 6);
  CHECK(second.progress().samples == uncut.progress().samples);
  CHECK(second.updates()[0].applied == 6);
  CHECK(toy::distance(ours, theirs) == 0.0);
}

TEST_CASE("a state of other policies is refused, with both sides named, before anything is touched") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer with(net, sgd, toy::objective, Counts{});
  lt::Trainer other(net, sgd, toy::objective, lt::Autocast<lt::fp16>{});
  with.fit(toy::batches(3));
  CHECK_THROWS_WITH(other.load_state_dict(with.state_dict()),
                    Catch::Contains("only in the state: ") && Catch::Contains("Counts") &&
                        Catch::Contains("only in the Trainer: looptorch::Autocast<looptorch::fp16>"));
  CHECK(other.progress().step == 0);
  CHECK_THROWS_AS(with.load_state_dict(lt::StateDict{}), lt::StateError);
  CHECK(with.policy<Counts>().windows == 3);
}

TEST_CASE("policies of one type keep their states apart, in the order in which they are listed") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer first(net, sgd, toy::objective, Marks{1}, Marks{10}),
      second(net, sgd, toy::objective, Marks{1}, Marks{10});
  first.fit(toy::batches(3));
  second.load_state_dict(first.state_dict());
  second.fit(toy::batches(2));
  CHECK(second.metrics().find("mark." + std::to_string(1.0)) == 5.0);
  CHECK(second.metrics().find("mark." + std::to_string(10.0)) == 50.0);
}

TEST_CASE("a state cannot be taken in the middle of a window") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<2>{});
  trainer.step(toy::batches(1)[0]);
  CHECK_THROWS_WITH(trainer.state_dict(), Catch::Contains("finish_window() before state_dict()"));
  trainer.finish_window();
  CHECK_NOTHROW(trainer.load_state_dict(trainer.state_dict()));
}

TEST_CASE(
    "a Trainer in use goes back to an early state: averages, the loss scale and counts begin there again") {
  const auto run = [](auto& trainer) { return trainer.fit(toy::batches(6), {.epochs = 1}); };
  auto ours = toy::net(), theirs = toy::net();
  lt::FusedAdamW a(ours->parameters()), b(theirs->parameters());
  const lt::Autocast<lt::fp16> half{.initial_scale = 4, .growth_interval = 2};
  lt::Trainer used(ours, a, toy::objective, half, lt::AverageWeights{}),
      fresh(theirs, b, toy::objective, half, lt::AverageWeights{});
  const lt::StateDict start = used.state_dict();
  run(used);
  CHECK(used.policy<lt::Autocast<lt::fp16>>().scale.item<double>() == 32);
  used.load_state_dict(start);
  run(used);
  run(fresh);
  CHECK(used.policy<lt::Autocast<lt::fp16>>().scale.item<double>() == 32);
  CHECK(used.policy<lt::AverageWeights>().named().size() ==
        fresh.policy<lt::AverageWeights>().named().size());
  CHECK(used.policy<lt::AverageWeights>().count() == 6);
  CHECK(used.progress().step == 6);
}

TEST_CASE("a loop of steps continues from a state that is loaded in its middle") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer trainer(net, adamw, toy::objective, lt::AverageWeights{}, lt::Autocast<lt::fp16>{});
  for (const auto& batch : toy::batches(3)) trainer.step(batch);
  trainer.finish_window();
  const lt::StateDict state = trainer.state_dict();
  for (const auto& batch : toy::batches(3)) trainer.step(batch);
  trainer.load_state_dict(state);
  for (const auto& batch : toy::batches(2)) trainer.step(batch);
  trainer.finish_window();
  CHECK(trainer.progress().step == 5);
  CHECK(trainer.policy<lt::AverageWeights>().count() == 5);
}

TEST_CASE("skips are counted anew after a state is loaded") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective,
                      lt::On{lt::kCheck, [](lt::UpdateContext& update) { update.veto(); }});
  const lt::StateDict start = trainer.state_dict();
  for (int i = 0; i < 2; ++i) {
    trainer.load_state_dict(start);
    CHECK(trainer.fit(toy::batches(1), {.epochs = 1}).skipped == 1);
  }
}

TEST_CASE("a state of another number of updates or parameter groups is refused before anything is touched") {
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.1), b(net->second->parameters(), 0.1),
      all(net->parameters(), 0.1);
  lt::Trainer one(net, all, toy::objective);
  lt::Trainer two(net, lt::Update{a, toy::objective}, lt::Update{b, toy::objective});
  one.fit(toy::batches(2));
  CHECK_THROWS_WITH(two.load_state_dict(one.state_dict()),
                    Catch::Contains("of 1 updates, the Trainer has 2"));
  CHECK(two.progress().step == 0);
  CHECK_THROWS_AS(one.load_state_dict(two.state_dict()), lt::StateError);
  torch::optim::SGD grouped({torch::optim::OptimizerParamGroup(net->first->parameters()),
                             torch::optim::OptimizerParamGroup(net->second->parameters())},
                            torch::optim::SGDOptions(0.1));
  lt::Trainer groups(net, grouped, toy::objective);
  groups.fit(toy::batches(1));
  CHECK_THROWS_WITH(one.load_state_dict(groups.state_dict()), Catch::Contains("2 parameter groups"));
  CHECK(one.progress().step == 2);
}
