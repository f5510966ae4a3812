// SPDX-License-Identifier: MIT
// Tests base: first_few
#include "support/precompiled.hpp"

#include <looptorch/loop/step/untrained.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <string>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;

namespace {

/// Keeps LibTorch's warnings while it lives.
struct Warnings : c10::WarningHandler {
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
  c10::WarningUtils::WarningHandlerGuard guard{this};
};

/// Returns what a fit says whose optimizer has the second layer only.
template <class... Policies>
std::vector<std::string> told(toy::Net& net, const Policies&... policies) {
  Warnings warnings;
  torch::optim::SGD sgd(net->second->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, policies...);
  trainer.fit(toy::batches(2), {.epochs = 2});
  trainer.fit(toy::batches(1));
  return warnings.texts;
}

}  // namespace

TEST_CASE("parameters that no update trains are told once a Trainer, by number and name") {
  auto net = toy::net();
  const auto texts = told(net);
  REQUIRE(texts.size() == 1);
  CHECK_THAT(texts[0], Contains("no update trains 2 of the model's parameters that require gradients: "
                                "first.weight, first.bias. Give them to an optimizer, or freeze them"));
  net->register_parameter("third", torch::ones({1}, torch::kDouble));
  net->register_parameter("fourth", torch::ones({1}, torch::kDouble));
  CHECK_THAT(told(net).at(0), Contains(" 4 of the model's") && Contains(" and 1 more. Give them"));

  Warnings warnings;
  auto other = toy::net();
  torch::optim::SGD sgd(other->first->parameters(), 0.1);
  lt::Trainer trainer(other, sgd, toy::objective);
  trainer.step(toy::batches(1)[0]), trainer.step(toy::batches(1)[0]);
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Contains("second.weight, second.bias"));
}

TEST_CASE("nothing is said of parameters that are frozen, by a flag or by a policy, or unfrozen later") {
  auto net = toy::net();
  CHECK(told(net, lt::Freeze{"first.*"}).empty());
  CHECK(told(net, lt::UnfreezeAt{{.epoch = 9, .patterns = {"first.*"}}}).empty());
  net = toy::net();
  for (at::Tensor& parameter : net->first->parameters()) parameter.set_requires_grad(false);
  CHECK(told(net).empty());
}

TEST_CASE("nothing is said of parameters that another update or another Trainer trains") {
  auto net = toy::net();
  torch::optim::SGD first(net->first->parameters(), 0.1), second(net->second->parameters(), 0.1);
  Warnings warnings;
  {
    lt::Trainer both(net, lt::Update{first, toy::objective}, lt::Update{second, toy::objective});
    both.fit(toy::batches(1));
    lt::Trainer one(net, first, toy::objective);
    lt::Trainer other(net, second, toy::objective);  // has not begun yet as the one does
    one.step(toy::batches(1)[0]);
    lt::Trainer moved = std::move(other);
    moved.step(toy::batches(1)[0]);
    CHECK(warnings.texts.empty());
  }
  lt::Trainer alone(net, first, toy::objective);
  alone.fit(toy::batches(1));
  CHECK(warnings.texts.size() == 1);
}
