// SPDX-License-Identifier: MIT
// Optimizers whose step takes a closure: a Trainer's steps are those of a loop by hand, bit for bit.
// Tests loop/compose: closure
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <torch/optim/lbfgs.h>

namespace lt = looptorch;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;

static_assert(lt::ClosureOptimizer<LBFGS>);
static_assert(!lt::ClosureOptimizer<torch::optim::SGD>);
static_assert(!lt::ClosureOptimizer<lt::FusedAdamW>);

namespace {

LBFGSOptions options(bool line_search) {
  LBFGSOptions options = LBFGSOptions(line_search ? 1.0 : 0.1).max_iter(7).history_size(5);
  if (line_search) options.line_search_fn("strong_wolfe");
  return options;
}

/// The closure that one writes by hand, for a window of batches: gradients of value x weight / first weight.
at::Tensor evaluate(toy::Net& net, LBFGS& lbfgs, const std::vector<toy::Batch>& window) {
  lbfgs.zero_grad();
  double total = 0;
  at::Tensor sum;
  const double unit = static_cast<double>(toy::batches(1)[0].labels.size(0));
  for (const toy::Batch& batch : window) {
    const lt::Loss loss = toy::objective(net, batch);
    const double weight = loss.weight.number();
    total += weight;
    const at::Tensor part = window.size() == 1 || weight == unit ? loss.value : loss.value * (weight / unit);
    part.backward();
    sum = sum.defined() ? sum + part.detach() : part.detach();
  }
  if (window.size() == 1) return sum;
  for (const auto& parameter : net->parameters()) parameter.mutable_grad() *= unit / total;
  return sum * (unit / total);
}

/// The counts of LBFGS's iterations, evaluations and pairs, and the sum of its history.
std::vector<double> state_of(LBFGS& lbfgs) {
  auto& state = static_cast<torch::optim::LBFGSParamState&>(*lbfgs.state().begin()->second);
  double sum = state.prev_flat_grad().sum().item<double>() + state.d().sum().item<double>();
  for (const auto& pair : state.old_dirs()) sum += pair.sum().item<double>();
  return {double(state.n_iter()), double(state.func_evals()), double(state.old_dirs().size()), sum};
}

/// An optimizer of a program's own, with the signature that it overrides.
struct DefaultClosure : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override { return closure(); }
};

}  // namespace

TEST_CASE("fit with LBFGS takes the steps of a loop by hand, bit for bit") {
  const auto data = toy::batches(6);
  for (const bool line_search : {false, true})
    for (const std::size_t window : {1, 2}) {
      INFO("line search " << line_search << ", window " << window);
      auto ours = toy::net(), theirs = toy::net();
      const auto before = ours->first->weight.detach().clone();
      LBFGS a(ours->parameters(), options(line_search)), b(theirs->parameters(), options(line_search));
      lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<>{static_cast<std::int64_t>(window)});
      std::vector<double> first;
      for (int epoch = 0; epoch < 2; ++epoch)
        for (std::size_t i = 0; i < data.size(); i += window) {
          const std::vector<toy::Batch> part(data.begin() + static_cast<std::ptrdiff_t>(i),
                                             data.begin() + static_cast<std::ptrdiff_t>(i + window));
          int calls = 0;
          b.step([&] {
            torch::AutoGradMode with_gradients(true);
            const at::Tensor loss = evaluate(theirs, b, part);
            if (calls++ == 0 && epoch == 1) first.push_back(loss.item<double>());
            return loss;
          });
          CHECK(calls >= 2);
        }
      const auto result = trainer.fit(data, {.epochs = 2});
      CHECK(toy::distance(ours, theirs) == 0.0);
      CHECK_FALSE(ours->first->weight.equal(before));
      CHECK(result.steps == static_cast<std::int64_t>(first.size()) * 2);
      CHECK(trainer.updates()[0].loss.totals().weight == [&] {
        double total = 0;
        for (const auto& batch : data) total += static_cast<double>(batch.labels.size(0));
        return total;
      }());
      if (window == 1 && first.size() == 6) CHECK(std::isfinite(result.loss));
      CHECK_FALSE(toy::has_gradients(ours));
      CHECK(trainer.updates()[0].name == "update");
    }
}

TEST_CASE(
    "each objective is called as often as by hand: the window's own evaluation is the closure's first") {
  const auto data = toy::batches(3);
  auto ours = toy::net(), theirs = toy::net();
  LBFGS a(ours->parameters(), options(true)), b(theirs->parameters(), options(true));
  int our_calls = 0, their_calls = 0;
  lt::Trainer trainer(ours, a, [&](toy::Net& net, const toy::Batch& batch) {
    ++our_calls;
    return toy::objective(net, batch);
  });
  for (const auto& batch : data) {
    trainer.step(batch);
    b.step([&] {
      torch::AutoGradMode with_gradients(true);
      ++their_calls;
      return evaluate(theirs, b, {batch});
    });
  }
  CHECK(our_calls == their_calls);
  CHECK(toy::distance(ours, theirs) == 0.0);
  CHECK(trainer.evaluate(data).batches == 3);
}

