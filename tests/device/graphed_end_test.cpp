// SPDX-License-Identifier: MIT
// CaptureGraphs at a window's end: verdict, unscaling, clipping, step counts and sums of losses are a graph,
// whose results the eager run has. What keeps an end eager, and says so; losses and gradients that are not
// finite; options that change in mid-run.
#include "support/precompiled.hpp"

#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/clip_grad_value.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/on.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/schedule_lr.hpp>
#include <looptorch/policies/skip_bad_windows.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace lt = looptorch;
using Catch::Contains, Catch::StartsWith;
using lt::testing::bits_equal, lt::testing::has_device, lt::testing::test_device;

namespace {

struct Batch {
  at::Tensor x, y;
};

/// Windows of one form. In those of `bad` a target, or an input, is infinite: then the loss is, or gradients.
std::vector<Batch> batches(std::int64_t count, const std::vector<std::size_t>& bad = {},
                           at::Tensor Batch::*where = &Batch::y) {
  torch::manual_seed(5);
  std::vector<Batch> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back({at::randn({6, 4}), at::randn({6, 3})});
  for (const std::size_t i : bad) (all[i].*where)[0][0] = std::numeric_limits<float>::infinity();
  for (Batch& batch : all) batch = {batch.x.to(test_device()), batch.y.to(test_device())};
  return all;
}

at::Tensor loss_of(torch::nn::Linear& net, const Batch& batch) {
  return (at::sigmoid(net(batch.x)) - batch.y).square().mean();
}

struct WeighedBatch {
  at::Tensor x, y;
  double words;
};

/// The loss is weighed by words, of which no two windows have the same number.
struct ByWords {
  lt::Loss operator()(torch::nn::Linear& net, const WeighedBatch& batch) const {
    return {.value = loss_of(net, Batch{batch.x, batch.y}), .weight = batch.words};
  }
  double weight(const WeighedBatch& batch) const { return batch.words; }
};

std::vector<WeighedBatch> weighed(std::int64_t count, at::ScalarType type = at::kFloat) {
  std::vector<WeighedBatch> all;
  for (const Batch& batch : batches(count))
    all.push_back({batch.x.to(type), batch.y.to(type), 3.0 + static_cast<double>(all.size() * all.size())});
  return all;
}

auto objective_of(const std::vector<Batch>&) { return loss_of; }
auto objective_of(const std::vector<WeighedBatch>&) { return ByWords{}; }

struct Outcome {
  std::vector<at::Tensor> tensors;  // weights and moments
  std::vector<double> losses = {};
  std::string said = {};
  std::string thrown = {};
  std::int64_t applied = 0, skipped = 0;
  double loss_scale = 1;
};

/// Trains a layer by an optimizer under policies, eagerly or by graphs, for two epochs at most.
template <class Optimizer = lt::FusedAdamW, class AnyBatch, class... Policies>
Outcome train(bool captures, const std::vector<AnyBatch>& data, const Policies&... policies) {
  torch::manual_seed(1);
  torch::nn::Linear net(4, 3);
  net->to(test_device(), data.front().x.scalar_type());
  Optimizer optimizer(net->parameters(), {.lr = 0.05});
  Outcome outcome;
  const auto report = [&](const std::string& text) { outcome.said = text; };
  lt::Trainer trainer(net, optimizer, objective_of(data),
                      lt::When{captures, lt::CaptureGraphs{.report = report}}, policies...);
  for (const std::int64_t epochs : {1, 2}) {
    try {
      outcome.losses.push_back(trainer.fit(data, {.epochs = epochs}).loss);
    } catch (const lt::NonFiniteWindow& error) {
      outcome.thrown += lt::message(error.step, ": ", error.what(), '\n');
    }
    outcome.losses.push_back(trainer.updates()[0].loss.mean());
  }
  if constexpr ((std::is_same_v<Policies, lt::Autocast<lt::fp16>> || ...))
    outcome.loss_scale = trainer.template policy<lt::Autocast<lt::fp16>>().scale.template item<double>();
  outcome.applied = trainer.updates()[0].applied, outcome.skipped = trainer.updates()[0].skipped;
  for (const at::Tensor& parameter : net->parameters()) {
    outcome.tensors.push_back(parameter.detach().cpu());
    const lt::StateDict state = optimizer.state_of(parameter);
    for (const auto& [key, value] : state.values())
      if (const auto* tensor = value.template get_if<at::Tensor>()) outcome.tensors.push_back(tensor->cpu());
  }
  return outcome;
}

/// Returns what the captured run says, which must have the eager one's bits, and end as it does.
template <class Optimizer = lt::FusedAdamW, class AnyBatch, class... Policies>
Outcome captured(const std::vector<AnyBatch>& data, const Policies&... policies) {
  const Outcome eager = train<Optimizer>(false, data, policies...);
  const Outcome replayed = train<Optimizer>(true, data, policies...);
  REQUIRE(eager.tensors.size() == replayed.tensors.size());
  for (std::size_t i = 0; i < eager.tensors.size(); ++i)
    CHECK(bits_equal(eager.tensors[i], replayed.tensors[i]));
  CHECK(bits_equal(at::tensor(eager.losses, at::kDouble), at::tensor(replayed.losses, at::kDouble)));
  CHECK(eager.thrown == replayed.thrown);
  CHECK(eager.applied == replayed.applied);
  CHECK(eager.skipped == replayed.skipped);
  CHECK(eager.loss_scale == replayed.loss_scale);
  return replayed;
}

}  // namespace

