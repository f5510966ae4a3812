// SPDX-License-Identifier: MIT
// ScheduleLr against transformers' and PyTorch's schedules, recorded by tests/parity/schedules.py.
// Tests policies/schedule: decay_options, lr_cycles, lr_decay, plateau_decay, rate_jump
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/update_in_backward.hpp>
#include <looptorch/trainer.hpp>

#include "support/reference.hpp"
#include "support/toy.hpp"
#include "support/warnings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <utility>

namespace lt = looptorch;
using looptorch::testing::Warnings;

namespace {

constexpr double kFullRate = 0.5;
constexpr auto kEpochs = std::numeric_limits<std::int64_t>::max();

std::vector<double> recorded(const std::string& name) {
  const auto tensor = reference::tensors("schedules").at(name).contiguous();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

double rate_of(const torch::optim::Optimizer& optimizer, std::size_t group = 0) {
  return optimizer.param_groups()[group].options().get_lr();
}

/// Notes the rate that each update of `index` is about to be made with.
auto noting(std::vector<double>& seen, std::size_t index = 0) {
  return lt::On{lt::kUpdate, [&seen, index](lt::UpdateContext& update) {
                  if (update.index() == index) seen.push_back(rate_of(update.optimizer()));
                }};
}

/// Publishes the metric at each epoch's end, beside a Validate that does so in mid-epoch.
auto publishing(double value) {
  return lt::On{lt::kObserve,
                [value](lt::EpochContext& epoch) { epoch.run.metrics().publish("validation.loss", value); }};
}

/// Notes all rates, by update and group, as each window ends.
auto noting_all(std::vector<std::vector<double>>& last) {
  return lt::On{lt::kObserve, [&last](lt::WindowContext& window) {
                  last.clear();
                  for (const lt::UpdateView& view : window.run.updates()) {
                    last.emplace_back();
                    for (std::size_t group = 0; group < view.optimizer->param_groups().size(); ++group)
                      last.back().push_back(rate_of(*view.optimizer, group));
                  }
                }};
}

/// The rates of a fit's updates.
std::vector<double> rates(lt::ScheduleLr schedule, lt::FitOptions options = {}, int64_t batches = 10) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  std::vector<double> seen;
  lt::Trainer trainer(net, sgd, toy::objective, schedule, noting(seen));
  trainer.fit(toy::batches(batches), options);
  return seen;
}

void check_equal(const std::vector<double>& seen, const std::vector<double>& expected,
                 std::size_t count = std::string::npos) {
  REQUIRE(seen.size() >= std::min(count, expected.size()));
  for (std::size_t i = 0; i < std::min(seen.size(), expected.size()); ++i) {
    INFO("update " << i);
    CHECK(seen[i] == Approx(expected[i]).margin(1e-14));
  }
}

/// The rates of epochs of one batch, after each of which the next of `values` is published.
std::vector<double> rates_by_metric(const lt::PlateauDecay& decay, const std::vector<double>& values,
                                    int64_t warmup_steps = 0) {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  std::vector<double> seen;
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{.decay = decay, .warmup_steps = warmup_steps},
                      noting(seen), lt::On{lt::kUpdate, [&](lt::EpochContext& epoch) {
                                             const auto number =
                                                 static_cast<std::size_t>(epoch.run.progress().epoch - 1);
                                             if (number < values.size())
                                               epoch.run.metrics().publish(decay.metric, values[number]);
                                           }});
  trainer.fit(toy::batches(1), {.epochs = static_cast<int64_t>(values.size()) + 1});
  return seen;
}

/// What `rates_by_metric` should be: the full rate, then the recorded rate after each value.
void check_plateau(const lt::PlateauDecay& decay, const std::string& metric, const std::string& name) {
  INFO(name);
  std::vector<double> expected = recorded("plateau." + name);
  expected.insert(expected.begin(), kFullRate);
  check_equal(rates_by_metric(decay, recorded("metric." + metric)), expected);
}

/// Vetoes the updates of these steps, by a number or by a tensor that only the optimizer looks at.
auto vetoing(std::vector<int64_t> steps, bool by_tensor) {
  return lt::On{lt::kClip, [steps, by_tensor](lt::UpdateContext& update) {
                  const bool now = std::count(steps.begin(), steps.end(), update.run.progress().step) > 0;
                  if (by_tensor)
                    update.veto(torch::full({}, now ? 1.0 : 0.0));
                  else
                    update.veto(now);
                }};
}

/// Two nets, each with its own optimizer.
struct PairImpl : torch::nn::Module {
  PairImpl() { register_module("left", left), register_module("right", right); }
  toy::Net left = toy::net(1), right = toy::net(2);
};
TORCH_MODULE(Pair);

auto left_objective = [](Pair& pair, const toy::Batch& batch) { return toy::objective(pair->left, batch); };
auto right_objective = [](Pair& pair, const toy::Batch& batch) { return toy::objective(pair->right, batch); };

/// 16 samples, of which some cannot be read: those before `unread(epoch)`.
struct Unread {
  std::function<std::int64_t(std::int64_t)> unread;
  [[nodiscard]] std::int64_t size() const { return 16; }
  [[nodiscard]] at::Tensor get(std::int64_t index, const lt::SampleContext& context) const {
    if (index < unread(context.epoch)) throw std::runtime_error("cannot be read");
    return torch::full({4}, static_cast<double>(index), torch::kDouble);
  }
};

