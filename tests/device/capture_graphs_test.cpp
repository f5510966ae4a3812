// SPDX-License-Identifier: MIT
// CaptureGraphs: what becomes a graph and what does not, with the sentence that says why; the weights of
// losses that the host knows; random numbers; how many launches a step takes. That all policies have the
// eager run's bits is in combinations_test.cpp.
// Tests graph: graph_reasons
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/flops/flop_counter.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/clip_grad_norm.hpp>
#include <looptorch/policies/on.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Contains, Catch::StartsWith;
using lt::testing::bits_equal, lt::testing::has_device, lt::testing::is_simulated, lt::testing::test_device;

namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(double dropout) : dropout(dropout) {
    register_module("one", one), register_module("two", two), register_module("unused", unused);
  }
  at::Tensor forward(const at::Tensor& x) {
    return two(torch::dropout(torch::tanh(one(x)), dropout, is_training()));
  }
  double dropout;
  torch::nn::Linear one{4, 16}, two{16, 3}, unused{2, 2};
};
TORCH_MODULE(Net);

struct Batch {
  at::Tensor x, y;
  double words = 1;
};

/// Batches of these numbers of rows.
std::vector<Batch> batches(const std::vector<std::int64_t>& rows) {
  torch::manual_seed(5);
  std::vector<Batch> all;
  for (const std::int64_t count : rows)
    all.push_back({at::randn({count, 4}).to(test_device()),
                   at::randint(3, {count}, at::kLong).to(test_device()),
                   1.0 + static_cast<double>(all.size() % 3)});
  return all;
}

at::Tensor loss_of(Net& net, const Batch& batch) { return at::cross_entropy_loss(net(batch.x), batch.y); }

struct Outcome {
  std::vector<at::Tensor> weights;
  double loss;
  std::string said;
};

struct Settings {
  bool captures = true;
  std::int64_t accumulate = 1;
  double dropout = 0;
  std::int64_t max_graphs = 16, epochs = 2;
};

template <class AnyBatch, class Objective>
Outcome train(const Settings& settings, const std::vector<AnyBatch>& data, const Objective& objective) {
  torch::manual_seed(1);
  Net net(settings.dropout);
  net->to(test_device());
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
  Outcome outcome;
  lt::Trainer trainer(net, adamw, objective, lt::Accumulate<>{settings.accumulate},
                      lt::When{settings.captures, lt::CaptureGraphs{.max_graphs = settings.max_graphs,
                                                                    .report = [&](const std::string& text) {
                                                                      outcome.said = text;
                                                                    }}});
  outcome.loss = trainer.fit(data, {.epochs = settings.epochs}).loss;
  for (const at::Tensor& parameter : net->parameters()) outcome.weights.push_back(parameter.detach().cpu());
  return outcome;
}

/// Trains eagerly and by graphs; returns what is said of the graphs. The bits must be the same.
template <class AnyBatch, class Objective>
std::string said_of(Settings settings, const std::vector<AnyBatch>& data, const Objective& objective) {
  const Outcome replayed = train(settings, data, objective);
  settings.captures = false;
  const Outcome eager = train(settings, data, objective);
  REQUIRE(eager.weights.size() == replayed.weights.size());
  for (std::size_t i = 0; i < eager.weights.size(); ++i)
    CHECK(bits_equal(eager.weights[i], replayed.weights[i]));
  CHECK(eager.loss == replayed.loss);
  return replayed.said;
}

struct ByWords {
  lt::Loss operator()(Net& net, const Batch& batch) const {
    return {.value = loss_of(net, batch), .weight = batch.words};
  }
  double weight(const Batch& batch) const { return batch.words; }
};

}  // namespace

TEST_CASE("the third micro-batch of a form is captured, and later ones are replayed") {
  if (!has_device()) return;
  const auto data = batches({6, 6, 6, 4, 6, 4});
  const auto plain = [](Net& net, const Batch& batch) { return loss_of(net, Batch{batch.x, batch.y}); };
  // What the host alone knows is part of a form: here a number that has three values.
  CHECK_THAT(said_of({.epochs = 6}, data, plain),
             StartsWith("26 of 36 micro-batches ran as graphs, of which there are 5"));
  CHECK_THAT(said_of({.epochs = 6}, data, ByWords{}),
             StartsWith("32 of 36 micro-batches ran as graphs, of which there are 2"));
}

