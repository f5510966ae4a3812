// SPDX-License-Identifier: MIT
// On a CPU, which has no graphs: tests/device/capture_graphs_test.cpp has the others.
// Tests graph: graphed_micro_batch, graph_candidate, micro_batch_warm_up, micro_batch_capture
// Tests graph: micro_batch_replay, graphed_end, gradient_versions, cuda_graph
#include "support/precompiled.hpp"

#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/trainer.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;

namespace {

struct Batch {
  at::Tensor x = at::ones({2, 3});
};

template <class... Policies>
void fit(Policies... policies) {
  torch::nn::Linear net(3, 1);
  lt::FusedAdamW adamw(net->parameters());
  lt::Trainer trainer(
      net, adamw, [](torch::nn::Linear& net, const Batch& batch) { return net(batch.x).mean(); },
      std::move(policies)...);
  trainer.fit(std::vector<Batch>(4), {.epochs = 1});
}

}  // namespace

TEST_CASE("on a CPU micro-batches run eagerly, and the reason is said as the fit ends") {
  std::string said;
  fit(lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }});
  CHECK(said ==
        "0 of 4 micro-batches ran as graphs, of which there are 0; 4 ran eagerly: this device has no graphs");
  fit(lt::Accumulate<2>{}, lt::UpdateInBackward<lt::SumsInBf16>{},
      lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }});
  CHECK_THAT(said, Contains("4 ran eagerly"));
  said.clear();
  fit(lt::When{false, lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }}});
  CHECK(said.empty());
}

TEST_CASE("options below 1 are refused") {
  CHECK_THROWS_WITH(fit(lt::CaptureGraphs{.warmup = 0}), Contains("at least 1, got 0 and 16"));
  CHECK_THROWS_WITH(fit(lt::CaptureGraphs{.max_graphs = -3}), Contains("at least 1, got 2 and -3"));
}