TEST_CASE("ends of windows are replayed from the window on whose micro-batch is") {
  if (!has_device()) return;
  const std::string all = "the ends of 6 windows ran as graphs, too";  // of the second fit's eight
  const auto data = batches(8);
  CHECK_THAT(captured(data).said, Contains(all) && !Contains("eagerly"));
  CHECK_THAT(captured(data, lt::ClipGradNorm{0.01}).said, Contains(all));
  CHECK_THAT(captured(data, lt::ClipGradNorm{.max_norm = 0.01, .record = true}).said, Contains(all));
  CHECK_THAT(captured(data, lt::ClipGradValue{0.01}).said, Contains(all));
  CHECK_THAT(captured(data, lt::ScheduleLr{.warmup_steps = 3}).said, Contains(all));
  CHECK_THAT(captured<lt::AdamW8bit>(data, lt::ClipGradNorm{0.01}).said, Contains(all));
  const lt::Autocast<lt::fp16> fp16{.initial_scale = 1 << 10, .growth_interval = 2};
  CHECK_THAT(captured(data, fp16, lt::ClipGradNorm{0.01}).said, Contains(all));
}

TEST_CASE("windows of different weights, and a short last one, share the graph of their end") {
  if (!has_device()) return;
  const std::string all = "the ends of 17 windows ran as graphs, too";  // the second epoch's
  const auto data = weighed(50);
  const lt::Accumulate<3> three{};
  const lt::Autocast<lt::fp16> fp16{.initial_scale = 1 << 10, .growth_interval = 2};
  CHECK_THAT(captured(data, three).said, Contains(all) && !Contains("eagerly"));
  CHECK_THAT(captured(data, three, lt::ClipGradNorm{0.01}).said, Contains(all));
  CHECK_THAT(captured(data, three, lt::RetryOnOom{}).said, Contains(all) && !Contains("eagerly"));
  CHECK_THAT(captured(data, three, lt::ClipGradNorm{0.01}, lt::ClipGradValue{0.002}).said, Contains(all));
  CHECK_THAT(captured(data, three, lt::ClipGradValue{0.01}).said, Contains(all));
  CHECK_THAT(captured(data, three, fp16, lt::ClipGradNorm{0.01}).said, Contains(all));
  CHECK_THAT(captured<lt::AdamW8bit>(data, three).said, Contains(all));
  const auto narrow = weighed(50, at::kBFloat16), wide = weighed(50, at::kDouble);
  CHECK_THAT(captured<lt::AdamW8bit>(narrow, three, lt::ClipGradNorm{0.01}).said, Contains(all));
  CHECK_THAT(captured<lt::AdamW8bit>(narrow, three, lt::ClipGradValue{0.01}).said, Contains(all));
  CHECK_THAT(captured(wide, three).said, Contains(all));
  CHECK_THAT(captured(wide, three, lt::ClipGradNorm{0.01}).said, Contains(all));
}