/// The rates of a fit over batches of 2 of these samples, in the order of the dataset.
template <class... Policies>
std::vector<double> rates_without(std::function<std::int64_t(std::int64_t)> unread, lt::FitOptions options,
                                  lt::ScheduleLr schedule, Policies... policies) {
  auto net = toy::net();
  lt::FusedSGD sgd(net->parameters(), {.lr = kFullRate});
  std::vector<double> seen;
  std::optional<std::int64_t> total;
  lt::Trainer trainer(
      net, sgd, [](toy::Net& net, const at::Tensor& batch) { return net(batch).mean() * 1e-6; }, schedule,
      noting(seen), policies...,
      lt::On{lt::kObserve, [&](lt::EpochContext& epoch) { total = epoch.run.progress().total_steps; }});
  const lt::LoaderOptions loading{.batch_size = 2, .workers = 1, .on_error = lt::OnError::skip};
  const auto result = trainer.fit(lt::PinnedPrefetchLoader(Unread{std::move(unread)}, loading), options);
  CHECK(seen.size() == static_cast<std::size_t>(result.steps));
  CHECK((total == result.steps || result.status == lt::FitStatus::max_steps));
  for (double& rate : seen) rate /= kFullRate;
  return seen;
}

}  // namespace

TEST_CASE("a decay ends with the last step that is made, whatever is skipped in the epochs") {
  const auto always = [](std::int64_t count) { return [=](std::int64_t) { return count; }; };
  for (const std::int64_t bad : {0, 3, 4, 8, 14}) {
    const std::int64_t made = 8 - bad / 2, total = 2 * made;  // steps of an epoch, and of the run
    std::vector<double> expected;
    for (std::int64_t step = 0; step < total; ++step)  // the first epoch counts on 8 steps in each
      expected.push_back(1.0 - static_cast<double>(step) / static_cast<double>(step < made ? 16 : total));
    INFO(bad << " samples");
    check_equal(rates_without(always(bad), {.epochs = 2}, {}), expected);
    check_equal(rates_without(always(bad), {.epochs = 2}, {}, lt::UpdateInBackward{}), expected);
  }
  check_equal(rates_without(always(8), {.epochs = 2, .max_steps = 20}, {}),
              {1, 15. / 16, 14. / 16, 13. / 16, .5, .375, .25, .125});
  check_equal(rates_without(always(8), {.max_steps = 8}, {}),
              {1, .875, .75, .625, .5, .375, .25, .125});  // its own length, as before
  check_equal(rates_without(always(8), {.epochs = 2}, {.decay = lt::LinearDecay{.total_steps = 10}}),
              {1, .9, .8, .7, .6, .5, .4, .3});
  // Windows of 3 batches: those of the second epoch begin with the first batch that can be read.
  check_equal(rates_without(always(12), {.epochs = 3}, {}, lt::Accumulate<3>{}), {1, 2. / 3, 1. / 3});
}

TEST_CASE("a corrected end leaves a warm-up alone, and brings every decay to its end") {
  const auto half = [](std::int64_t) { return 8; };
  check_equal(rates_without(half, {.epochs = 3}, {.warmup_steps = 5}),
              {0, .2, .4, .6, .8, 1, 6. / 7, 5. / 7, 4. / 7, 3. / 7, 2. / 7, 1. / 7});
  const auto cosine = rates_without(half, {.epochs = 3}, {.decay = lt::CosineDecay{}, .warmup_steps = 2});
  CHECK(cosine.back() == Approx(0.5 * (1 + std::cos(std::numbers::pi * 9 / 10))));
  CHECK(std::is_sorted(cosine.rbegin(), cosine.rend() - 2));
  const auto cycle = rates_without(half, {.epochs = 4}, {.decay = lt::OneCycle{}});
  CHECK(cycle.back() == Approx(4e-6).epsilon(1e-9));
  const auto function =
      rates_without(half, {.epochs = 2}, {.decay = lt::FunctionDecay{[](std::int64_t, std::int64_t total) {
                                            return static_cast<double>(total);
                                          }}});
  check_equal(function, {16, 16, 16, 16, 8, 8, 8, 8});
}

TEST_CASE("no update has a rate of 0 for a last epoch of more steps than the one before") {
  const auto more = [](std::int64_t epoch) { return epoch == 0 ? 8 : 2; };  // 4 steps, then 7
  check_equal(rates_without(more, {.epochs = 2}, {}),
              {1, 15. / 16, 14. / 16, 13. / 16, .5, .375, .25, .125, 1. / 9, 1. / 10, 1. / 11});
  const auto warmed = rates_without(more, {.epochs = 2}, {.warmup_steps = 3});
  CHECK(warmed.back() == Approx(1. / 8));
  for (const double rate : rates_without(more, {.epochs = 2}, {.decay = lt::CosineDecay{}})) CHECK(rate > 0);
  check_equal(rates_without(more, {.epochs = 2}, {.decay = lt::LinearDecay{.total_steps = 10}}),
              {1, .9, .8, .7, .6, .5, .4, .3, .2, .1, 0});  // an end of its own stays
  check_equal(rates_without(more, {.epochs = 2, .max_steps = 10}, {}),
              {1, .9, .8, .7, .5, .375, .25, .125, 1. / 9, 1. / 10});
}

TEST_CASE("a rate does not rise where an epoch has more steps again, and epochs that follow are trained") {
  // Epochs of 6, 7, 6, 7 and 6 steps. How many the last one has is known as it ends.
  const auto noisy =
      rates_without([](std::int64_t epoch) { return epoch % 2 == 0 ? 4 : 2; }, {.epochs = 5}, {});
  CHECK(std::is_sorted(noisy.rbegin(), noisy.rend()));
  CHECK(noisy.back() == Approx(2.0 / 33));
  // An outage: the decay had all but ended, and the epochs that follow are trained none the less.
  const auto outage =
      rates_without([](std::int64_t epoch) { return epoch == 0 ? 12 : 0; }, {.epochs = 3}, {});
  check_equal({outage.begin() + 6, outage.begin() + 10}, {1. / 7, 1. / 8, 1. / 9, 1. / 10});
  CHECK(outage.at(10) == Approx(1 - 10. / 18));
  CHECK(outage.back() == Approx(1. / 18));
}

