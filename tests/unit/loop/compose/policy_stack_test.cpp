// SPDX-License-Identifier: MIT
// Which hooks run, in which order, whatever the order in which policies are listed; When.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

std::vector<std::string> log_;  // NOLINT: what the recording policies write to

/// Records every hook there is.
template <lt::Phase P>
struct Records {
  static constexpr lt::Phase phase = P;
  static std::string name() { return P == lt::Phase::check ? "0" : "5"; }
  struct Scope {
    Scope() { log_.push_back("enter " + name()); }
    ~Scope() { log_.push_back("leave " + name()); }
    Scope(const Scope&) = delete;
  };
  void on_fit_begin(lt::FitContext&) const { log_.push_back("fit begin " + name()); }
  void on_fit_end(lt::FitContext& fit) const {
    log_.push_back("fit end " + name() + " " + std::string(lt::to_string(fit.status)));
  }
  void on_epoch_begin(lt::EpochContext&) const { log_.push_back("epoch begin " + name()); }
  void on_epoch_end(lt::EpochContext&) const { log_.push_back("epoch end " + name()); }
  Scope forward_scope(const lt::ForwardContext& context) const {
    log_.push_back(context.training ? "training" : "evaluating");
    return Scope();
  }
  void before_update(lt::UpdateContext&) const { log_.push_back("before " + name()); }
  void after_update(lt::UpdateContext&) const { log_.push_back("after " + name()); }
  void on_window_end(lt::WindowContext&) const { log_.push_back("window " + name()); }
  Scope evaluation_scope(const lt::EvaluationContext&) const {
    log_.push_back("evaluation");
    return Scope();
  }
};
using Early = Records<lt::Phase::check>;
using Late = Records<lt::Phase::observe>;

}  // namespace

TEST_CASE("each hook runs where it belongs, policies by phase") {
  log_.clear();
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, Late{}, lt::Accumulate<2>{}, Early{});
  trainer.fit(toy::batches(2));
  const std::vector<std::string> micro{"training", "enter 0", "training", "enter 5", "leave 5", "leave 0"};
  std::vector<std::string> expected{"fit begin 0", "fit begin 5", "epoch begin 0", "epoch begin 5"};
  expected.insert(expected.end(), micro.begin(), micro.end());
  expected.insert(expected.end(), micro.begin(), micro.end());
  for (const char* line : {"before 0", "before 5", "after 0", "after 5", "window 0", "window 5",
                           "epoch end 0", "epoch end 5", "fit end 0 completed", "fit end 5 completed"})
    expected.push_back(line);
  CHECK(log_ == expected);
}

TEST_CASE("evaluate runs its scope, forward scopes and nothing else") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, Early{});
  log_.clear();
  trainer.evaluate(toy::batches(2));
  CHECK(log_ == std::vector<std::string>{"evaluation", "enter 0", "evaluating", "enter 0", "leave 0",
                                         "evaluating", "enter 0", "leave 0", "leave 0"});
}

TEST_CASE("on_fit_end runs after an exception too, and says so") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(
      net, sgd, [](toy::Net&, const toy::Batch&) -> at::Tensor { throw std::runtime_error("x"); }, Early{});
  log_.clear();
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), "x");
  CHECK(log_.back() == "fit end 0 failed");
  CHECK(std::count(log_.begin(), log_.end(), "leave 0") == 1);
}

namespace {

/// What hooks see in three windows, of which the second is vetoed.
enum class Veto { never, by_bool, by_tensor };
template <class Optimizer, class Observer>
std::vector<std::string> seen_by_hooks(Veto veto) {
  log_.clear();
  auto net = toy::net();
  Optimizer optimizer(net->parameters(), {1e-3});
  int window = 0;
  lt::Trainer trainer(net, optimizer, toy::objective, Observer{}, lt::Accumulate<2>{},
                      lt::On{lt::kCheck,
                             [&](lt::UpdateContext& update) {
                               const bool strike = window++ == 1 && veto != Veto::never;
                               veto == Veto::by_tensor ? update.veto(torch::full({}, strike))
                                                       : update.veto(strike);
                             }},
                      lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                               const lt::UpdateView& update = window.run.updates()[0];
                               log_.push_back(lt::message("window ", window.run.progress().step, ": ",
                                                          update.applied, " made, ", update.skipped,
                                                          " not, mean over ", update.loss.totals().weight));
                             }});
  const auto batch = toy::batches(1)[0];
  for (int i = 0; i < 6; ++i) trainer.step(batch);
  log_.push_back("end");
  (void)trainer.template policy<Observer>();
  log_.push_back(lt::message(trainer.updates()[0].applied, " made"));
  return log_;
}
struct AtOnce {
  struct State {};
  void after_update(lt::UpdateContext& update, State&) const {
    const lt::Progress& progress = update.run.progress();
    log_.push_back(lt::message("update of step ", progress.step, ": ", update.view().applied,
                               " made, samples ", progress.samples, ", gradients ",
                               update.gradients().size()));
  }
};
struct Later : AtOnce {
  static constexpr bool async_after_update = true;
};

}  // namespace