TEST_CASE("a loss that is not finite ends a captured run at its window, and a later fit continues") {
  if (!has_device()) return;
  const Outcome ended = captured(batches(8, {5}), lt::ClipGradNorm{0.01});
  CHECK_THAT(ended.thrown, StartsWith("5: ") && Contains("the loss of update is NaN or infinite"));
  CHECK(captured(batches(8, {4, 5})).skipped > 0);
  // The last window of all, whose verdict is read at the fit's end.
  CHECK_THAT(captured(batches(6, {5})).thrown, StartsWith("5: "));
  const auto slopes = batches(8, {5}, &Batch::x);
  CHECK_THAT(
      captured(slopes, lt::ClipGradNorm{0.01}).thrown,
      StartsWith("5: the losses are finite, but gradients of update or their norm are NaN or infinite"));
  const lt::ClipGradNorm skips{.max_norm = 0.01, .on_non_finite = lt::OnNonFinite::skip};
  CHECK(captured(slopes, skips).skipped == 2);
}

TEST_CASE("gradients that overflow are skipped in a captured run, and the loss scale follows") {
  if (!has_device()) return;
  const lt::Autocast<lt::fp16> fp16{.initial_scale = 1 << 10, .growth_interval = 2};
  const Outcome ended = captured(batches(9, {4, 7}, &Batch::x), fp16, lt::ClipGradNorm{0.01});
  CHECK(ended.skipped == 4);
  CHECK(ended.thrown.empty());
}

TEST_CASE(
    "policies that may read gradients, and other optimizers, keep ends eager, and the report says why") {
  if (!has_device()) return;
  const auto data = batches(8);
  std::vector<double> norms;
  const auto reads = [&](lt::UpdateContext& update) {
    norms.push_back(update.gradients().front().norm().item<double>());
  };
  CHECK_THAT(captured(data, lt::On{lt::kClip, reads}).said,
             Contains("the ends of 6 windows ran eagerly: before_update of looptorch::On"));
  REQUIRE(norms.size() == 32);
  for (std::size_t i = 0; i < 16; ++i) CHECK(norms[i] == norms[i + 16]);
}

/// Runs out of memory once a graph has ended a window.
struct RunsOutAfterGraph {
  static constexpr lt::Phase phase = lt::Phase::clip;
  void before_update(lt::UpdateContext&) const {}
  void replayed_update(lt::UpdateContext&) const { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); }
};

TEST_CASE("a window is not retried once a graph has ended it, since its step has been counted") {
  if (!has_device()) return;
  std::string said;
  const lt::RetryOnOom retries{.report = [&](const std::string& text) { said += text; }};
  CHECK_THROWS_WITH(train(true, weighed(8), retries, RunsOutAfterGraph{}), Contains("no memory"));
  CHECK(said.empty());
}

TEST_CASE("a hook may change an optimizer's options in mid-run") {
  if (!has_device()) return;
  const auto run = [](bool captures) {
    torch::manual_seed(1);
    torch::nn::Linear net(4, 3);
    net->to(test_device());
    lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
    std::int64_t windows = 0;
    const auto changes = [&](lt::WindowContext&) {
      auto& options = static_cast<lt::detail::FusedGroupOptions<lt::FusedAdamWOptions>&>(
          adamw.param_groups()[0].options());
      if (++windows == 5) options.values.weight_decay = 0.3, options.values.lr = 0.2;
    };
    lt::Trainer trainer(net, adamw, loss_of, lt::On{lt::kObserve, changes},
                        lt::When{captures, lt::CaptureGraphs{.report = [](const std::string&) {}}});
    trainer.fit(batches(9));
    return net->weight.detach().cpu();
  };
  CHECK(bits_equal(run(true), run(false)));
}

