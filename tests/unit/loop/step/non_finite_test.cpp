// SPDX-License-Identifier: MIT
// NonFiniteLoss: who is at fault is named, and nothing of the step remains.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

namespace lt = looptorch;

namespace {

/// 12 samples of which some are poisonous; batches of 2 in the reverse order.
struct Samples {
  std::vector<std::int64_t> bad;
  std::int64_t size() const { return 12; }
  toy::Batch get(std::int64_t index) const {
    const bool poison = std::count(bad.begin(), bad.end(), index) > 0;
    return {torch::full({4}, poison ? NAN : 0.25 * static_cast<double>(index), torch::kDouble),
            torch::full({}, index % 3, torch::kLong)};
  }
  toy::Batch collate(std::span<toy::Batch> samples) const {
    std::vector<at::Tensor> features, labels;
    for (const auto& sample : samples) features.push_back(sample.features), labels.push_back(sample.labels);
    return {torch::stack(features), torch::stack(labels)};
  }
};
struct Reversed {
  std::vector<std::int64_t> order(std::int64_t, std::int64_t size) const {
    std::vector<std::int64_t> result;
    for (std::int64_t i = size; i-- > 0;) result.push_back(i);
    return result;
  }
};

toy::Batch poisoned(double value) {
  return {torch::full({2, 4}, value, torch::kDouble), torch::zeros({2}, torch::kLong)};
}

/// The error that `body` throws.
template <class F>
lt::NonFiniteLoss caught(F&& body) {
  try {
    body();
  } catch (const lt::NonFiniteLoss& error) {
    return error;
  }
  throw std::runtime_error("no NonFiniteLoss was thrown");
}

}  // namespace

TEST_CASE("a NaN loss ends the fit with step, batch and samples, before it reaches the parameters") {
  auto ours = toy::net(), theirs = toy::net();
  torch::optim::SGD a(ours->parameters(), 0.1), b(theirs->parameters(), 0.1);
  const lt::LoaderOptions options{.batch_size = 2, .workers = 2};
  lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<2>{});
  const auto error = caught(
      [&] { trainer.fit(lt::PinnedPrefetchLoader(Samples{{4}}, options, Reversed{}), {.epochs = 2}); });
  CHECK(error.step == 1);
  CHECK(error.epoch == 0);
  CHECK(error.first_batch == 3);
  CHECK(error.last_batch == 3);
  CHECK(error.samples == std::vector<std::int64_t>{5, 4});
  CHECK_THAT(error.what(),
             Catch::Contains("the loss of update is NaN or infinite in step 1, batch 3 of epoch 0 "
                             "(samples 5, 4). The update was skipped."));
  CHECK_FALSE(toy::has_gradients(ours));
  CHECK(trainer.progress().step == 2);
  CHECK(trainer.progress().skipped == 1);

  lt::Trainer good(theirs, b, toy::objective, lt::Accumulate<2>{});
  good.fit(lt::PinnedPrefetchLoader(Samples{}, options, Reversed{}), {.max_steps = 1});
  CHECK(toy::distance(ours, theirs) == 0.0);
}

TEST_CASE("infinite losses count, losses of weight 0 do not") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto infinite = [](toy::Net& net, const toy::Batch& batch) {
    return net(batch.features).sum() / 0.0;
  };
  CHECK_THROWS_AS(lt::Trainer(net, sgd, infinite).fit(toy::batches(1)), lt::NonFiniteLoss);
  const auto ignored = [](toy::Net& net, const toy::Batch& batch) {
    return lt::Loss{.value = net(batch.features).sum() * NAN, .weight = 0};
  };
  CHECK(lt::Trainer(net, sgd, ignored).fit(toy::batches(2)).skipped == 2);
  const auto half = [](toy::Net& net, const toy::Batch& batch) {
    return net(batch.features).sum().to(at::kHalf) * INFINITY;
  };
  CHECK_THROWS_AS(lt::Trainer(net, sgd, half).fit(toy::batches(1)), lt::NonFiniteLoss);
}

TEST_CASE("of several updates the one at fault is named, with its micro-batch") {
  auto net = toy::net(), before = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.0), b(net->second->parameters(), 0.1);
  const auto harmless = [](toy::Net& net, const toy::Batch&) { return net->first->weight.sum(); };
  lt::Trainer trainer(net, lt::Update{a, harmless, {.name = "critic"}},
                      lt::Update{b, toy::objective, {.name = "actor"}}, lt::Accumulate<3>{});
  const auto error = caught([&] {
    trainer.fit(std::vector{poisoned(1), poisoned(2), poisoned(NAN), poisoned(4)});
  });
  CHECK_THAT(error.what(), Catch::Contains("the loss of actor") && Catch::Contains("batch 2 of epoch 0"));
  CHECK(error.samples.empty());
  CHECK(toy::distance(net, before) == 0.0);
}