TEST_CASE("decays by step, with and without warm-up, have the numbers of transformers and PyTorch") {
  const lt::FitOptions twenty{.max_steps = 20}, more{.max_steps = 25};
  check_equal(rates({.warmup_steps = 5}, twenty), recorded("linear"), 20);
  check_equal(rates({.decay = lt::LinearDecay{}}, twenty), recorded("linear_no_warmup"), 20);
  check_equal(rates({.decay = lt::LinearDecay{.total_steps = 20}, .warmup_steps = 5}, more),
              recorded("linear"));
  check_equal(
      rates({.decay = lt::LinearDecay{.final_ratio = 0.1, .total_steps = 20}, .warmup_steps = 5}, more),
      recorded("linear_to_a_tenth"));
  check_equal(rates({.decay = lt::CosineDecay{}, .warmup_steps = 5}, twenty), recorded("cosine"), 20);
  check_equal(
      rates({.decay = lt::CosineDecay{.final_ratio = 0.1, .total_steps = 20}, .warmup_steps = 5}, more),
      recorded("cosine_to_a_tenth"));
  const lt::PolynomialDecay polynomial{.power = 2, .final_ratio = 0.1, .total_steps = 20};
  check_equal(rates({.decay = polynomial, .warmup_steps = 5}, more), recorded("polynomial"));
  check_equal(rates({.decay = lt::ConstantLr{}, .warmup_steps = 5}, more), recorded("constant"));
  check_equal(rates({.decay = lt::StepDecay{.every = 4, .factor = 0.5}}, more), recorded("step"));
  check_equal(rates({.decay = lt::StepDecay{.every = 4, .factor = 0.5}, .warmup_steps = 5}, more),
              recorded("step_warmup"));
}

TEST_CASE("cycles, the inverse square root and functions have the numbers of PyTorch and transformers") {
  const lt::FitOptions all{.max_steps = 25};
  check_equal(rates({.decay = lt::OneCycle{}}, all), recorded("one_cycle"));
  check_equal(rates({.decay = lt::OneCycle{.rising = 0.2,
                                           .initial_ratio = 0.1,
                                           .final_ratio = 0.001,
                                           .linear = true,
                                           .total_steps = 25}},
                    {.max_steps = 30}),
              recorded("one_cycle_linear"));
  check_equal(rates({.decay = lt::OneCycle{.rising = 0.4, .three_phases = true}}, all),
              recorded("one_cycle_three"));
  check_equal(rates({.decay = lt::CosineRestarts{.first = 3, .growth = 2, .final_ratio = 0.1}}, all),
              recorded("restarts"));
  check_equal(rates({.decay = lt::CosineRestarts{.first = 5}, .warmup_steps = 5}, all),
              recorded("restarts_warmup"));
  check_equal(rates({.decay = lt::InverseSqrtDecay{}, .warmup_steps = 5}, all), recorded("inverse_sqrt"));
  check_equal(rates({.decay = lt::InverseSqrtDecay{.timescale = 40}, .warmup_steps = 5}, all),
              recorded("inverse_sqrt_timescale"));
  check_equal(rates({.decay = lt::InverseSqrtDecay{}}, all), recorded("inverse_sqrt_no_warmup"));
  const auto function = [](std::int64_t step, std::int64_t total) {
    return 1.5 / static_cast<double>(1 + step) + static_cast<double>(step) / static_cast<double>(total);
  };
  check_equal(rates({.decay = lt::FunctionDecay{function}}, all), recorded("function"));
}

TEST_CASE("a function is given the steps after the warm-up, and no length where there is none") {
  std::vector<std::pair<std::int64_t, std::int64_t>> asked;
  const lt::FunctionDecay noting_calls{[&](std::int64_t step, std::int64_t total) {
    asked.emplace_back(step, total);
    return 1.0;
  }};
  rates({.decay = noting_calls, .warmup_steps = 2}, {.max_steps = 5});
  CHECK(asked == std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {1, 3}, {2, 3}});
  asked.clear();
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  lt::Trainer stepping(net, sgd, toy::objective, lt::ScheduleLr{.decay = noting_calls});
  stepping.step(toy::batches(1)[0]);
  CHECK(asked == std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}});
}

TEST_CASE("cycles of any length and number end well") {
  for (const std::int64_t steps : {1, 2, 3, 4, 10})
    for (const double rate : rates({.decay = lt::OneCycle{.rising = 0.1}}, {.max_steps = steps})) {
      CHECK(rate >= 0.0);
      CHECK(rate <= kFullRate);
    }
  const lt::ScheduleLr restarts{.decay = lt::CosineRestarts{.first = 3, .growth = kEpochs}};
  CHECK(restarts.ratio_at(2, 0) == Approx(0.25));
  CHECK(restarts.ratio_at(kEpochs, 0) > 0.0);
  CHECK(lt::ScheduleLr{.decay = lt::CosineRestarts{.first = 4}}.ratio_at(4'000'000'000'000, 0) == 1.0);
}

TEST_CASE("a decay stays at its end, where transformers' cosine rises again") {
  const auto seen = rates({.decay = lt::CosineDecay{.final_ratio = 0.1, .total_steps = 4}}, {.max_steps = 8});
  for (std::size_t i = 4; i < 8; ++i) CHECK(seen[i] == Approx(0.05));
}

