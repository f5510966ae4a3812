// SPDX-License-Identifier: MIT
// A window that is looked into on two ranks: the rank at fault is named, all end or go on with the same
// sentence, and the window is replayed on one process. The processes that this file starts run its hidden
// cases, whose names begin with "watched: " and "breaks: ".
//
// Tests redo: traced_rerun
// Tests ranks: reduce_finding
// Tests resume: window_bundle
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/distributed/shard_optimizer.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/replay.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace agree_on_finding_test {

using Cause = lt::Finding::Cause;

struct Batch {
  at::Tensor x;  // [B, 4]; what is above 50 asks for a fault
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::dropout(torch::tanh(first(x)), 0.3, is_training()));
  }
  torch::nn::Linear first{4, 8}, second{8, 3};
};
TORCH_MODULE(Net);

enum class Fault { none, log, root, large, killed };

/// A logarithm of 0 in forward, a root of 0 in backward, or gradients whose sum overflows.
struct Objective {
  Fault fault = Fault::none;
  lt::Loss operator()(Net& net, const Batch& batch) const {
    const at::Tensor asked = batch.x.select(1, 0).gt(50), scores = net(batch.x.clamp_max(1)).square().sum(1);
    at::Tensor loss = scores.mean();
    if (fault == Fault::log) loss = loss + torch::log(1 - asked.to(at::kFloat)).mul(scores).mean();
    if (fault == Fault::root) loss = loss + torch::sqrt(scores * asked.logical_not()).mean();
    if (fault == Fault::large && asked.any().item<bool>()) loss = loss + net->second->bias.sum() * 2.2e38;
    if (fault == Fault::killed && asked.any().item<bool>()) {
      static int calls = 0;
      if (++calls == 2) ::raise(SIGKILL);
      loss = loss + torch::log(loss * 0);
    }
    return {.value = loss, .weight = batch.x.size(0)};
  }
};

/// Five windows of two micro-batches; the second of window 2 asks for the fault in sample 1, on the ranks at
/// fault.
std::vector<Batch> batches(bool faulty) {
  torch::manual_seed(7 + static_cast<std::uint64_t>(ranks::rank()));
  std::vector<Batch> all;
  for (std::int64_t i = 0; i < 10; ++i) all.push_back({torch::randn({2 + (i + ranks::rank()) % 3, 4})});
  if (faulty) all[5].x[1][0] = 100;
  return all;
}

struct Setup {
  Fault fault = Fault::none;
  std::string name = "run";
  bool at_both = false;  // the fault is on both ranks, else on rank 1
  std::optional<lt::Autopsy> autopsy = lt::Autopsy{};
  std::optional<lt::SkipBadWindows> skip = {};
  std::int64_t epochs = 1;
  bool half = false, shares = false, reproducible = false, several = false;
};

struct Outcome {
  std::string said;  // what ended the fit
  std::shared_ptr<const lt::Finding> finding;
  std::int64_t first_batch = -1;
  bool of_loss = false;
  std::int64_t steps = 0;
  std::vector<at::Tensor> weights;
};

std::filesystem::path bundles(const Setup& of) { return ranks::folder() / of.name; }

/// Calls `use(trainer)` with a new Trainer.
template <class Use>
void with_trainer(const Setup& of, const Use& use) {
  torch::manual_seed(of.name.size());
  Net net;
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(net, optimizer, Objective{of.fault}, lt::Accumulate<2>{},
                      lt::When{of.autopsy.has_value(), of.autopsy.value_or(lt::Autopsy{})},
                      lt::When{of.skip.has_value(), of.skip.value_or(lt::SkipBadWindows{})},
                      lt::When{of.half, lt::Autocast<lt::fp16>{.initial_scale = 16}},
                      lt::DataParallel{.bucket_bytes = 100, .reproducible = of.reproducible, .chunks = 4},
                      lt::When{of.shares, lt::ShardOptimizer{}});
  use(trainer, net);
}

