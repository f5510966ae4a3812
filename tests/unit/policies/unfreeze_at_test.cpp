// SPDX-License-Identifier: MIT
// UnfreezeAt against the loop by hand and against a run in PyTorch, recorded by tests/parity/schedules.py.
// Tests policies/weights: parameter_owners
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/unfreeze_at.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

namespace lt = looptorch;

namespace {

bool trained(const torch::nn::Linear& layer) {
  CHECK(layer->weight.requires_grad() == layer->bias.requires_grad());
  return layer->weight.requires_grad();
}

torch::optim::AdamW two_groups(toy::Net& net, double rate = 1e-2) {
  return torch::optim::AdamW({torch::optim::OptimizerParamGroup(net->first->parameters()),
                              torch::optim::OptimizerParamGroup(net->second->parameters())},
                             torch::optim::AdamWOptions(rate));
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().flatten());
  return torch::cat(parts);
}

at::Tensor moments(torch::optim::AdamW& optimizer, toy::Net& net) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : net->parameters())
    all.push_back(
        static_cast<torch::optim::AdamWParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()))
            .exp_avg());
  return flat(all);
}

double rate_of(const torch::optim::Optimizer& optimizer, std::size_t group = 0) {
  return optimizer.param_groups()[group].options().get_lr();
}

/// Which layers were trained in each epoch, by the flags that the objective saw.
struct Seen {
  std::vector<std::pair<bool, bool>> epochs;
  auto policy() {
    return lt::On{lt::kUpdate, [this](lt::UpdateContext& update) {
                    const auto epoch = static_cast<std::size_t>(update.run.progress().epoch);
                    const auto& parameters = update.view().parameters;
                    epochs.resize(epoch + 1);
                    epochs[epoch] = {parameters[0].requires_grad(), parameters[2].requires_grad()};
                    for (const auto& parameter : parameters)
                      CHECK(parameter.grad().defined() == parameter.requires_grad());
                  }};
  }
};

}  // namespace

TEST_CASE("freezing, unfreezing at a rate of its own and the moments are PyTorch's") {
  auto net = toy::net();
  {
    torch::NoGradGuard no_gradients;
    int64_t phase = 0;
    for (auto& parameter : net->parameters())
      parameter.copy_(reference::wave(parameter.sizes(), static_cast<double>(phase++)));
  }
  auto adamw = two_groups(net);
  std::vector<toy::Batch> data;
  for (int k = 0; k < 3; ++k) data.push_back({reference::wave({5, 4}, 0.2 * k), reference::wave({5, 3}, k)});
  const auto objective = [](toy::Net& net, const toy::Batch& batch) {
    return (net(batch.features) - batch.labels).pow(2).mean();
  };
  const auto check = [&](const std::string& when) {
    INFO(when);
    const auto& recorded = reference::tensors("schedules");
    CHECK(reference::difference(flat(net->parameters()), recorded.at("unfreeze." + when + ".parameters")) <
          1e-12);
    CHECK(reference::difference(moments(adamw, net), recorded.at("unfreeze." + when + ".moments")) < 1e-12);
  };
  lt::Trainer(net, adamw, objective).fit(data);
  check("before");
  const auto first = flat(net->first->parameters());
  lt::Trainer trainer(net, adamw, objective,
                      lt::UnfreezeAt{{.epoch = 2, .patterns = {"first.*"}, .lr = 3e-3}});
  trainer.fit(data, {.epochs = 2});
  check("frozen");
  CHECK(flat(net->first->parameters()).equal(first));
  trainer.fit(data, {.epochs = 4});
  check("unfrozen");
}

TEST_CASE("training is the loop by hand with the flags set by hand, under accumulation too") {
  auto ours = toy::net(), theirs = toy::net();
  lt::FusedAdamW a(ours->parameters(), {.lr = 1e-2}), b(theirs->parameters(), {.lr = 1e-2});
  const auto data = toy::batches(7);
  Seen seen;
  lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<2>{}, seen.policy(),
                      lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.weight", "first.bias"}}});
  trainer.fit(data, {.epochs = 3});
  for (auto& parameter : theirs->first->parameters()) parameter.set_requires_grad(false);
  toy::train_by_hand(theirs, b, data, 2, 1);
  for (auto& parameter : theirs->first->parameters()) parameter.set_requires_grad(true);
  toy::train_by_hand(theirs, b, data, 2, 2);
  CHECK(toy::distance(ours, theirs) < 1e-12);
  CHECK(seen.epochs == std::vector<std::pair<bool, bool>>{{false, true}, {true, true}, {true, true}});
}

