// SPDX-License-Identifier: MIT
// RestoreBest: which weights a fit leaves, after each kind of end, beside averages, and in a resumed run.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <stdexcept>
#include <vector>

namespace lt = looptorch;

namespace {

at::Tensor flat(toy::Net& net) {
  at::NoGradGuard no_gradients;
  std::vector<at::Tensor> parts;
  for (const auto& weight : net->parameters()) parts.push_back(weight.flatten());
  return torch::cat(parts);
}

/// Publishes the next of `values` after each step, and notes the weights that are evaluated.
struct Job {
  explicit Job(std::vector<double> of) : values(std::move(of)) {}
  auto validate() {
    return lt::Validate{toy::batches(1),
                        [this](toy::Net& net, const toy::Batch&) {
                          evaluated.push_back(flat(net).clone());
                          return values.at(evaluated.size() - 1);
                        },
                        {.every = 1}};
  }
  toy::Net net = toy::net();
  lt::FusedAdamW adamw{net->parameters(), {.lr = 0.05}};
  std::vector<double> values;
  std::vector<at::Tensor> evaluated;
};

/// Runs the fits of one Trainer, from a snapshot unless it is null, and interrupts at a step.
lt::SnapshotContents train_until(Job& job, const lt::SnapshotContents* from, std::int64_t interrupt_at,
                                 const std::vector<toy::Batch>& batches,
                                 const std::vector<lt::FitOptions>& fits) {
  lt::Trainer trainer(job.net, job.adamw, toy::objective, job.validate(), lt::RestoreBest{},
                      lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                               if (window.run.progress().step == interrupt_at)
                                 window.run.interrupt("time to go");
                             }});
  if (from) trainer.restore(*from);
  for (const lt::FitOptions& options : fits) trainer.fit(batches, options);
  return trainer.snapshot();
}

}  // namespace

TEST_CASE("a fit ends with the weights that the metric was best with, at any good end") {
  const std::vector<double> values{3.0, 2.0, std::nan(""), 1.0, 1.5, 1.2, 1.1, 4.0};
  for (const bool stops : {false, true}) {
    Job job(values);
    lt::Trainer trainer(job.net, job.adamw, toy::objective, job.validate(), lt::RestoreBest{},
                        lt::When{stops, lt::StopEarly{.patience = 2}});
    const auto result = trainer.fit(toy::batches(8));
    CHECK(result.status == (stops ? lt::FitStatus::stopped : lt::FitStatus::completed));
    CHECK(flat(job.net).equal(job.evaluated[3]));
    CHECK_FALSE(flat(job.net).equal(job.evaluated.back()));
    const auto& state = trainer.policy<lt::RestoreBest>();
    CHECK(state.best.step() == 4);
    CHECK(state.best.value() == 1.0);
    CHECK(state.restored);
  }
  Job rising(values);
  lt::Trainer trainer(rising.net, rising.adamw, toy::objective, rising.validate(),
                      lt::RestoreBest{.better = lt::Better::higher});
  trainer.fit(toy::batches(8));
  CHECK(flat(rising.net).equal(rising.evaluated[7]));
}

TEST_CASE("weights from before the first step may be the best") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto untrained = flat(net).clone();
  double next = 1.0;
  const auto rising = [&](toy::Net&, const toy::Batch&) { return next++; };
  lt::Trainer trainer(net, sgd, toy::objective, lt::RestoreBest{},
                      lt::Validate{toy::batches(1), rising, {.every = 1, .at_start = true}});
  trainer.fit(toy::batches(3));
  CHECK(flat(net).equal(untrained));
  CHECK(trainer.policy<lt::RestoreBest>().best.step() == 0);
}

TEST_CASE("an exception and an interruption leave the last weights") {
  for (const bool throws : {false, true}) {
    Job job({1.0, 2.0, 3.0, 4.0});
    lt::Trainer trainer(job.net, job.adamw, toy::objective, job.validate(), lt::RestoreBest{},
                        lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                                 if (window.run.progress().step < 3) return;
                                 if (throws) throw std::runtime_error("as it happens");
                                 window.run.interrupt("time to go");
                               }});
    if (throws)
      CHECK_THROWS_AS(trainer.fit(toy::batches(4)), std::runtime_error);
    else
      CHECK(trainer.fit(toy::batches(4)).status == lt::FitStatus::interrupted);
    CHECK(flat(job.net).equal(job.evaluated.back()));
    CHECK_FALSE(trainer.policy<lt::RestoreBest>().restored);
    CHECK(trainer.policy<lt::RestoreBest>().best.step() == 1);
  }
}