Outcome train(const Setup& of) {
  Outcome outcome;
  with_trainer(of, [&](auto& trainer, Net& net) {
    const auto given = batches(of.fault != Fault::none && (of.at_both || ranks::rank() == 1));
    try {
      outcome.steps = trainer.fit(given, {.epochs = of.epochs}).steps;
    } catch (const lt::NonFiniteWindow& error) {
      outcome.said = error.what();
      outcome.finding = error.finding;
      outcome.first_batch = error.first_batch;
      outcome.of_loss = dynamic_cast<const lt::NonFiniteLoss*>(&error) != nullptr;
      CHECK(error.step == 2);
      CHECK(trainer.fit(batches(false), {.max_steps = 6}).steps == 6);  // the run goes on after it
    }
    for (const at::Tensor& parameter : net->parameters())
      outcome.weights.push_back(parameter.detach().clone());
  });
  std::ofstream(ranks::folder() / lt::message(of.name, ".said.", ranks::rank())) << outcome.said;
  return outcome;
}

/// Requires the error that rank 1 gives to all, and does its window again on this process alone.
void check_fault_of_rank_1(const Setup& of, const std::string& op, bool backward) {
  const Outcome outcome = train(of);
  INFO(of.name << ": " << outcome.said);
  REQUIRE(outcome.finding);
  CHECK(outcome.of_loss == !backward);
  CHECK(outcome.said.find(lt::message("rank 1: the loss", backward ? "es are finite" : " of update is")) ==
        0);
  CHECK(outcome.said.find(op) != std::string::npos);
  CHECK(outcome.finding->rank == 1);
  CHECK(outcome.finding->ranks == 2);
  const lt::Finding& finding = *outcome.finding;
  if (ranks::rank() == 1) {
    CHECK((finding.cause == Cause::operation && finding.op == op && finding.backward == backward));
    CHECK((finding.micro_batch == 1 && finding.rows == std::vector<std::int64_t>{1}));
    CHECK(outcome.first_batch == (backward ? 4 : 5));
  } else {
    CHECK((finding.cause == Cause::elsewhere && outcome.first_batch == -1));
    CHECK(finding.text().find("rank 1: " + op) == 0);
  }
  CHECK_FALSE(std::filesystem::exists(bundles(of) / "rank-0"));
  if (of.autopsy->folder.empty()) return;
  CHECK(outcome.said.find("The window is kept in " + (bundles(of) / "rank-1").string()) != std::string::npos);
  Setup here = of;
  here.shares = false;                           // which this process, started as a rank, would not do alone
  with_trainer(here, [&](auto& trainer, Net&) {  // of other weights: those of the bundle count
    const lt::Replayed replayed = lt::replay<Batch>(trainer, bundles(of) / "rank-1");
    INFO(replayed.text());
    CHECK((replayed.same_bits && replayed.was_bad && replayed.finding.op == op));
    CHECK(outcome.said.find(replayed.recorded_finding) != std::string::npos);
    CHECK(replayed.finding.text() == replayed.recorded_finding);
  });
}

TEST_CASE("watched: the rank at fault is named, and its window replayed", "[.ranks]") {
  if (!ranks::is_started()) return;
  for (const bool reproducible : {false, true})
    for (const Fault fault : {Fault::log, Fault::root}) {
      Setup of{.fault = fault,
               .name = lt::message("fault", int(fault), reproducible),
               .reproducible = reproducible};
      of.autopsy->folder = bundles(of);
      check_fault_of_rank_1(of, fault == Fault::log ? "aten::log" : "aten::div", fault == Fault::root);
    }
}

TEST_CASE("watched: ranks that share an optimizer out", "[.ranks]") {
  if (!ranks::is_started()) return;
  Setup of{.fault = Fault::root, .name = "shared", .shares = true};
  of.autopsy->folder = bundles(of);  // without moments, which no rank has whole
  check_fault_of_rank_1(of, "aten::div", true);
}

TEST_CASE("watched: a fault of both ranks, and of none", "[.ranks]") {
  if (!ranks::is_started()) return;
  const Outcome both = train({.fault = Fault::log, .name = "both", .at_both = true});
  INFO(both.said);
  CHECK(both.finding->rank == ranks::rank());
  CHECK(both.finding->op == "aten::log");
  CHECK(both.said.find("rank 0: the loss of update is") == 0);
  Setup of{.fault = Fault::large, .name = "sum", .at_both = true};
  of.autopsy->folder = bundles(of);
  const Outcome sum = train(of);
  INFO(sum.said);
  CHECK((sum.finding->cause == Cause::none && sum.finding->rank == -1 && sum.first_batch == -1));
  CHECK(sum.said.find("finite numbers on all 2 ranks: look for gradients too large to be summed") !=
        std::string::npos);
  CHECK(std::filesystem::exists(bundles(of) / lt::message("rank-", ranks::rank())));
}