TEST_CASE("of several rules that match, the earliest epoch counts, in whatever order they stand") {
  const lt::UnfreezeRule head{.epoch = 0, .patterns = {"second.*"}}, all{.epoch = 2, .patterns = {"*"}};
  for (const auto& rules : {std::vector{head, all}, std::vector{all, head}}) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    Seen seen;
    lt::Trainer trainer(net, sgd, toy::objective, lt::UnfreezeAt(rules), seen.policy());
    trainer.fit(toy::batches(2), {.epochs = 3});
    CHECK(seen.epochs == std::vector<std::pair<bool, bool>>{{false, true}, {false, true}, {true, true}});
  }
}

TEST_CASE("what the user froze and no rule matches stays frozen; what a rule matches is unfrozen") {
  auto net = toy::net();
  for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
  net->second->bias.set_requires_grad(true);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}});
  trainer.fit(toy::batches(2), {.epochs = 1});
  CHECK_FALSE(trained(net->first));
  trainer.fit(toy::batches(2), {.epochs = 2});
  CHECK(trained(net->first));
  CHECK_FALSE(net->second->weight.requires_grad());
  CHECK(net->second->bias.requires_grad());
}

TEST_CASE("a run that is resumed in a later epoch, or in the middle of one, has the right things unfrozen") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Seen seen;
  lt::Trainer trainer(net, sgd, toy::objective, seen.policy(),
                      lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}}});
  trainer.fit(toy::batches(4), {.max_steps = 6});
  for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);  // as a fresh process may
  net->second->weight.set_requires_grad(true), net->second->bias.set_requires_grad(true);
  trainer.fit(toy::batches(4), {.max_steps = 7});
  CHECK(seen.epochs == std::vector<std::pair<bool, bool>>{{false, true}, {true, true}});
}

TEST_CASE("the rate of an unfrozen group is its full rate, of which schedules take their share") {
  auto net = toy::net();
  auto adamw = two_groups(net);
  std::vector<std::pair<double, double>> rates;
  lt::Trainer trainer(
      net, adamw, toy::objective, lt::ScheduleLr{.decay = lt::StepDecay{.every = 2, .factor = 0.5}},
      lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}, .lr = 4e-3}},
      lt::On{lt::kUpdate, [&](lt::UpdateContext& update) {
               rates.emplace_back(rate_of(update.optimizer(), 0), rate_of(update.optimizer(), 1));
             }});
  trainer.fit(toy::batches(2), {.epochs = 3});
  REQUIRE(rates.size() == 6);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double share = std::pow(0.5, static_cast<double>(i / 2));
    CHECK(rates[i].first == Approx((i < 2 ? 1e-2 : 4e-3) * share));
    CHECK(rates[i].second == Approx(1e-2 * share));
  }
  CHECK(trainer.updates()[0].full_rates == std::vector{4e-3, 1e-2});
}

TEST_CASE("a rate is set once: what the user sets afterwards stays") {
  auto net = toy::net();
  auto adamw = two_groups(net);
  lt::Trainer trainer(net, adamw, toy::objective,
                      lt::UnfreezeAt{{.epoch = 0, .patterns = {"second.*"}, .lr = 5e-3}});
  trainer.fit(toy::batches(1));
  CHECK(rate_of(adamw, 1) == 5e-3);
  adamw.param_groups()[1].options().set_lr(1e-4);
  trainer.fit(toy::batches(1));
  CHECK(rate_of(adamw, 1) == 1e-4);
}