TEST_CASE("beside averages, model and averages both end as the best averages") {
  Job job({3.0, 1.0, 2.0, 2.0});
  lt::Trainer trainer(job.net, job.adamw, toy::objective, job.validate(), lt::RestoreBest{},
                      lt::AverageWeights{.rule = lt::Ema{.decay = 0.5}});
  trainer.fit(toy::batches(4));
  CHECK(flat(job.net).equal(job.evaluated[1]));
  at::Tensor averaged;
  trainer.with_evaluated_weights([&] { averaged = flat(job.net).clone(); });
  CHECK(averaged.equal(job.evaluated[1]));
}

TEST_CASE("a resumed run continues from the last weights, and leaves the best of the whole one") {
  const std::vector<double> values{3.0, 1.0, 2.0, 1.5, 0.5, 2.0};
  const auto train = [](Job& job, const lt::SnapshotContents* from, std::int64_t interrupt_at) {
    return train_until(job, from, interrupt_at, toy::batches(6), {{}});
  };
  Job whole(values);
  train(whole, nullptr, -1);
  CHECK(flat(whole.net).equal(whole.evaluated[4]));
  for (std::int64_t cut = 1; cut < 6; ++cut) {
    INFO("cut after step " << cut);
    Job first(values), second({values.begin() + cut, values.end()});
    const auto contents = train(first, nullptr, cut);
    train(second, &contents, -1);
    CHECK(second.evaluated.back().equal(whole.evaluated.back()));
    CHECK(flat(second.net).equal(flat(whole.net)));
  }
}

TEST_CASE("a run that resumes within its second fit keeps that fit's weights") {
  const std::vector<double> values{1.0, 3.0, 2.0, 2.5, 1.5, 0.5, 2.0, 3.0};
  const bool by_steps = GENERATE(false, true);
  const auto train = [&](Job& job, const lt::SnapshotContents* from, std::int64_t interrupt_at) {
    const std::vector<lt::FitOptions> fits =
        by_steps ? std::vector<lt::FitOptions>{{.max_steps = 4}, {.max_steps = 8}}
                 : std::vector<lt::FitOptions>{{.epochs = 1}, {.epochs = 2}};
    return train_until(job, from, interrupt_at, toy::batches(4), fits);
  };
  Job whole(values);
  train(whole, nullptr, -1);
  for (std::int64_t cut = 5; cut < 8; ++cut) {
    INFO("cut after step " << cut);
    Job first(values), second({values.begin() + cut, values.end()});
    const auto contents = train(first, nullptr, cut);
    train(second, &contents, -1);
    CHECK(second.evaluated.back().equal(whole.evaluated.back()));
    CHECK(flat(second.net).equal(flat(whole.net)));
  }
}

TEST_CASE("a metric that a policy publishes without announcing it may come at an epoch's end") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  bool fails = false;
  const auto objective = [&](toy::Net& model, const toy::Batch& batch) {
    if (fails) throw std::runtime_error("fails");
    return toy::objective(model, batch);
  };
  lt::Trainer trainer(
      net, sgd, objective, lt::RestoreBest{.metric = "score"},
      lt::On{lt::kUpdate, [](lt::EpochContext& epoch) { epoch.run.metrics().publish("score", 1.0); }});
  trainer.fit(toy::batches(2));
  CHECK(trainer.policy<lt::RestoreBest>().restored);
  fails = true;
  CHECK_THROWS_WITH(trainer.fit(toy::batches(2)), "fails");
  CHECK_FALSE(trainer.policy<lt::RestoreBest>().restored);
}

TEST_CASE("a metric without a name, and one that is never published, are refused") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer nameless(net, sgd, toy::objective, lt::RestoreBest{.metric = ""});
  CHECK_THROWS_WITH(nameless.fit(toy::batches(1)), Catch::Contains("RestoreBest needs the name of a metric"));
  lt::Trainer waiting(net, sgd, toy::objective, lt::RestoreBest{.metric = "test.wer"});
  CHECK_THROWS_WITH(waiting.fit(toy::batches(1), {.epochs = 2}),
                    Catch::Contains("RestoreBest waits for the metric 'test.wer'"));
}