TEST_CASE("watched: a window that all skip, with the same report", "[.ranks]") {
  if (!ranks::is_started()) return;
  std::vector<std::string> said, skipped;
  Setup of{.fault = Fault::log, .name = "skipped"};
  of.autopsy->report = [&](const std::string& text) { said.push_back(text); };
  of.skip = lt::SkipBadWindows{.report = [&](const std::string& text) { skipped.push_back(text); },
                               .folder = bundles(of)};
  Setup alone = of;
  alone.autopsy.reset(), alone.skip->folder.clear();
  const Outcome looked_into = train(of), plain = train(alone);
  CHECK((looked_into.said.empty() && looked_into.steps == 5));
  for (std::size_t i = 0; i < plain.weights.size(); ++i)
    CHECK(looked_into.weights[i].equal(plain.weights[i]));  // the look changes no bit
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("rank 1: autopsy of step 2, batch 4 to 5 of epoch 0: aten::log") == 0);
  std::ofstream(ranks::folder() / lt::message("report.said.", ranks::rank())) << said[0];
  const bool kept = std::any_of(skipped.begin(), skipped.end(),
                                [](const std::string& text) { return text.find("kept it in") == 0; });
  CHECK(kept == (ranks::rank() == 1));
}

TEST_CASE("watched: spikes and overflows", "[.ranks]") {
  if (!ranks::is_started()) return;
  std::vector<std::string> said;
  Setup of{.name = "spikes", .epochs = 6};
  of.autopsy = lt::Autopsy{
      .spikes = 1e-6, .warm_up = 2, .history = 2, .max_traces = 2, .report = [&](const std::string& text) {
        said.push_back(text);
      }};
  Setup alone{.name = of.name, .autopsy = {}, .epochs = 6};
  const Outcome looked_into = train(of), plain = train(alone);
  for (std::size_t i = 0; i < plain.weights.size(); ++i)
    CHECK(looked_into.weights[i].equal(plain.weights[i]));
  CHECK(said.size() > 0);
  std::ofstream(ranks::folder() / lt::message("spikes.said.", ranks::rank()))
      << (said.empty() ? "" : said[0]);

  Setup half{.fault = Fault::root, .name = "half", .half = true};
  half.autopsy->overflows = 1;
  const Outcome overflowed = train(half);
  INFO(overflowed.said);
  CHECK(overflowed.finding->rank == 1);
  CHECK(overflowed.said.find("rank 1: the losses are finite") == 0);
}

/// A net whose batch statistics are those of all ranks, so that a NaN of one reaches the others.
struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(norm(first(x)))); }
  torch::nn::Linear first{4, 8}, second{8, 3};
  torch::nn::BatchNorm1d norm{8};
};
TORCH_MODULE(Normed);

enum class Place { none, sample, before, behind, gradient };

lt::Loss normed_loss(Normed& net, const Batch& batch, Place place) {
  const at::Tensor asked = batch.x.slice(1, 0, 1).gt(50).to(at::kFloat);
  at::Tensor x = batch.x.clamp_max(1);
  if (place == Place::before) x = x + torch::log(1 - asked);
  const at::Tensor scores = net(x).square().sum(1, true);
  at::Tensor loss = scores.mean();
  if (place == Place::behind) loss = loss + torch::log(1 - asked).mul(scores).mean();
  if (place == Place::gradient) loss = loss + torch::sqrt(scores * (1 - asked)).mean();
  return {.value = loss, .weight = batch.x.size(0)};
}