TEST_CASE("step() names the step, and not a batch of an epoch that it does not know") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(net, sgd, toy::objective);
  trainer.step(poisoned(1));
  const auto error = caught([&] { trainer.step(poisoned(NAN)); });
  CHECK(error.step == 1);
  CHECK(error.first_batch == -1);
  CHECK_THAT(error.what(), Catch::Contains("in step 1. The update"));
  CHECK(trainer.step(poisoned(1)).step == 3);  // and the loop may go on
  CHECK(std::isfinite(trainer.updates()[0].loss.mean()));
}

TEST_CASE("under Autocast<fp16> a non-finite loss is an overflow; switched off it is an error again") {
  auto net = toy::net();
  lt::FusedAdamW adamw(net->parameters());
  for (const bool scaling : {true, false}) {
    lt::Trainer trainer(net, adamw, toy::objective, lt::When{scaling, lt::Autocast<lt::fp16>{}});
    const std::vector data{poisoned(1), poisoned(NAN), poisoned(2)};
    if (scaling)
      CHECK(trainer.fit(data).skipped == 1);
    else
      CHECK_THROWS_AS(trainer.fit(data), lt::NonFiniteLoss);
  }
}

TEST_CASE("a running total tells whether any loss in it was not finite") {
  for (const double bad : {0.0, double(NAN), double(INFINITY), -double(INFINITY)}) {
    lt::RunningMean mean;
    const auto weight = lt::Quantity::unread(torch::full({}, 2.0));  // so that the total stays a tensor
    for (const double value : {1.0, bad, 3.0}) mean.add(torch::full({}, value), weight);
    CHECK((lt::detail::zero_if_finite(mean.device_sum()).item<double>() != 0) == (bad != 0.0));
  }
}

TEST_CASE("a further fit continues after the window whose loss was NaN") {
  const auto check = [](auto make, std::int64_t window) {
    auto ours = toy::net(), theirs = toy::net();
    auto a = make(ours->parameters()), b = make(theirs->parameters());
    auto data = toy::batches(7);
    data[3].features.fill_(NAN);
    lt::Trainer trainer(ours, a, toy::objective, lt::Accumulate<>{window});
    const auto error = caught([&] { trainer.fit(data, {.epochs = 1}); });
    CHECK(error.first_batch == 3);
    CHECK(trainer.progress().batch == (3 / window + 1) * window);
    CHECK(trainer.progress().samples > 0);
    const auto rest = trainer.fit(data, {.epochs = 1});
    CHECK(rest.steps == (7 + window - 1) / window);
    CHECK(rest.skipped == 1);
    CHECK(std::isfinite(rest.loss));

    std::vector<toy::Batch> good;  // the same without the poisoned window
    for (std::size_t i = 0; i < data.size(); ++i)
      if (static_cast<std::int64_t>(i) / window != 3 / window) good.push_back(data[i]);
    lt::Trainer plain(theirs, b, toy::objective, lt::Accumulate<>{window});
    CHECK(plain.fit(good, {.epochs = 1}).loss == Approx(rest.loss).epsilon(1e-12));
    CHECK(toy::distance(ours, theirs) < 1e-12);
  };
  for (const std::int64_t window : {1, 2}) {
    check([](auto parameters) { return torch::optim::SGD(parameters, 0.1); }, window);
    check([](auto parameters) { return lt::FusedAdamW(parameters); }, window);
  }
}

TEST_CASE("with several updates too, of which the others are made") {
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.1), b(net->second->parameters(), 0.1);
  bool poison = true;
  const auto sometimes = [&](toy::Net& net, const toy::Batch& batch) {
    return toy::objective(net, batch).value * (poison ? NAN : 1.0);
  };
  lt::Trainer trainer(net, lt::Update{a, sometimes}, lt::Update{b, toy::objective});
  CHECK_THROWS_AS(trainer.fit(toy::batches(3), {.epochs = 1}), lt::NonFiniteLoss);
  CHECK(trainer.updates()[0].skipped == 1);
  CHECK(trainer.updates()[1].applied == 1);
  CHECK(trainer.progress().batch == 1);
  poison = false;
  CHECK(trainer.fit(toy::batches(3), {.epochs = 1}).steps == 3);
}

TEST_CASE("where parameters are NaN already, the samples are not blamed") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto root = [](toy::Net& net, const toy::Batch& batch) {
    return net(batch.features).abs().sum().sqrt();
  };
  lt::Trainer trainer(net, sgd, root);
  trainer.step(poisoned(1));
  {
    torch::NoGradGuard no_gradients;
    net->first->weight.fill_(NAN);
  }
  CHECK_THAT(caught([&] { trainer.step(poisoned(1)); }).what(),
             Catch::Contains("an earlier gradient was not finite") && Catch::Contains("ClipGradNorm"));
}