TEST_CASE("a plateau has the numbers of ReduceLROnPlateau, NaN and cooldown included") {
  using lt::Better, lt::ThresholdMode;
  check_plateau({}, "long", "default");
  check_plateau({.factor = 0.5, .patience = 1, .threshold = 0.01}, "falling", "relative");
  check_plateau({.factor = 0.5, .patience = 1, .threshold = 0.1, .threshold_mode = ThresholdMode::absolute},
                "falling", "absolute");
  check_plateau({.factor = 0.5, .patience = 0, .threshold = 0.0, .cooldown = 2}, "falling", "cooldown");
  check_plateau({.factor = 0.3, .patience = 0, .min_ratio = 0.1}, "falling", "floor");
  check_plateau({.factor = 0.5, .patience = 0}, "stalled", "stalled");
  check_plateau(
      {.metric = "accuracy", .better = Better::higher, .factor = 0.5, .patience = 1, .threshold = 0.01},
      "rising", "higher_relative");
  check_plateau({.metric = "accuracy",
                 .better = Better::higher,
                 .factor = 0.5,
                 .patience = 2,
                 .threshold = 0.05,
                 .threshold_mode = ThresholdMode::absolute},
                "rising", "higher_absolute");
}

TEST_CASE(
    "a relative threshold is a share of the best value's size, so that negative metrics must improve too") {
  // PyTorch takes -0.995 for better than -1 here.
  const auto seen =
      rates_by_metric({.factor = 0.5, .patience = 0, .threshold = 0.01}, {-1.0, -0.995, -1.02, -1.02});
  CHECK(seen == std::vector{0.5, 0.5, 0.25, 0.25, 0.125});
}

TEST_CASE("a plateau multiplies a warm-up") {
  const auto seen = rates_by_metric({.factor = 0.5, .patience = 0}, {1.0, 1.0, 0.5, 0.5}, 4);
  check_equal(seen, {0.0, 0.125, 0.125, 0.1875, 0.125});
}

TEST_CASE("a plateau reads what is published in mid-epoch and at epoch ends, each publication once") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  const auto held_out = toy::batches(1);
  std::vector<double> seen, by_hand;
  const auto measure = [](toy::Net&, const toy::Batch&) { return 1.0; };  // never improves after the first
  lt::Trainer trainer(net, sgd, toy::objective, noting(seen),
                      lt::ScheduleLr{.decay = lt::PlateauDecay{.factor = 0.5, .patience = 0}},
                      lt::Validate{held_out, measure, {.every = 2}}, publishing(1.0));
  trainer.fit(toy::batches(4), {.epochs = 2});  // published after steps 2, 4, 4, 6, 8, 8
  check_equal(seen, {0.5, 0.5, 0.5, 0.5, 0.125, 0.125, 0.0625, 0.0625});
  CHECK(trainer.policy<lt::ScheduleLr>().plateau.ratio == Approx(std::pow(0.5, 5)));
  CHECK(trainer.policy<lt::ScheduleLr>().plateau.best.value() == 1.0);
  CHECK(trainer.policy<lt::ScheduleLr>().plateau.best.step() == 2);
}

TEST_CASE("a plateau whose metric is not published is an error in the second epoch, which names the metric") {
  CHECK_THROWS_WITH(rates({.decay = lt::PlateauDecay{.metric = "validation.accuracy"}}, {.epochs = 2}),
                    Catch::Contains("ScheduleLr waits for the metric 'validation.accuracy'"));
  CHECK(rates({.decay = lt::PlateauDecay{}}, {.epochs = 1}).size() == 10);
}

TEST_CASE("training with a schedule is the loop by hand with its rates") {
  auto ours = toy::net(), theirs = toy::net();
  lt::FusedAdamW a(ours->parameters(), {.lr = kFullRate}), b(theirs->parameters(), {.lr = kFullRate});
  const auto data = toy::batches(20);
  lt::Trainer trainer(ours, a, toy::objective, lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = 5});
  trainer.fit(data);
  const auto expected = recorded("cosine");
  for (std::size_t i = 0; i < data.size(); ++i) {
    b.zero_grad();
    b.param_groups()[0].options().set_lr(expected[i]);
    toy::objective(theirs, data[i]).value.backward();
    b.step();
  }
  CHECK(toy::distance(ours, theirs) < 1e-12);
  CHECK(trainer.policy<lt::ScheduleLr>().ratio == Approx(expected[19] / kFullRate));
}

TEST_CASE("the end comes from the epochs of a sized range too, in windows") {
  check_equal(rates({.warmup_steps = 5}, {.epochs = 2}), recorded("linear"), 20);
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  std::vector<double> seen;
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{}, lt::Accumulate<3>{}, noting(seen));
  trainer.fit(toy::batches(10), {.epochs = 2});
  CHECK(trainer.policy<lt::ScheduleLr>().total_steps == 8);
  REQUIRE(seen.size() == 8);
  CHECK(seen.back() == Approx(kFullRate / 8));
}

TEST_CASE("a second fit keeps the full rate that the first began with") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  std::vector<double> seen;
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 20}},
                      noting(seen));
  trainer.fit(toy::batches(10), {.epochs = 1});
  trainer.fit(toy::batches(10), {.max_steps = 15});
  check_equal(seen, recorded("linear_no_warmup"), 15);
}

TEST_CASE(
    "a rate that jumps because a fit is longer or shorter than the one before is told once, by both plans") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{});
  Warnings warnings;
  trainer.fit(toy::batches(10));
  CHECK(warnings.texts.empty());
  trainer.fit(toy::batches(10), {.epochs = 2});  // 0.5 * 1 / 10, and 0.5 * 10 / 20
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(
      warnings.texts[0],
      Catch::Contains("learning rate jumps from 0.05 to 0.25 in step 10: ScheduleLr's decay was to end at "
                      "step 10, by the length of the fit before, and now ends at step 20. Give"));
  trainer.fit(toy::batches(10), {.epochs = 8});
  CHECK(warnings.texts.size() == 1);
}