/// Trains; returns what ended the fit, or the weights and statistics if nothing did.
Outcome train_normed(Place place, const std::string& name, const lt::When<lt::Autopsy>& autopsy) {
  torch::manual_seed(3);
  Normed net;
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-2});
  lt::Trainer trainer(
      net, optimizer, [=](Normed& net, const Batch& batch) { return normed_loss(net, batch, place); },
      lt::Accumulate<2>{}, autopsy, lt::DataParallel{.batch_norm = lt::BatchNormMode::sync});
  auto given = batches(place != Place::none && ranks::rank() == 1);
  if (place == Place::sample && ranks::rank() == 1) given[5].x[1][0] = NAN;
  if (ranks::rank() == 1) given.resize(9);  // its last window is shorter
  Outcome outcome;
  try {
    outcome.steps = trainer.fit(given).steps;
  } catch (const lt::NonFiniteWindow& error) {
    outcome.said = error.what(), outcome.finding = error.finding;
  }
  for (const at::Tensor& tensor : net->parameters()) outcome.weights.push_back(tensor.detach().clone());
  for (const at::Tensor& tensor : net->buffers()) outcome.weights.push_back(tensor.clone());
  std::ofstream(ranks::folder() / lt::message(name, ".said.", ranks::rank())) << outcome.said;
  return outcome;
}

TEST_CASE("watched: ranks that take batch statistics together", "[.ranks]") {
  if (!ranks::is_started()) return;
  const std::vector<std::string> names{"", "sample", "before", "behind", "gradient"};
  for (const Place place : {Place::sample, Place::before, Place::behind, Place::gradient}) {
    const std::string name = "normed-" + names[static_cast<std::size_t>(place)];
    const Outcome outcome =
        train_normed(place, name, lt::When{true, lt::Autopsy{.folder = ranks::folder() / "normed"}});
    INFO(name << ": " << outcome.said);
    REQUIRE(outcome.finding);
    const lt::Finding& finding = *outcome.finding;
    CHECK(outcome.said.find("rank 1: ") == 0);
    CHECK(outcome.said.find("could not be kept: its layers take batch statistics over all ranks") !=
          std::string::npos);
    CHECK((finding.rank == 1 && finding.ranks == 2));
    if (ranks::rank() == 0) {
      CHECK(finding.cause == Cause::elsewhere);
      continue;
    }
    CHECK(finding.cause == (place == Place::sample ? Cause::batch : Cause::operation));
    CHECK((finding.micro_batch == 1 && finding.rows == std::vector<std::int64_t>{1}));
    if (place != Place::sample) CHECK(finding.op == (place == Place::gradient ? "aten::div" : "aten::log"));
  }
  int spikes = 0;
  const lt::Autopsy eager{
      .spikes = 1e-6, .warm_up = 2, .history = 2, .report = [&](const std::string&) { ++spikes; }};
  const Outcome looked_into = train_normed(Place::none, "normed", lt::When{true, eager});
  const Outcome plain = train_normed(Place::none, "normed", lt::When{false, eager});
  CHECK((looked_into.steps == 5 && plain.steps == 5 && spikes > 0));
  for (std::size_t i = 0; i < plain.weights.size(); ++i)
    CHECK(looked_into.weights[i].equal(plain.weights[i]));
}

TEST_CASE("breaks: a rank that is killed while it looks", "[.ranks]") {
  if (!ranks::is_started()) return;
  CHECK_THROWS_WITH(train({.fault = Fault::killed, .name = "killed"}),
                    Catch::Contains("rank 1 shows no sign of life"));
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("Two ranks look into a window, and end with one sentence") {
  const lt::testing::TemporaryFolder folder;
  for (const auto& outcome : ranks::run_ranks(2, "watched: *", folder.path())) {
    INFO(outcome.output);
    CHECK(outcome.passed());
    CHECK(outcome.output.find("All tests passed") != std::string::npos);
  }
  for (const char* name :
       {"fault10", "fault20", "fault11", "fault21", "shared", "both", "sum", "half", "report", "spikes",
        "normed-sample", "normed-before", "normed-behind", "normed-gradient"}) {
    const std::string said = text_of(folder / lt::message(name, ".said.0"));
    CHECK(said.size() > 100);
    CHECK(said == text_of(folder / lt::message(name, ".said.1")));
  }
}

TEST_CASE("A rank that is killed while it looks into a window ends the others within 10 s") {
  const lt::testing::TemporaryFolder folder;
  const auto outcomes = ranks::run_ranks(2, "breaks: a rank that is killed*", folder.path());
  INFO(outcomes[0].output);
  CHECK(outcomes[0].passed());
  CHECK(WIFSIGNALED(outcomes[1].status));
  CHECK(outcomes[0].seconds - outcomes[1].seconds < 10);
}

}  // namespace agree_on_finding_test