TEST_CASE("hooks see the same whether the host knows that an update was made, or only a tensor") {
  const std::vector<std::string> at_once{"update of step 0: 1 made, samples 0, gradients 0",
                                         "window 1: 1 made, 0 not, mean over 6",
                                         "window 2: 1 made, 1 not, mean over 6",
                                         "update of step 2: 2 made, samples 12, gradients 0",
                                         "window 3: 2 made, 1 not, mean over 12",
                                         "end",
                                         "2 made"};
  const std::vector<std::string> later{"window 1: 0 made, 0 not, mean over 6",
                                       "update of step 0: 1 made, samples 0, gradients 0",
                                       "window 2: 1 made, 0 not, mean over 6",
                                       "window 3: 1 made, 1 not, mean over 12",
                                       "end",
                                       "update of step 2: 2 made, samples 12, gradients 0",
                                       "2 made"};
  for (const Veto veto : {Veto::by_bool, Veto::by_tensor}) {
    CHECK(seen_by_hooks<lt::FusedAdamW, AtOnce>(veto) == at_once);
    CHECK(seen_by_hooks<torch::optim::SGD, AtOnce>(veto) == at_once);
    CHECK(seen_by_hooks<lt::FusedAdamW, Later>(veto) == later);
    CHECK(seen_by_hooks<torch::optim::SGD, Later>(veto) == later);
  }
  CHECK(seen_by_hooks<lt::FusedAdamW, Later>(Veto::never).back() == "3 made");
}

TEST_CASE("what after_update does to the parameters is there before the next forward pass") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters(), {.lr = 1.0});
  double largest = 0;
  const auto objective = [&](toy::Net& net, const toy::Batch& batch) {
    largest = std::max(largest, net->first->weight.abs().max().item<double>());
    return toy::objective(net, batch);
  };
  lt::Trainer trainer(net, adamw, objective,
                      lt::On{lt::kCheck, [](lt::UpdateContext& update) { update.veto(torch::zeros({})); }},
                      lt::On{lt::kAverage, [&](lt::UpdateContext&) {
                               torch::NoGradGuard no_gradients;
                               net->first->weight.clamp_(-0.5, 0.5);
                             }});
  trainer.fit(toy::batches(4), {.epochs = 2});
  CHECK(largest <= 0.5);
}

TEST_CASE("an epoch that max_steps cuts short has no end") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, Early{});
  log_.clear();
  trainer.fit(toy::batches(3), {.max_steps = 2});
  CHECK(std::count(log_.begin(), log_.end(), "epoch end 0") == 0);
  CHECK(log_.back() == "fit end 0 max_steps");
}

TEST_CASE("When switches a policy at run time, bf16 here") {
  const at::Tensor batch = torch::sin(torch::arange(32, torch::kFloat)).reshape({8, 4});
  for (const bool on : {false, true}) {
    auto net = toy::net();
    net->to(torch::kFloat);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    bool seen = false;
    lt::Trainer trainer(
        net, sgd,
        [&](toy::Net& net, const at::Tensor& x) {
          seen = at::autocast::is_autocast_enabled(at::kCPU);
          return net(x).pow(2).mean();
        },
        lt::When{on, lt::Autocast<lt::bf16>{}}, lt::When{!on, lt::ClipGradNorm{1.0}},
        lt::When{on, lt::Accumulate<2>{}});
    CHECK(trainer.fit(std::vector{batch, batch}).steps == (on ? 1 : 2));
    CHECK(seen == on);
    CHECK(trainer.policy<lt::ClipGradNorm>().norm.defined() == !on);
  }
}

TEST_CASE("variants of one family may be switched, but not both be on") {
  const auto run = [](bool first, bool second) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    lt::Trainer trainer(net, sgd, toy::objective, lt::When{first, lt::Accumulate<2>{}},
                        lt::When{second, lt::Accumulate<3>{}});
    return trainer.fit(toy::batches(6)).steps;
  };
  CHECK(run(true, false) == 3);
  CHECK(run(false, true) == 2);
  CHECK(run(false, false) == 6);
  CHECK_THROWS_AS(run(true, true), lt::PolicyConflict);
  CHECK_THROWS_WITH(run(true, true), Catch::Contains("Accumulate<2>") && Catch::Contains("Accumulate<3>") &&
                                         Catch::Contains("listed twice, or in two forms") &&
                                         Catch::Contains("docs/errors.md#one-of-a-family"));
}