TEST_CASE("a resumed run is told of its rate's jump, and not where the rate holds") {
  const auto data = toy::batches(10);
  struct Length {
    lt::FitOptions first, then;
  };
  /// What the second process says.
  const auto told = [&](lt::ScheduleLr schedule, Length length, std::int64_t stop_at) {
    lt::SnapshotContents taken;
    const auto make = [&](toy::Net& net, torch::optim::SGD& sgd) {
      return lt::Trainer(net, sgd, toy::objective, schedule,
                         lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                                  if (window.run.progress().step == stop_at) window.run.interrupt("enough");
                                }});
    };
    auto net = toy::net(), other = toy::net();
    torch::optim::SGD sgd(net->parameters(), kFullRate), of_other(other->parameters(), kFullRate);
    auto before = make(net, sgd);
    before.fit(data, length.first);
    auto after = make(other, of_other);
    after.restore(before.snapshot());
    Warnings warnings;
    after.fit(data, length.then);
    return warnings.texts.empty() ? std::string()
                                  : warnings.texts.at(0) + (warnings.texts.size() > 1 ? "!" : "");
  };
  const lt::ScheduleLr cosine{.decay = lt::CosineDecay{}};
  CHECK_THAT(told(cosine, {{.epochs = 1}, {.epochs = 2}}, -1),
             Catch::Contains("jumps from 0.0122359 to 0.25 in step 10"));
  CHECK_THAT(told({}, {{.epochs = 2}, {.max_steps = 12}}, 10),
             Catch::Contains("drops from 0.275 to 0.0833333 in step 10") &&
                 Catch::Contains("at step 20, by") && !Catch::Contains("!"));
  // The same plan, one that hardly differs, one by the decay itself, no end, and a warm-up that goes on.
  CHECK(told(cosine, {{.epochs = 2}, {.epochs = 2}}, 7).empty());
  CHECK(told({}, {{.max_steps = 20}, {.max_steps = 24}}, 10).empty());
  CHECK(told({.decay = lt::LinearDecay{.total_steps = 10}}, {{.epochs = 1}, {.epochs = 3}}, -1).empty());
  CHECK(told({.decay = lt::ConstantLr{}}, {{.epochs = 1}, {.epochs = 3}}, -1).empty());
  CHECK(told({.warmup_steps = 9}, {{.epochs = 1}, {.epochs = 3}}, 5).empty());
  CHECK_THAT(told({}, {{.epochs = 2}, {.max_steps = 5}}, 10),
             Catch::Contains("fit trained nothing") && !Catch::Contains("!"));
}

TEST_CASE("another Trainer on the same optimizer finds the full rates that a schedule ran down") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  const lt::ScheduleLr steps{.decay = lt::StepDecay{.every = 2, .factor = 0.5}};
  std::vector<double> seen;
  const auto begins_at_full_rate = [&] {
    seen.clear();
    lt::Trainer(net, sgd, toy::objective, steps, noting(seen)).fit(toy::batches(4));
    check_equal(seen, {0.5, 0.5, 0.25, 0.25});
    CHECK(rate_of(sgd) == kFullRate);
  };
  lt::Trainer idle(net, sgd, toy::objective, steps);
  begins_at_full_rate();
  begins_at_full_rate();
  {
    lt::Trainer stepping(net, sgd, toy::objective, steps);
    auto moved = std::move(stepping);
    for (const auto& batch : toy::batches(5)) moved.step(batch);
    CHECK(rate_of(sgd) == kFullRate / 4);
  }
  begins_at_full_rate();
  lt::Trainer failing(net, sgd, toy::objective, steps, lt::On{lt::kObserve, [](lt::WindowContext& window) {
                                                                if (window.run.progress().step == 3)
                                                                  throw std::runtime_error("as it happens");
                                                              }});
  CHECK_THROWS_AS(failing.fit(toy::batches(4)), std::runtime_error);
  begins_at_full_rate();
  CHECK(idle.fit(toy::batches(1)).steps == 1);
  CHECK(rate_of(sgd) == kFullRate);
}

TEST_CASE("a rate that something else sets during a fit stays after it") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  lt::Trainer trainer(
      net, sgd, toy::objective, lt::ScheduleLr{},
      lt::On{lt::kObserve, [&](lt::WindowContext&) { sgd.param_groups()[0].options().set_lr(0.125); }});
  trainer.fit(toy::batches(3));
  CHECK(rate_of(sgd) == 0.125);
}

TEST_CASE("a resumed run ends with the full rates, also if no step is left to it") {
  const lt::ScheduleLr schedule{.decay = lt::LinearDecay{.total_steps = 6}};
  struct Job {
    toy::Net net = toy::net();
    torch::optim::SGD sgd{net->parameters(), kFullRate};
  } first, second;
  lt::SnapshotContents taken;
  std::function<void()> take;
  lt::Trainer before(first.net, first.sgd, toy::objective, schedule,
                     lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                              if (window.run.progress().step == 4) take();
                            }});
  take = [&] { taken = before.snapshot(); };
  before.fit(toy::batches(6));
  CHECK(taken.optimizer.get<double>("0.group.0.lr") == Approx(kFullRate / 2));
  lt::Trainer after(second.net, second.sgd, toy::objective, schedule);
  after.restore(taken);
  CHECK(rate_of(second.sgd) == Approx(kFullRate / 2));
  CHECK(after.fit(toy::batches(6), {.max_steps = 4}).steps == 4);
  CHECK(rate_of(second.sgd) == kFullRate);
}