TEST_CASE("weights that an objective tells are those of each batch, in windows of several, too") {
  if (!has_device()) return;
  const auto data = batches({6, 6, 6, 6, 6, 6, 6});
  for (const std::int64_t accumulate : {1, 3})
    CHECK_THAT(said_of({.accumulate = accumulate, .epochs = 3}, data, ByWords{}), StartsWith("19 of 21"));
  struct Sum : ByWords {
    lt::Loss operator()(Net& net, const Batch& batch) const {
      return {.weight = batch.words, .sum = loss_of(net, batch) * 2};
    }
  };
  for (const std::int64_t accumulate : {1, 3})
    CHECK_THAT(said_of({.accumulate = accumulate, .epochs = 3}, data, Sum{}), StartsWith("19 of 21"));
}

TEST_CASE("dropout draws the numbers of the eager run, and another fit continues from there") {
  if (!has_device()) return;
  CHECK_THAT(said_of({.dropout = 0.4, .epochs = 4}, batches({6, 6, 5, 6}), ByWords{}),
             StartsWith("12 of 16"));
}

TEST_CASE("operations of a window are those of the eager one, as a graph is captured and as it is replayed") {
  if (!has_device()) return;
  Net net(0);
  net->to(test_device());
  lt::FusedAdamW adamw(net->parameters(), {.lr = 0.05});
  std::string said;
  std::vector<std::int64_t> counts;
  auto counter = std::make_unique<lt::FlopCounter>();
  lt::Trainer trainer(net, adamw, ByWords{},
                      lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }},
                      lt::On{lt::kObserve, [&](lt::WindowContext&) {
                               counts.push_back(counter->count().total());
                               counter.reset();
                               counter = std::make_unique<lt::FlopCounter>();
                             }});
  const auto data = batches({5, 5, 5, 5, 7, 5});
  trainer.fit(data);
  CHECK_THAT(said, StartsWith("3 of 6 micro-batches ran as graphs, of which there are 1"));
  REQUIRE(counts.size() == data.size());
  // Forward, and backward for the weights of both layers and the input of the second.
  for (std::size_t i = 0; i < data.size(); ++i)
    CHECK(counts[i] == data[i].x.size(0) * (2 * 2 * 4 * 16 + 3 * 2 * 16 * 3));
}

TEST_CASE("what a graph cannot hold runs eagerly, and the reason is said") {
  if (!has_device()) return;
  const auto data = batches({6, 6, 6, 6});
  struct HostDraws : ByWords {
    lt::Loss operator()(Net& net, const Batch& batch) const {
      return {.value = loss_of(net, batch) * at::rand({}).item<double>(), .weight = batch.words};
    }
  };
  CHECK_THAT(said_of({}, data, HostDraws{}),
             StartsWith("0 of 8") && Contains("draws random numbers on the host"));
  struct Reads : ByWords {
    lt::Loss operator()(Net& net, const Batch& batch) const {
      const at::Tensor loss = loss_of(net, batch);
      return {.value = loss.item<double>() > 1e9 ? loss * 2 : loss, .weight = batch.words};
    }
  };
  CHECK_THAT(said_of({}, data, Reads{}), StartsWith("0 of 8") && Contains("cannot be captured"));
  struct Uploads : ByWords {
    lt::Loss operator()(Net& net, const Batch& batch) const {
      return {.value = loss_of(net, batch) * at::full({1}, 2.0).to(test_device()).sum(),
              .weight = batch.words};
    }
  };
  if (is_simulated())
    CHECK_THAT(said_of({}, data, Uploads{}), StartsWith("0 of 8") && Contains("copy to the device"));
  CHECK_THAT(said_of({.max_graphs = 1, .epochs = 4}, batches({6, 5}), ByWords{}),
             Contains("as many graphs as max_graphs"));
}