TEST_CASE("metrics of captured windows are the eager run's") {
  if (!has_device()) return;
  const auto rows = [](bool captures) {
    const lt::testing::TemporaryFolder folder;
    (void)train(captures, batches(8), lt::ClipGradNorm{0.01}, lt::LogMetrics{.folder = folder.path()});

    std::ifstream file(folder.path() / "metrics.csv");
    std::vector<std::string> words;
    std::string line;
    std::getline(file, line);
    // Of loss, norm and rate; other columns are times.
    std::vector<std::size_t> columns;
    std::size_t column = 0;
    std::istringstream head(line);
    for (std::string name; std::getline(head, name, ','); ++column)
      if (name == "loss" || name == "gradient_norm" || name == "lr") columns.push_back(column);
    REQUIRE(columns.size() == 3);
    while (std::getline(file, line)) {
      std::vector<std::string> row;
      std::istringstream cells(line);
      for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
      for (const std::size_t i : columns) words.push_back(i < row.size() ? row[i] : "");
    }
    return words;
  };
  const auto eager = rows(false), replayed = rows(true);
  CHECK(eager.size() >= 24);
  CHECK(eager == replayed);
}

TEST_CASE("norms of captured windows are the eager run's, with several updates and with windows skipped") {
  if (!has_device()) return;
  struct BothImpl : torch::nn::Module {
    torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 3));
    torch::nn::Linear b = register_module("b", torch::nn::Linear(4, 3));
  };
  const auto norms = [](bool captures, std::size_t bad) {
    torch::manual_seed(1);
    auto net = std::make_shared<BothImpl>();
    net->to(test_device());
    lt::FusedAdamW first(net->a->parameters(), {.lr = 0.05}), second(net->b->parameters(), {.lr = 0.05});
    const auto one = [](std::shared_ptr<BothImpl>& both, const at::Tensor& x) {
      return both->a(x).pow(2).mean();
    };
    const auto two = [](std::shared_ptr<BothImpl>& both, const at::Tensor& x) {
      return both->b(x).pow(2).mean() * 100;
    };
    std::vector<at::Tensor> data;
    for (int i = 0; i < 12; ++i) data.push_back(torch::randn({5, 4}).to(test_device()));
    if (bad > 0) data[bad].fill_(NAN);
    std::vector<double> sums;
    const auto record = [&](lt::WindowContext& window) {
      for (const lt::UpdateView& view : window.run.updates())
        if (const auto norm = view.metrics.find("gradient_norm"); norm != view.metrics.end())
          sums.push_back(norm->second.totals().sum);
    };
    lt::Trainer trainer(net, lt::Update{first, one, {.name = "one"}},
                        lt::Update{second, two, {.name = "two"}},
                        lt::ClipGradNorm{.max_norm = 0.05, .record = true},
                        lt::When{captures, lt::CaptureGraphs{.report = [](const std::string&) {}}},
                        lt::When{bad > 0, lt::SkipBadWindows{.report = [](const std::string&) {}}},
                        lt::On{lt::kObserve, record});
    trainer.fit(data);
    sums.push_back(trainer.template policy<lt::ClipGradNorm>().norm.template item<double>());
    return at::tensor(sums, at::kDouble);
  };
  for (const std::size_t bad : {0, 8}) CHECK(bits_equal(norms(true, bad), norms(false, bad)));
}

TEST_CASE("a copy of a mean keeps its value, though graphs add to the mean") {
  if (!has_device()) return;
  std::vector<lt::RunningMean> kept;
  std::vector<double> read;
  (void)train(true, batches(8), lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                                         kept.push_back(window.run.updates()[0].loss);
                                         read.push_back(window.run.updates()[0].loss.mean());
                                       }});
  REQUIRE(kept.size() == 16);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].mean() == read[i]);
}
