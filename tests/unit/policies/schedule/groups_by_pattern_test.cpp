// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/policies/schedule/groups_by_pattern.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <functional>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr double kFullRate = 0.5;
const lt::StepDecay kHalves{.every = 1, .factor = 0.5};

using Joins = std::function<void(toy::Net&, torch::optim::SGD&)>;

/// Returns the groups' rates in the third of three windows. The optimizer begins with the first layer's
/// parameters; `joins` is called after the first window.
std::vector<double> rates_after(const Joins& joins, std::vector<lt::ScheduleLr> schedules) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->first->parameters(), kFullRate);
  std::vector<double> rates;
  const auto note = [&](lt::UpdateContext&) {
    rates.clear();
    for (const auto& group : sgd.param_groups()) rates.push_back(group.options().get_lr());
  };
  const auto change = [&](lt::WindowContext& window) {
    if (window.run.progress().step == 1) joins(net, sgd);
  };
  schedules.resize(2);
  lt::Trainer trainer(net, sgd, toy::objective, lt::On{lt::kObserve, change}, lt::On{lt::kUpdate, note},
                      schedules[0], lt::When{!schedules[1].groups.empty(), schedules[1]});
  trainer.fit(toy::batches(3));
  return rates;
}

void add_group(toy::Net& net, torch::optim::SGD& sgd) { sgd.add_param_group({net->second->parameters()}); }
void add_weight(toy::Net& net, torch::optim::SGD& sgd) {
  sgd.param_groups()[0].params().push_back(net->second->weight);
}
void change_groups(toy::Net& net, torch::optim::SGD& sgd) {
  auto& params = sgd.param_groups()[0].params();
  const auto first = params;
  params = net->second->parameters();
  sgd.add_param_group({first});
}

}  // namespace

TEST_CASE("a group of which only a part matches is refused, with its parameters") {
  auto net = toy::net();
  torch::optim::SGD whole(net->parameters(), kFullRate);
  lt::Trainer trainer(net, whole, toy::objective, lt::ScheduleLr{.groups = {"first.*", "*.weight"}});
  CHECK_THROWS_AS(trainer.fit(toy::batches(1)), lt::UsageError);
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)),
                    Catch::Contains("'first.*', '*.weight', match a part of group 0 of update 'update'") &&
                        Catch::Contains("first.weight, first.bias, second.weight, but not second.bias"));
}

TEST_CASE("groups and parameters that join within a fit are judged as they join") {
  const lt::ScheduleLr first{.decay = kHalves, .groups = {"first.*"}};
  CHECK(rates_after(add_group, {first}) == std::vector{kFullRate / 4, kFullRate});
  CHECK(rates_after(add_group, {{.decay = kHalves, .groups = {"*"}}}) ==
        std::vector{kFullRate / 4, kFullRate / 4});
  CHECK_THROWS_WITH(
      rates_after(add_group, {{.decay = kHalves, .groups = {"first.*", "*.weight"}}}),
      Catch::Contains("a part of group 1") && Catch::Contains("second.weight, but not second.bias"));
  CHECK_THROWS_WITH(rates_after(add_weight, {first}), Catch::Contains("but not second.weight"));
}

TEST_CASE("groups that change places within a fit keep their schedules") {
  const lt::ScheduleLr first{.decay = kHalves, .groups = {"first.*"}};
  CHECK(rates_after(change_groups, {first}) == std::vector{kFullRate, kFullRate / 4});
}

TEST_CASE("two schedules for one rate conflict wherever the group stands") {
  const lt::ScheduleLr first{.decay = kHalves, .groups = {"first.*"}};
  CHECK_THROWS_WITH(rates_after(add_group, {first, {.groups = {"first.weight", "first.bias"}}}),
                    Catch::Contains("update 'update' for 'first.weight' is set by"));
}

TEST_CASE("any name of a tied weight counts, and parameters outside of the model match no pattern") {
  auto net = toy::net();
  net->register_parameter("tied", net->second->weight);
  at::Tensor outside = torch::ones({2}, torch::kDouble).requires_grad_();
  torch::optim::SGD sgd({torch::optim::OptimizerParamGroup({net->second->weight}),
                         torch::optim::OptimizerParamGroup({outside})},
                        torch::optim::SGDOptions(kFullRate));
  const lt::UpdateView view{
      .name = "update", .optimizer = &sgd, .parameters = {net->second->weight, outside}};
  const lt::Run run(*net, {view});
  for (const char* pattern : {"second.weight", "tied"})
    CHECK(lt::detail::GroupsByPattern(run, {{pattern}}).of(view) == std::vector<std::size_t>{0});
  const lt::detail::GroupsByPattern all(run, {{"*"}});
  CHECK(all.of(view) == std::vector<std::size_t>{0});
  CHECK(all.leader(view, 1) == "parameter 1 of update 'update' (outside of the model)");
}
