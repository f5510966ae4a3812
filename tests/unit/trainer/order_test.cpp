// SPDX-License-Identifier: MIT
// Which hooks run, in which order, whatever the order in which policies are listed.
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
  static std::string name() { return std::to_string(static_cast<int>(P)); }
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
  at::Tensor scale_loss(const at::Tensor& loss) const {
    log_.push_back("scale " + name());
    return loss * 1.0;
  }
  void before_update(lt::UpdateContext&) const { log_.push_back("before " + name()); }
  void after_update(lt::UpdateContext&) const { log_.push_back("after " + name()); }
  void on_window_end(lt::WindowContext&) const { log_.push_back("window " + name()); }
  Scope evaluation_scope(const lt::EvaluationContext&) const {
    log_.push_back("evaluation");
    return Scope();
  }
};
using Early = Records<lt::Phase::unscale>;
using Late = Records<lt::Phase::observe>;

}  // namespace

TEST_CASE("each hook runs where it belongs, policies by phase") {
  log_.clear();
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, Late{}, lt::Accumulate<2>{}, Early{});
  trainer.fit(toy::batches(2));
  const std::vector<std::string> micro{"training", "enter 0", "training", "enter 5",
                                       "leave 5",  "leave 0", "scale 0",  "scale 5"};
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

TEST_CASE("a veto by tensor is settled before the next update: after_update waits until then") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  std::vector<std::string> log;
  bool strike = false;
  lt::Trainer trainer(
      net, adamw, toy::objective,
      lt::On{lt::kUnscale, [&](lt::UpdateContext& update) { update.veto(torch::full({}, strike)); }},
      lt::On{lt::kObserve,
             [&](lt::UpdateContext& update) {
               log.push_back("after " + std::to_string(update.view().applied));
             }},
      lt::On{lt::kObserve, [&](lt::WindowContext& window) {
               log.push_back("window " + std::to_string(window.run.progress().step));
             }});
  for (const bool strikes : {false, true, false}) {
    strike = strikes;
    trainer.step(toy::batches(1)[0]);
  }
  CHECK(log == std::vector<std::string>{"window 1", "after 1", "window 2", "window 3"});
  CHECK(trainer.progress().skipped == 1);
  trainer.finish_window();
  CHECK(log.back() == "after 2");
  CHECK(trainer.updates()[0].applied == 2);
  strike = true;
  trainer.fit(toy::batches(2), {.epochs = 1});
  CHECK(trainer.progress().skipped == 3);
  CHECK(trainer.updates()[0].skipped == 3);
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