TEST_CASE("a run that is resumed keeps a rate that was lowered after its group was unfrozen") {
  for (const bool by_plateau : {false, true}) {
    // Trains up to a step, from a snapshot if there is one, and notes the rate of each update.
    const auto train = [&](const lt::SnapshotContents* from, int64_t max_steps, std::vector<double>& rates) {
      auto net = toy::net();
      auto adamw = two_groups(net);
      const auto halve = [&](lt::EpochContext& epoch) {
        if (auto& of = adamw.param_groups()[0].options(); !by_plateau && epoch.run.progress().epoch > 1)
          of.set_lr(of.get_lr() / 2);
      };
      lt::Trainer trainer(
          net, adamw, toy::objective, lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}, .lr = 4e-3}},
          lt::When{by_plateau, lt::ScheduleLr{.decay = lt::PlateauDecay{.factor = 0.5, .patience = 0},
                                              .groups = {"first.*"}}},
          lt::Validate{toy::batches(1), [](toy::Net&, const toy::Batch&) { return 1.0; }},
          lt::On{lt::kObserve, halve},
          lt::On{lt::kUpdate, [&](lt::UpdateContext&) { rates.push_back(rate_of(adamw, 0)); }});
      if (from) trainer.restore(*from);
      trainer.fit(toy::batches(2), {.epochs = 5, .max_steps = max_steps});
      return trainer.snapshot();
    };
    std::vector<double> whole;
    train(nullptr, 10, whole);
    CHECK(whole[2] == Approx(4e-3));
    CHECK(whole[9] < whole[2] / 4);
    for (int64_t cut = 1; cut < 10; ++cut) {
      INFO("by_plateau " << by_plateau << ", cut after step " << cut);
      std::vector<double> rates;
      const auto contents = train(nullptr, cut, rates);
      train(&contents, 10, rates);
      CHECK(rates == whole);
    }
  }
}

TEST_CASE("the state of other rules is refused") {
  const lt::UnfreezeAt one{{.epoch = 1, .patterns = {"first.*"}}};
  const lt::UnfreezeAt two{{.epoch = 1, .patterns = {"first.*"}}, {.epoch = 2, .patterns = {"second.*"}}};
  lt::UnfreezeAt::State of_one, of_two;
  of_two.unfrozen = {true, false};
  lt::StateDict saved;
  two.state_dict(saved, of_two);
  CHECK_THROWS_AS(one.load_state_dict(saved, of_one), lt::StateError);
  CHECK_THROWS_WITH(one.load_state_dict(saved, of_one), Catch::Contains("1 rules here, 2 in the state"));
  lt::UnfreezeAt::State loaded;
  two.load_state_dict(saved, loaded);
  CHECK(loaded.unfrozen == of_two.unfrozen);
  const lt::UnfreezeAt others{{.epoch = 1, .patterns = {"second.*"}},
                              {.epoch = 2, .patterns = {"first.weight", "first.bias"}}};
  CHECK_THROWS_WITH(
      others.load_state_dict(saved, loaded),
      Catch::Contains("what UnfreezeAt's rules name is second.*; first.weight, first.bias here, "
                      "first.*; second.* in the state"));
  const lt::UnfreezeAt later{{.epoch = 3, .patterns = {"first.*"}}, {.epoch = 4, .patterns = {"second.*"}}};
  CHECK_NOTHROW(later.load_state_dict(saved, loaded));
  saved.erase("patterns");  // a state of an earlier version
  CHECK_NOTHROW(others.load_state_dict(saved, loaded));
}

TEST_CASE("groups by name pattern, clipping and several updates go with it") {
  auto net = toy::net();
  lt::FusedAdamW adam(
      lt::parameter_groups<lt::FusedAdamW>(*net, {.lr = 1e-2}, {{{"first.*"}, {.lr = 1e-2}}}));
  torch::optim::SGD sgd(net->second->parameters(), 0.1);
  lt::Trainer trainer(net, lt::Update{adam, toy::objective}, lt::Update{sgd, toy::objective},
                      lt::ClipGradNorm{0.1},
                      lt::UnfreezeAt{{.epoch = 1, .patterns = {"first.*"}, .lr = 1e-3}});
  const auto before = flat(net->first->parameters());
  trainer.fit(toy::batches(3), {.epochs = 1});
  CHECK(flat(net->first->parameters()).equal(before));
  trainer.fit(toy::batches(3), {.epochs = 2});
  CHECK_FALSE(flat(net->first->parameters()).equal(before));
  CHECK(rate_of(adam, 1) == 1e-3);
  CHECK(rate_of(adam, 0) == 1e-2);
  CHECK(rate_of(sgd) == 0.1);
}