TEST_CASE("epochs near the largest number do not run into the schedule") {
  check_equal(rates({}, {.epochs = kEpochs, .max_steps = 20}), recorded("linear_no_warmup"), 20);
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{.decay = lt::CosineDecay{}},
                      lt::Accumulate<>{kEpochs}, lt::On{lt::kObserve, [](lt::WindowContext& window) {
                                                          CHECK(window.run.progress().steps_per_epoch == 1);
                                                          CHECK(window.run.progress().total_steps == kEpochs);
                                                          if (window.run.progress().step == 3)
                                                            window.run.stop("seen enough");
                                                        }});
  CHECK(trainer.fit(toy::batches(4), {.epochs = kEpochs}).steps == 3);
  CHECK(trainer.policy<lt::ScheduleLr>().ratio == 1.0);
}

TEST_CASE("every group of every update follows, as a share of its own rate") {
  auto net = toy::net();
  lt::FusedAdamW adam({lt::FusedAdamW::group(net->first->parameters(), {.lr = 1.0}),
                       lt::FusedAdamW::group(net->second->parameters(), {.lr = 0.1})});
  torch::optim::SGD sgd(net->first->parameters(), kFullRate);
  std::vector<std::vector<double>> seen;
  lt::Trainer trainer(net, lt::Update{adam, toy::objective}, lt::Update{sgd, toy::objective},
                      lt::ScheduleLr{.decay = lt::LinearDecay{.final_ratio = 0.5}}, noting_all(seen));
  trainer.fit(toy::batches(4));
  const double last = 0.5 + 0.5 / 4;  // of the full rate, in the fourth step
  CHECK(seen[0][0] == Approx(last));
  CHECK(seen[0][1] == Approx(0.1 * last));
  CHECK(seen[1][0] == Approx(kFullRate * last));
}

TEST_CASE("schedules by update and by group leave all others alone") {
  Pair pair;
  lt::FusedAdamW left({lt::FusedAdamW::group(pair->left->first->parameters(), {.lr = 1.0}),
                       lt::FusedAdamW::group(pair->left->second->parameters(), {.lr = 0.1})});
  torch::optim::SGD right(pair->right->parameters(), kFullRate);
  const lt::LinearDecay decay{.total_steps = 10};
  std::vector<std::vector<double>> seen;  // of left's two groups, of right's one
  const auto trained = [&](auto... schedules) {
    lt::Trainer trainer(pair, lt::Update{left, left_objective, {.name = "left"}},
                        lt::Update{right, right_objective, {.name = "right"}}, schedules...,
                        noting_all(seen));
    trainer.fit(toy::batches(6));
    if constexpr (sizeof...(schedules) > 0) return trainer.template policy<lt::ScheduleLr>().ratio;
    return 1.0;
  };
  CHECK(trained(lt::ScheduleLr{.decay = decay, .update = "right"}) == Approx(0.5));
  CHECK(seen[0][0] == 1.0);
  CHECK(seen[0][1] == 0.1);
  CHECK(seen[1][0] == Approx(kFullRate * 0.5));

  trained(lt::ScheduleLr{.decay = decay, .groups = {"left.second.*"}});
  CHECK(seen[0][0] == 1.0);
  CHECK(seen[0][1] == Approx(0.05));
  CHECK(seen[1][0] == kFullRate);

  trained(
      lt::ScheduleLr{.decay = lt::StepDecay{.every = 5, .factor = 0.3}, .update = "right"},
      lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 10, .groups = {"left.first.*"}},
      lt::ScheduleLr{.decay = decay, .update = "left", .groups = {"left.second.weight", "left.second.b*"}});
  CHECK(seen[0][0] == Approx(0.5));
  CHECK(seen[0][1] == Approx(0.05));
  CHECK(seen[1][0] == Approx(kFullRate * 0.3));
}

TEST_CASE("two schedules for one rate, and updates and patterns that match nothing, are refused by name") {
  Pair pair;
  torch::optim::SGD left(pair->left->parameters(), 0.1), right(pair->right->parameters(), 0.1);
  const auto fit = [&](auto... schedules) {
    lt::Trainer trainer(pair, lt::Update{left, left_objective, {.name = "left"}},
                        lt::Update{right, right_objective}, schedules...);
    trainer.fit(toy::batches(1));
  };
  CHECK_THROWS_WITH(fit(lt::ScheduleLr{}, lt::ScheduleLr{.update = "left", .groups = {"left.*"}}),
                    Catch::Contains("the learning rate of update 'left' for 'left.first.weight' is set by") &&
                        Catch::Contains("a ScheduleLr for all updates") &&
                        Catch::Contains("a ScheduleLr for update 'left', groups {left.*}"));
  CHECK_THROWS_WITH(fit(lt::ScheduleLr{.update = "centre"}),
                    Catch::Contains("'centre'") && Catch::Contains("'left', 'update 2'"));
  CHECK_THROWS_WITH(
      fit(lt::ScheduleLr{.groups = {"left.*", "centre.*"}}),
      Catch::Contains("pattern 'centre.*' matches no parameter group") &&
          Catch::Contains(
              "0 of update 'left': left.first.weight, left.first.bias, left.second.weight and 1 more") &&
          Catch::Contains("0 of update 'update 2': right.first.weight"));
  CHECK_THROWS_WITH(fit(lt::ScheduleLr{.update = "left", .groups = {"right.*"}}),
                    Catch::Contains("'right.*' matches no parameter group") && !Catch::Contains("update 2"));
  CHECK_THROWS_AS(fit(lt::ScheduleLr{.groups = {"centre.*"}}), lt::UsageError);
  fit(lt::ScheduleLr{.update = "left"}, lt::ScheduleLr{.update = "update 2"});
}