TEST_CASE("after a capture that failed, training continues as if nothing had been") {
  if (!has_device()) return;
  struct Sometimes : ByWords {
    std::shared_ptr<int> calls = std::make_shared<int>(0);
    lt::Loss operator()(Net& net, const Batch& batch) const {
      const at::Tensor loss = loss_of(net, batch);
      if (++*calls == 3) (void)loss.item<double>();  // the capture
      return {.value = loss, .weight = batch.words};
    }
  };
  for (const std::int64_t accumulate : {1, 2}) {
    Settings settings{.accumulate = accumulate, .dropout = 0.3, .epochs = 3};
    const auto data = batches({6, 6, 6, 6});
    const Outcome failed = train(settings, data, Sometimes{});
    CHECK_THAT(failed.said, StartsWith("0 of 12") && Contains("cannot be captured"));
    settings.captures = false;
    const Outcome eager = train(settings, data, ByWords{});
    for (std::size_t i = 0; i < eager.weights.size(); ++i)
      CHECK(bits_equal(eager.weights[i], failed.weights[i]));
  }
}

TEST_CASE("a capture that failed keeps no copy of the gradients") {
  if (!has_device()) return;
  const auto held = [](bool captures) {
    torch::nn::Linear net(200, 200);
    net->to(test_device());
    lt::FusedAdamW adamw(net->parameters());
    const auto reads = [](torch::nn::Linear& net, const at::Tensor& x) {
      const at::Tensor loss = net(x).square().mean();
      (void)loss.item<double>();
      return loss;
    };
    std::int64_t bytes = 0;
    const lt::On measure{lt::kObserve, [&](lt::WindowContext&) {
                           bytes = lt::MemoryCounter(test_device()).read().allocated;
                         }};
    std::string said;
    lt::Trainer trainer(
        net, adamw, reads, measure,
        lt::When{captures, lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }}});
    trainer.fit(std::vector<at::Tensor>(6, torch::ones({3, 200}).to(test_device())));
    if (captures) CHECK_THAT(said, StartsWith("0 of 6") && Contains("cannot be captured"));
    return bytes;
  };
  CHECK(held(true) - held(false) < 200 * 200 * 2);  // half a copy
}

TEST_CASE("a parameter that moves, and one that is frozen meanwhile, get graphs of their own") {
  if (!has_device()) return;
  torch::manual_seed(1);
  Net net(0.0);
  net->to(test_device());
  lt::FusedAdamW adamw(net->parameters());
  std::string said;
  std::int64_t windows = 0;
  lt::Trainer trainer(net, adamw, ByWords{},
                      lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }},
                      lt::On{lt::kObserve, [&](lt::WindowContext&) {
                               if (++windows == 6)
                                 net->one->weight.set_data(net->one->weight.detach().clone());
                               if (windows == 12) net->two->bias.set_requires_grad(false);
                             }});
  trainer.fit(batches(std::vector<std::int64_t>(18, 6)), {.epochs = 1});
  CHECK_THAT(said, StartsWith("12 of 18 micro-batches ran as graphs, of which there are 3"));
  CHECK(net->two->bias.detach().cpu().isfinite().all().item<bool>());
}

TEST_CASE("a micro-batch without weight draws its numbers, though nothing is learnt from it") {
  if (!has_device()) return;
  auto data = batches({6, 6, 6, 6, 6, 6});
  data[1].words = data[4].words = 0;
  for (const std::int64_t accumulate : {1, 2})
    CHECK_THAT(said_of({.accumulate = accumulate, .dropout = 0.4, .epochs = 2}, data, ByWords{}),
               Contains("weighs nothing"));
}

TEST_CASE("forms whose first micro-batches weigh nothing get a graph once others have shown the gradients") {
  if (!has_device()) return;
  auto data = batches({6, 6, 6, 6, 6, 6, 6});
  for (const std::size_t i : {0, 1, 2}) data[i].words = 0;
  for (const std::int64_t accumulate : {1, 4})
    CHECK_THAT(said_of({.accumulate = accumulate, .dropout = 0.4, .epochs = 1}, data, ByWords{}),
               StartsWith("2 of 7 micro-batches ran as graphs, of which there are 1; 5 came before"));
}