TEST_CASE("a rule whose epoch comes after the fit's end is warned of once, where the end is known") {
  const auto said = [](int64_t epoch, const lt::FitOptions& options, auto&& batches) {
    const lt::testing::Warnings warnings;
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    lt::Trainer trainer(net, sgd, toy::objective, lt::Accumulate<2>{},
                        lt::UnfreezeAt{{.epoch = 0, .patterns = {"second.*"}},
                                       {.epoch = epoch, .patterns = {"first.weight"}},
                                       {.epoch = epoch + 1, .patterns = {"first.*"}}});
    for (int i = 0; i < 2; ++i) trainer.fit(batches, options);
    std::vector<std::string> found;
    for (const auto& text : warnings.texts)
      if (text.find("UnfreezeAt") != text.npos) found.push_back(text);
    return found;
  };
  const auto data = toy::batches(7);  // 4 windows
  const std::string text =
      "looptorch: UnfreezeAt keeps 'first.weight' frozen: its rule names epoch 5, and the fit ends in epoch 0, "
      "both counted from 0";
  CHECK(said(5, {.epochs = 1}, data) == std::vector<std::string>{text});
  CHECK(said(5, {.max_steps = 4}, data) == std::vector<std::string>{text});
  CHECK(said(2, {.epochs = 3}, data).size() == 1);  // the last rule names epoch 3
  CHECK(said(1, {.epochs = 3}, data).empty());
  CHECK(said(1, {.max_steps = 9}, data).empty());
  CHECK(said(1, {.max_steps = 8}, data).size() == 1);
  CHECK(said(5, {.epochs = 1, .limit_batches = 2}, data).empty());
}

TEST_CASE("an epoch with nothing to train ends with a sentence that says what to look for") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::UnfreezeAt{{.epoch = 1, .patterns = {"*"}}});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), Catch::Contains("are any of them unfrozen?"));
}

TEST_CASE("integer parameters, which cannot be trained, do not disturb a pattern for all") {
  auto net = toy::net();
  net->register_parameter("table", torch::arange(3), /*requires_grad=*/false);
  torch::optim::SGD sgd(net->first->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective, lt::UnfreezeAt{{.epoch = 0, .patterns = {"*"}}});
  CHECK(trainer.fit(toy::batches(1)).steps == 1);
}

TEST_CASE("rules that cannot be are refused by name and value") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto refused = [&](std::vector<lt::UnfreezeRule> rules, const std::string& text) {
    INFO(text);
    const auto fit = [&] {
      lt::Trainer trainer(net, sgd, toy::objective, lt::UnfreezeAt(rules));
      trainer.fit(toy::batches(1));
    };
    CHECK_THROWS_AS(fit(), lt::UsageError);
    CHECK_THROWS_WITH(fit(), Catch::Contains(text));
  };
  refused({}, "at least one rule");
  refused({{.epoch = -1, .patterns = {"*"}}}, "-1");
  refused({{.epoch = 3}}, "epoch 3 has no patterns");
  refused({{.patterns = {"*"}, .lr = -0.5}}, "-0.5");
  refused({{.patterns = {"*"}, .lr = std::nan("")}}, "nan");
  refused({{.epoch = 1, .patterns = {"first.*", "third.*"}}}, "'third.*'");
  refused({{.epoch = 1, .patterns = {"third.*"}}}, "first.weight, first.bias, second.weight");
  refused({{.epoch = 1, .patterns = {"*"}}, {.epoch = 2, .patterns = {"first.*"}}},
          "epoch 2, 'first.*', does nothing");
  refused({{.epoch = 1, .patterns = {"first.*"}, .lr = 0.5}},
          "'first.*', but those are only 2 of 4 parameters in group 0 of update 'update'");
  net->register_module("spare", torch::nn::Linear(2, 2));
  refused({{.epoch = 1, .patterns = {"spare.*"}, .lr = 0.5}}, "no optimizer trains 2");
}

namespace {

double rate(torch::optim::Optimizer& optimizer, std::size_t group) {
  return optimizer.param_groups()[group].options().get_lr();
}

}  // namespace

TEST_CASE("UnfreezeAt sets the rate of its parameters' group wherever that is by then") {
  auto net = toy::net();
  lt::FusedAdamW optimizer(std::vector<lt::FusedAdamW::Group>{
      lt::FusedAdamW::group({net->first->weight}, {.lr = 0.5}),
      lt::FusedAdamW::group({net->first->bias, net->second->weight}, {.lr = 0.3}),
      lt::FusedAdamW::group({net->second->bias}, {.lr = 0.1})});
  lt::Trainer trainer(net, optimizer, toy::objective,
                      lt::UnfreezeAt{{.epoch = 1, .patterns = {"second.bias"}, .lr = 0.007}},
                      lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                               if (window.run.progress().step == 1)
                                 optimizer.param_groups().erase(optimizer.param_groups().begin());
                             }});
  trainer.fit(toy::batches(2), {.epochs = 2});
  CHECK(rate(optimizer, 0) == 0.3);
  CHECK(rate(optimizer, 1) == 0.007);
}