TEST_CASE("an optimizer without a learning rate is refused, by the name of its update") {
  struct Still : torch::optim::Optimizer {
    struct Options : torch::optim::OptimizerCloneableOptions<Options> {};
    explicit Still(std::vector<at::Tensor> parameters)
        : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::make_unique<Options>()) {
    }
    at::Tensor step(LossClosure = nullptr) override { return {}; }
  };
  auto net = toy::net();
  Still still(net->parameters());
  lt::Trainer trainer(net, still, toy::objective, lt::ScheduleLr{});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)), Catch::Contains("learning rate of update 'update'"));
}

TEST_CASE("a skipped update repeats its rate, whichever policy vetoes and whenever that is known") {
  const std::vector<double> expected{0.5, 0.45, 0.45, 0.45, 0.4, 0.35, 0.3, 0.3};
  const auto seen_by = [&](auto& net, auto& optimizer, bool by_tensor) {
    std::vector<double> before, after;
    lt::Trainer trainer(
        net, optimizer, toy::objective, lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 10}},
        vetoing({1, 2, 6}, by_tensor), noting(before), lt::On{lt::kObserve, [&](lt::UpdateContext& update) {
                                                                after.push_back(rate_of(update.optimizer()));
                                                              }});
    const auto result = trainer.fit(toy::batches(8));
    CHECK(result.skipped == 3);
    check_equal(before, expected);
    check_equal(after, {0.5, 0.45, 0.4, 0.35, 0.3});
  };
  for (const bool by_tensor : {false, true}) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), kFullRate);
    seen_by(net, sgd, by_tensor);
    auto other = toy::net();
    lt::FusedAdamW adam(other->parameters(), {.lr = kFullRate});
    seen_by(other, adam, by_tensor);
  }
}

TEST_CASE("each update counts its own skipped steps") {
  Pair pair;
  torch::optim::SGD left(pair->left->parameters(), kFullRate);
  lt::FusedAdamW right(pair->right->parameters(), {.lr = kFullRate});
  std::vector<double> left_rates, right_rates;
  lt::Trainer trainer(
      pair, lt::Update{left, left_objective}, lt::Update{right, right_objective},
      lt::ScheduleLr{.decay = lt::LinearDecay{.total_steps = 10}}, noting(left_rates, 0),
      noting(right_rates, 1),
      lt::On{lt::kClip, [](lt::UpdateContext& update) {
               update.veto(torch::full({}, update.index() == 1 && update.run.progress().step < 2));
             }});
  trainer.fit(toy::batches(4));
  check_equal(left_rates, {0.5, 0.45, 0.4, 0.35});
  check_equal(right_rates, {0.5, 0.5, 0.5, 0.45});
  CHECK(trainer.policy<lt::ScheduleLr>().ratio == Approx(0.7));  // of the first that it sets
}

TEST_CASE("a plateau continues from its state, and other schedules have none") {
  const lt::ScheduleLr schedule{
      .decay = lt::PlateauDecay{.factor = 0.5, .patience = 2, .threshold = 0.0, .cooldown = 1}};
  const auto values = recorded("metric.falling");
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  lt::Run run(*net, {{.name = "update", .optimizer = &sgd, .parameters = {}, .full_rates = {kFullRate}}});
  const auto publish = [&](lt::ScheduleLr::State& state, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      run.metrics().publish("validation.loss", values[i]);
      lt::EpochContext epoch{run};
      schedule.on_epoch_end(epoch, state);
    }
  };
  lt::ScheduleLr::State whole, first, second;
  publish(whole, 0, values.size());
  for (std::size_t cut = 0; cut < values.size(); ++cut) {
    run.metrics() = {};
    lt::ScheduleLr::State before, after;
    publish(before, 0, cut);
    lt::StateDict saved;
    schedule.state_dict(saved, before);
    schedule.load_state_dict(saved, after);
    publish(after, cut, values.size());
    CHECK(after.plateau.ratio == whole.plateau.ratio);
    CHECK(after.plateau.best.value() == whole.plateau.best.value());
    CHECK(after.plateau.waited == whole.plateau.waited);
    CHECK(after.plateau.cooldown_left == whole.plateau.cooldown_left);
  }
  lt::StateDict linear;
  first.ratio = 0.25;
  lt::ScheduleLr{}.state_dict(linear, first);
  lt::ScheduleLr{}.load_state_dict(linear, second);
  CHECK(second.ratio == 0.25);
  CHECK_THROWS_AS(schedule.load_state_dict(linear, second), lt::StateError);
  lt::StateDict of_another;
  lt::ScheduleLr{.decay = lt::PlateauDecay{}, .groups = {"second.*"}}.state_dict(of_another, first);
  CHECK_THROWS_WITH(schedule.load_state_dict(of_another, second),
                    Catch::Contains("groups {second.*}, not of"));
}

TEST_CASE("a decay without a known end is refused before training; others need none") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), kFullRate);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ScheduleLr{});
  CHECK_THROWS_WITH(trainer.step(toy::batches(1)[0]), Catch::Contains("where its decay ends"));
  lt::Trainer stepping(net, sgd, toy::objective,
                       lt::ScheduleLr{.decay = lt::StepDecay{.every = 1, .factor = 0.5}});
  for (const auto& batch : toy::batches(3)) stepping.step(batch);
  CHECK(rate_of(sgd) == Approx(kFullRate / 4));
}