TEST_CASE("a hook on the loss that writes to its gradient does so once a micro-batch") {
  if (!has_device()) return;
  struct Halves : ByWords {
    lt::Loss operator()(Net& net, const Batch& batch) const {
      const at::Tensor loss = loss_of(net, batch);
      loss.register_hook([](const at::Tensor& gradient) { gradient.mul_(0.5); });
      return {.value = loss, .weight = batch.words};
    }
  };
  for (const std::int64_t accumulate : {1, 3})
    CHECK_THAT(said_of({.accumulate = accumulate}, batches({6, 6, 6, 6, 6, 6}), Halves{}),
               StartsWith("10 of 12"));
}

TEST_CASE("a model with a buffer on the host, which a graph would not read again, runs eagerly") {
  if (!has_device()) return;
  const auto run = [](bool captures, bool lazily) {
    torch::manual_seed(1);
    Net net(0.0);
    net->to(test_device());
    at::Tensor scale = at::ones({});
    if (!lazily) net->register_buffer("scale", scale);
    lt::FusedAdamW adamw(net->parameters());
    std::string said;
    const auto objective = [scale](Net& net, const Batch& batch) {
      if (!net->named_buffers().contains("scale")) net->register_buffer("scale", scale);
      return loss_of(net, batch) * scale;
    };
    lt::Trainer trainer(
        net, adamw, objective,
        lt::When{captures, lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }}},
        lt::ClipGradNorm{0.1}, lt::On{lt::kObserve, [&](lt::WindowContext&) { scale.mul_(0.3); }});
    auto data = batches(std::vector<std::int64_t>(6, 6));
    for (Batch& batch : data) batch.words = 1;
    trainer.fit(data, {.epochs = 1});
    if (captures) CHECK_THAT(said, StartsWith("0 of 6") && Contains("several devices"));
    return net->one->weight.detach().cpu();
  };
  for (const bool lazily : {false, true}) CHECK(bits_equal(run(true, lazily), run(false, lazily)));
}

TEST_CASE("which tensors a batch has is part of its form, whatever the objective promises") {
  if (!has_device()) return;
  struct Masked {
    at::Tensor x, y;
    std::optional<at::Tensor> added, factor;
  };
  struct Objective {
    lt::Loss operator()(Net& net, const Masked& batch) const {
      at::Tensor x = batch.x;
      if (batch.added) x = x + *batch.added;
      if (batch.factor) x = x * *batch.factor;
      return {.value = loss_of(net, Batch{x, batch.y})};
    }
    double weight(const Masked&) const { return 1; }
  };
  std::vector<Masked> data;
  for (const auto& [x, y, words] : batches(std::vector<std::int64_t>(12, 6))) {
    const bool adds = data.size() != 8;
    data.push_back(
        {x, y, adds ? std::optional(x * 2) : std::nullopt, adds ? std::nullopt : std::optional(x * 2)});
  }
  CHECK_THAT(said_of({.epochs = 1}, data, Objective{}), StartsWith("9 of 12"));
}

TEST_CASE("a weight that is told must be that of the loss, and a weight") {
  if (!has_device()) return;
  struct Lies : ByWords {
    lt::Loss operator()(Net& net, const Batch& batch) const { return {.value = loss_of(net, batch)}; }
  };
  CHECK_THAT(said_of({.accumulate = 3}, batches({6, 6, 6, 6, 6, 6}), Lies{}),
             StartsWith("0 of 12") && Contains("another weight"));
  auto data = batches({6, 6, 6, 6, 6, 6});
  data.back().words = -1;
  CHECK_THROWS_AS(train({}, data, ByWords{}), lt::UsageError);
}