TEST_CASE("an update by closure stands beside others, under schedules, averages and vetoes") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  LBFGS lbfgs(net->first->parameters(), options(true));
  torch::optim::SGD sgd(net->second->parameters(), 0.1);
  std::vector<double> rates;
  bool veto = false;
  lt::Trainer trainer(net, lt::Update{lbfgs, toy::objective, {.name = "newton"}},
                      lt::Update{sgd, toy::objective}, lt::Accumulate<2>{},
                      lt::ScheduleLr{.update = "newton"}, lt::AverageWeights{},
                      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
                               if (update.index() == 0)
                                 rates.push_back(lbfgs.param_groups()[0].options().get_lr());
                               update.veto(veto);
                             }});
  const auto start = trainer.evaluate(data, toy::objective).loss;
  CHECK(trainer.fit(data, {.epochs = 2}).steps == 4);
  CHECK(trainer.updates()[0].applied == 4);
  CHECK(trainer.policy<lt::AverageWeights>().count(0) == 4);
  CHECK(rates == std::vector{1.0, 0.75, 0.5, 0.25});
  CHECK(toy::objective(net, toy::join(data, 0, 4)).value.item<double>() < start);
  veto = true;
  const auto before = net->first->weight.detach().clone();
  trainer.fit(data, {.epochs = 3});
  CHECK(net->first->weight.equal(before));
  CHECK(trainer.updates()[0].skipped == 2);
}

TEST_CASE(
    "what an evaluation within a step throws leaves parameters and history as they were before the step") {
  const auto data = toy::batches(2);
  for (const bool not_a_number : {false, true}) {
    auto net = toy::net(), undisturbed = toy::net();
    LBFGS lbfgs(net->parameters(), options(true)), other(undisturbed->parameters(), options(true));
    lt::Trainer(undisturbed, other, toy::objective).fit(data);
    int calls = 0, fails_at = -1;
    lt::Trainer trainer(net, lbfgs, [&](toy::Net& net, const toy::Batch& batch) {
      lt::Loss loss = toy::objective(net, batch);
      if (++calls == fails_at) {
        if (!not_a_number) throw std::runtime_error("cable pulled");
        loss.value = loss.value * NAN;
      }
      return loss;
    });
    trainer.step(data[0]);
    const auto before = torch::cat({net->first->weight.flatten(), net->second->weight.flatten()}).detach();
    fails_at = calls + 3;
    if (not_a_number)
      CHECK_THROWS_AS(trainer.step(data[1]), lt::NonFiniteLoss);
    else
      CHECK_THROWS_WITH(trainer.step(data[1]), "cable pulled");
    CHECK(torch::cat({net->first->weight.flatten(), net->second->weight.flatten()}).equal(before));
    CHECK(trainer.progress().step == 1);
    CHECK_FALSE(toy::has_gradients(net));
    CHECK(trainer.step(data[1]).step == 2);
    CHECK(toy::distance(net, undisturbed) == 0.0);
    CHECK(state_of(lbfgs) == state_of(other));
  }
}

TEST_CASE("an exception in the first step leaves no history") {
  const auto data = toy::batches(1);
  auto net = toy::net();
  LBFGS lbfgs(net->parameters(), options(true));
  int calls = 0;
  lt::Trainer trainer(net, lbfgs, [&](toy::Net& net, const toy::Batch& batch) {
    if (++calls == 3) throw std::runtime_error("cable pulled");
    return toy::objective(net, batch);
  });
  CHECK_THROWS_WITH(trainer.step(data[0]), "cable pulled");
  CHECK(lbfgs.state().empty());
}

TEST_CASE("what would change the gradients of the first evaluation only is refused") {
  const auto data = toy::batches(2);
  auto net = toy::net();
  LBFGS lbfgs(net->parameters(), options(true));
  lt::Trainer clipped(net, lbfgs, toy::objective, lt::When{true, lt::ClipGradNorm{1.0}});
  CHECK_THROWS_WITH(clipped.fit(data),
                    Catch::Contains("takes a closure") && Catch::Contains("switch it off"));
  CHECK_THROWS_AS(clipped.fit(data), lt::PolicyConflict);
  lt::Trainer off(net, lbfgs, toy::objective, lt::When{false, lt::Autocast<lt::fp16>{}});
  CHECK(off.fit(data).steps == 2);
  lt::Trainer scaled(net, lbfgs, toy::objective,
                     lt::On{lt::kClip, [](lt::UpdateContext& update) { update.scale_gradients(0.5); }});
  CHECK_THROWS_WITH(scaled.fit(data), Catch::Contains("evaluates them again by a closure"));
}

TEST_CASE("an LBFGS that is held by its base class is refused in a sentence") {
  auto net = toy::net();
  LBFGS lbfgs(net->parameters(), options(true));
  torch::optim::Optimizer& base = lbfgs;
  CHECK_THROWS_WITH(lt::Trainer(net, base, toy::objective),
                    Catch::Contains("hold it as torch::optim::LBFGS"));
}

TEST_CASE("a step that calls a closure of which its type does not show the need is refused in a sentence") {
  auto net = toy::net();
  DefaultClosure optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  lt::Trainer trainer(net, optimizer, toy::objective);
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)),
                    Catch::Contains("DefaultClosure calls a closure, and was given none") &&
                        Catch::Contains("without a default argument"));
}