TEST_CASE("options out of range are refused with their value") {
  const auto refused = [](lt::ScheduleLr::Decay decay, const std::string& value) {
    CHECK_THROWS_WITH(rates({.decay = decay}), Catch::Contains(value));
    CHECK_THROWS_AS(rates({.decay = decay}), lt::UsageError);
  };
  const double nan = std::nan("");
  CHECK_THROWS_WITH(rates({.warmup_steps = -1}), Catch::Contains("warmup_steps must be at least 0, got -1"));
  refused(lt::LinearDecay{.final_ratio = 1.5}, "1.5");
  refused(lt::LinearDecay{.final_ratio = nan}, "nan");
  refused(lt::CosineDecay{.total_steps = -2}, "-2");
  refused(lt::PolynomialDecay{.power = 0}, "power must be above 0");
  refused(lt::PolynomialDecay{.final_ratio = -0.5}, "-0.5");
  refused(lt::StepDecay{}, "every must be at least 1, got 0");
  refused(lt::StepDecay{.every = 1, .factor = 1}, "factor");
  refused(lt::OneCycle{.rising = 1.0}, "OneCycle's rising must be above 0 and below 1, got 1");
  refused(lt::OneCycle{.rising = 0.5, .three_phases = true}, "below 0.5, got 0.5");
  refused(lt::OneCycle{.initial_ratio = -0.1}, "-0.1");
  refused(lt::OneCycle{.total_steps = -5}, "-5");
  CHECK_THROWS_WITH(rates({.decay = lt::OneCycle{}, .warmup_steps = 3}),
                    Catch::Contains("warmup_steps is 3 beside a OneCycle"));
  refused(lt::CosineRestarts{}, "first must be at least 1, got 0");
  refused(lt::CosineRestarts{.first = 1, .growth = 0}, "growth must be at least 1, got 0");
  refused(lt::InverseSqrtDecay{.timescale = -7}, "-7");
  refused(lt::FunctionDecay{}, "FunctionDecay needs a function");
  refused(lt::FunctionDecay{[](std::int64_t step, std::int64_t) { return step < 2 ? 1.0 : std::nan(""); }},
          "got nan for step 2");
  refused(lt::PlateauDecay{.metric = ""}, "name of a metric");
  refused(lt::PlateauDecay{.factor = 1.25}, "1.25");
  refused(lt::PlateauDecay{.patience = -3}, "-3");
  refused(lt::PlateauDecay{.threshold = nan}, "nan");
  refused(lt::PlateauDecay{.cooldown = -4}, "-4");
  refused(lt::PlateauDecay{.min_ratio = 2}, "min_ratio");
}

TEST_CASE(
    "a run that is resumed after any window, with an evaluation still to be judged, has the same rates") {
  const auto data = toy::batches(4);
  const lt::FitOptions length{.epochs = 4};
  struct Resumable {
    /// Takes the state of the run after `save_at` windows, where Validate has just published.
    auto trainer(int64_t save_at, lt::StateDict& saved) {
      const lt::ScheduleLr plateau{.decay = lt::PlateauDecay{.factor = 0.5, .patience = 0},
                                   .groups = {"first.*"}};
      const lt::ScheduleLr steps{.decay = decay, .groups = {"second.*"}};
      const auto measure = [](toy::Net&, const toy::Batch&) { return 1.0; };
      return lt::Trainer(net, sgd, toy::objective, plateau, steps, vetoing({2, 5}, false),
                         lt::On{lt::kUpdate,
                                [this](lt::UpdateContext&) {
                                  for (const std::size_t group : {0, 1}) seen.push_back(rate_of(sgd, group));
                                }},
                         lt::Validate{toy::batches(1), measure, {.every = 2}}, publishing(1.0),
                         lt::On{lt::kObserve, [this, save_at, &saved](lt::WindowContext& window) {
                                  if (window.run.progress().step == save_at) saved = save();
                                }});
    }
    lt::ScheduleLr::Decay decay;
    toy::Net net = toy::net();
    torch::optim::SGD sgd{{torch::optim::OptimizerParamGroup(net->first->parameters()),
                           torch::optim::OptimizerParamGroup(net->second->parameters())},
                          torch::optim::SGDOptions(kFullRate)};
    std::vector<double> seen = {};
    std::function<lt::StateDict()> save = [] { return lt::StateDict(); };
  };
  const auto function = [](std::int64_t step, std::int64_t) { return 1.0 / static_cast<double>(1 + step); };
  for (const lt::ScheduleLr::Decay& decay : std::vector<lt::ScheduleLr::Decay>{
           lt::StepDecay{.every = 3, .factor = 0.5}, lt::OneCycle{.total_steps = 16},
           lt::CosineRestarts{.first = 3, .growth = 2}, lt::InverseSqrtDecay{.timescale = 3},
           lt::FunctionDecay{function}}) {
    Resumable whole{decay};
    lt::StateDict none;
    whole.trainer(-1, none).fit(data, length);
    REQUIRE(whole.seen.size() == 32);
    for (int64_t save_at = 1; save_at < 16; ++save_at) {
      INFO("decay " << decay.index() << ", saved after window " << save_at);
      Resumable first{decay}, second{decay};
      lt::StateDict saved;
      auto before = first.trainer(save_at, saved);
      first.save = [&] { return before.state_dict(); };
      before.fit(data, {.epochs = 4, .max_steps = save_at});
      auto after = second.trainer(-1, none);
      after.load_state_dict(saved);
      after.fit(data, length);
      std::vector<double> seen = first.seen;
      seen.insert(seen.end(), second.seen.begin(), second.seen.end());
      check_equal(seen, whole.seen);
    }
  }
}

TEST_CASE("ScheduleLr: a group without parameters gets its full rate back, too") {
  toy::Net net = toy::net();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& parameters :
       {net->first->parameters(), std::vector<at::Tensor>{}, net->second->parameters()})
    groups.emplace_back(parameters, std::make_unique<torch::optim::SGDOptions>(0.1));
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(0.1));
  looptorch::Trainer trainer(net, optimizer, toy::objective, looptorch::ScheduleLr{});
  trainer.fit(toy::batches(4));
  for (const auto& group : optimizer.param_groups()) CHECK(group.options().get_lr() == 0.1);
}