TEST_CASE("a capture that fails leaves no gradient where backward reaches none") {
  if (!has_device()) return;
  struct Narrows : ByWords {
    std::shared_ptr<int> calls = std::make_shared<int>(0);
    lt::Loss operator()(Net& net, const Batch& batch) const {
      const bool whole = ++*calls <= 2;
      const at::Tensor hidden = torch::tanh(net->one(batch.x));
      const at::Tensor bias = net->two->bias;
      const at::Tensor out = at::linear(hidden, net->two->weight, whole ? bias : bias.detach());
      return {.value = at::cross_entropy_loss(out, batch.y), .weight = batch.words};
    }
  };
  const auto data = batches({6, 6, 6, 6});
  const Outcome eager = train({.captures = false}, data, Narrows{}), failed = train({}, data, Narrows{});
  CHECK_THAT(failed.said, StartsWith("0 of 8") && Contains("other parameters"));
  for (std::size_t i = 0; i < eager.weights.size(); ++i)
    CHECK(bits_equal(eager.weights[i], failed.weights[i]));
}

TEST_CASE("sparse gradients stay sparse") {
  if (!has_device()) return;
  const auto run = [](bool captures) {
    torch::manual_seed(1);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    table->to(test_device());
    torch::optim::SGD sgd(table->parameters(), torch::optim::SGDOptions(0.1));
    std::string said;
    std::vector<bool> sparse;
    const auto objective = [](torch::nn::Embedding& net, const Batch& batch) {
      return net->forward(batch.y).square().mean();
    };
    lt::Trainer trainer(
        table, sgd, objective,
        lt::When{captures, lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }}},
        lt::On{lt::kUpdate, [&](lt::UpdateContext&) { sparse.push_back(table->weight.grad().is_sparse()); }});
    std::vector<Batch> data = batches({6, 6, 6, 6, 6});
    for (Batch& batch : data) batch.words = 1;
    trainer.fit(data, {.epochs = 1});
    CHECK(sparse == std::vector<bool>(5, true));
    if (captures) CHECK_THAT(said, StartsWith("0 of 5") && Contains("sparse"));
    return table->weight.detach().cpu();
  };
  CHECK(bits_equal(run(true), run(false)));
}

TEST_CASE("a batch that a slot cannot stand for runs eagerly") {
  if (!has_device()) return;
  auto data = batches({6, 6, 6, 6, 6});
  for (Batch& batch : data) batch.x.set_requires_grad(true);
  CHECK_THAT(said_of({.epochs = 1}, data, ByWords{}),
             StartsWith("0 of 5") && Contains("requires a gradient"));
  struct Graph {
    at::Tensor x, y, edges;
  };
  struct Objective {
    lt::Loss operator()(Net& net, const Graph& batch) const {
      return {.value = loss_of(net, Batch{batch.x, batch.y})};
    }
  };
  std::vector<Graph> graphs;
  for (const auto& [x, y, words] : batches({6, 6, 6, 6, 6}))
    graphs.push_back({x, y, at::eye(6).to_sparse().to(test_device())});
  CHECK_THAT(said_of({.epochs = 1}, graphs, Objective{}), StartsWith("0 of 5") && Contains("sparse"));
}

TEST_CASE("a model that changes its type, and a parameter that joins, get graphs of their own") {
  if (!has_device()) return;
  const auto converted = [](bool captures) {
    torch::manual_seed(1);
    Net net(0.0);
    net->to(test_device());
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    lt::Trainer trainer(net, sgd, ByWords{}, lt::When{captures, lt::CaptureGraphs{.report = [](auto&) {}}});
    auto data = batches(std::vector<std::int64_t>(8, 6));
    for (const Batch& batch : data) trainer.step(batch);
    net->to(at::kDouble);
    for (Batch& batch : data) batch.x = batch.x.to(at::kDouble), trainer.step(batch);
    trainer.finish();
    return net->one->weight.detach().cpu();
  };
  CHECK(bits_equal(converted(true), converted(false)));
  const auto joined = [](bool captures) {
    torch::manual_seed(1);
    Net net(0.0);
    net->to(test_device());
    at::Tensor factor = at::ones({}, at::TensorOptions(test_device())).requires_grad_(true);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    std::int64_t windows = 0;
    lt::Trainer trainer(
        net, sgd,
        [&](Net& net, const Batch& batch) {
          return loss_of(net, Batch{batch.x * factor, batch.y});
        },
        lt::When{captures, lt::CaptureGraphs{.report = [](auto&) {}}},
        lt::On{lt::kObserve, [&](lt::WindowContext&) {
                 if (++windows == 6) sgd.param_groups()[0].params().push_back(factor);
               }});
    auto data = batches(std::vector<std::int64_t>(14, 6));
    for (Batch& batch : data) batch.words = 1;
    trainer.fit(data, {.epochs = 1});
    CHECK(factor.item<double>() != 1);
    return at::cat({net->one->weight.detach().flatten().cpu(), factor.detach().reshape({1}).cpu()});
  };
  CHECK(bits_equal(joined(true), joined(false)));
}

