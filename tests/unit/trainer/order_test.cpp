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
};
using Early = Records<lt::Phase::unscale>;
using Late = Records<lt::Phase::observe>;

/// Depends on order: each adds or multiplies.
struct Adds {
  static constexpr lt::Phase phase = lt::Phase::clip;
  void before_update(lt::UpdateContext& update) const {
    for (auto& gradient : update.gradients()) gradient.add_(0.125);
  }
};
struct Doubles {
  static constexpr lt::Phase phase = lt::Phase::clip;  // a tie with Adds, broken by name
  void before_update(lt::UpdateContext& update) const { update.scale_gradients(2.0); }
};
struct Squares {
  static constexpr lt::Phase phase = lt::Phase::unscale;
  void before_update(lt::UpdateContext& update) const {
    for (auto& gradient : update.gradients()) gradient.mul_(gradient);
  }
};

template <class... Policies>
toy::Net trained(Policies... policies) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, policies...);
  trainer.fit(toy::batches(7), {.epochs = 2});
  return net;
}

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

TEST_CASE("evaluate runs forward scopes and nothing else") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, Early{});
  log_.clear();
  trainer.evaluate(toy::batches(1));
  CHECK(log_ == std::vector<std::string>{"evaluating", "enter 0", "leave 0"});
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

TEST_CASE("an epoch that max_steps cuts short has no end") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.5);
  lt::Trainer trainer(net, sgd, toy::objective, Early{});
  log_.clear();
  trainer.fit(toy::batches(3), {.max_steps = 2});
  CHECK(std::count(log_.begin(), log_.end(), "epoch end 0") == 0);
  CHECK(log_.back() == "fit end 0 max_steps");
}

TEST_CASE("listing order never matters: every order gives the same bits") {
  const Adds adds;
  const Doubles doubles;
  const Squares squares;
  const lt::ClipGradNorm clip{0.5};
  const lt::Accumulate<3> accumulate;
  auto reference = trained(adds, doubles, squares, clip, accumulate);
  int compared = 0;
  const auto check = [&](toy::Net net) {
    ++compared;
    CHECK(toy::distance(reference, net) == 0.0);
  };
  // all orders of the four that touch gradients; accumulate in changing places
  check(trained(adds, doubles, clip, squares, accumulate)),
      check(trained(adds, squares, doubles, accumulate, clip));
  check(trained(adds, squares, clip, doubles, accumulate)),
      check(trained(adds, clip, accumulate, doubles, squares));
  check(trained(adds, accumulate, clip, squares, doubles)),
      check(trained(accumulate, doubles, adds, squares, clip));
  check(trained(doubles, adds, clip, squares, accumulate)),
      check(trained(doubles, squares, adds, accumulate, clip));
  check(trained(doubles, squares, clip, adds, accumulate)),
      check(trained(doubles, clip, accumulate, adds, squares));
  check(trained(doubles, accumulate, clip, squares, adds)),
      check(trained(accumulate, squares, adds, doubles, clip));
  check(trained(squares, adds, clip, doubles, accumulate)),
      check(trained(squares, doubles, adds, accumulate, clip));
  check(trained(squares, doubles, clip, adds, accumulate)),
      check(trained(squares, clip, accumulate, adds, doubles));
  check(trained(squares, accumulate, clip, doubles, adds)),
      check(trained(accumulate, clip, adds, doubles, squares));
  check(trained(clip, adds, squares, doubles, accumulate)),
      check(trained(clip, doubles, adds, accumulate, squares));
  check(trained(clip, doubles, squares, adds, accumulate)),
      check(trained(clip, squares, accumulate, adds, doubles));
  check(trained(clip, accumulate, squares, doubles, adds));
  CHECK(compared == 23);
}