TEST_CASE("options below 1 are refused, and a CPU has no graphs") {
  torch::manual_seed(1);
  Net net(0.0);
  lt::FusedAdamW adamw(net->parameters());
  std::vector<Batch> data{{at::randn({4, 4}), at::zeros({4}, at::kLong)}};
  lt::Trainer none(net, adamw, ByWords{}, lt::CaptureGraphs{.warmup = 0});
  CHECK_THROWS_WITH(none.fit(data, {.epochs = 1}), Contains("at least 1, got 0 and 16"));
  std::string said;
  lt::Trainer here(net, adamw, ByWords{},
                   lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }});
  here.fit(data, {.epochs = 1});
  CHECK(said ==
        "0 of 1 micro-batches ran as graphs, of which there are 0; 1 ran eagerly: this device has no graphs");
}

TEST_CASE("a replay is one launch and a copy for each tensor of the batch, and waits for nothing") {
  if (!is_simulated()) return;
  namespace sim = looptorch_test::accelerator;
  const auto launches = [](bool captures) {
    torch::manual_seed(1);
    Net net(0.1);
    net->to(test_device());
    lt::FusedAdamW adamw(net->parameters());
    sim::Counts counted;
    std::int64_t windows = 0;
    std::optional<sim::CountWaits> count;
    lt::Trainer trainer(net, adamw, ByWords{},
                        lt::When{captures, lt::CaptureGraphs{.report = [](const std::string&) {}}},
                        lt::On{lt::kObserve, [&](lt::WindowContext&) {
                                 if (++windows == 8) count.emplace();
                                 if (windows == 12) counted = count->counts();
                               }});
    trainer.fit(batches(std::vector<std::int64_t>(14, 6)), {.epochs = 1});
    return std::pair(counted.launches / 4, counted.host_waits);
  };
  const auto [eager, eager_waits] = launches(false);
  const auto [replayed, waits] = launches(true);
  CHECK(eager_waits == 0);
  CHECK(waits == 0);
  CHECK(eager - replayed >= 10);
  CHECK(replayed <= 14);
}

TEST_CASE("a profile has the steps that graphs replay") {
  if (!has_device()) return;
  for (const std::int64_t first : {2, 6}) {
    const lt::testing::TemporaryFolder folder;
    torch::manual_seed(1);
    torch::nn::Linear net(4, 3);
    net->to(test_device());
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 0.05});
    const auto objective = [](torch::nn::Linear& model, const at::Tensor& x) {
      return model(x).pow(2).mean();
    };
    std::string said;
    lt::Trainer trainer(net, optimizer, objective, lt::CaptureGraphs{.report = [](const std::string&) {}},
                        lt::Profile{.folder = folder.path(),
                                    .first = first,
                                    .last = first + 1,
                                    .report = [&](const std::string& text) { said = text; }});
    trainer.fit(std::vector<at::Tensor>(10, torch::ones({2, 4}, test_device())));
    CHECK_THAT(said, Catch::Contains(lt::message("has steps ", first, " to ", first + 1)));
    const std::string trace = lt::read_file(folder / "trace.json");
    CHECK(trace.find(lt::message("ProfilerStep#", first + 1)) != std::string::npos);
    CHECK(trace.find(lt::message("ProfilerStep#", first + 2)) == std::string::npos);
  }
}
