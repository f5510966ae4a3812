// SPDX-License-Identifier: MIT
// KonkaniVani's micro-batches as graphs: the eager run's bits with dropout, several lengths and accumulation,
// CTC's lengths and the metrics of each batch included. A loss that reads them on the host is not captured.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/snapshots.hpp"

#include <konkanivani/training/objective.hpp>

#include <string>
#include <vector>

namespace lt = looptorch;
namespace kv = konkanivani;
using namespace looptorch::testing;
using Catch::Contains, Catch::StartsWith;

namespace {

/// Batches of two shapes; clips and texts of all lengths, and one too short for its text.
std::vector<kv::Batch> batches() {
  torch::manual_seed(2);
  std::vector<kv::Batch> all;
  for (std::int64_t i = 0; i < 8; ++i) {
    const std::int64_t frames = i % 3 == 2 ? 64 : 32;
    std::vector<std::vector<std::int64_t>> texts{{5, 6, 6, 7}, {8}, {5, 5}};
    texts[0].resize(static_cast<std::size_t>(1 + i % 4));
    if (i == 3) texts[1] = {9, 9, 9, 9};
    const at::Tensor lengths = torch::tensor({frames, frames - 3 - i, std::int64_t(5 + i)}, at::kLong);
    auto targets = kv::make_targets(texts, 4);
    for (auto* tensor : {&targets.characters_BL, &targets.inputs_BL, &targets.labels_BL,
                         &targets.input_lengths_B, &targets.ctc_frames_B})
      *tensor = tensor->to(test_device());
    all.push_back({.mel_BMF = at::randn({3, 6, frames}).to(test_device()),
                   .lengths_B = lengths.to(test_device()),
                   .indices = {i, i, i},
                   .targets = targets,
                   .texts = {std::to_string(i)}});
  }
  return all;
}

struct Outcome {
  std::vector<at::Tensor> state;
  double loss = 0;
  std::vector<double> metrics;
  std::string said;
};

struct Settings {
  bool captures = false;
  std::int64_t accumulate = 1;
  kv::Positions positions = kv::Positions::sinusoidal;
  bool recomputes = false;
};

template <class Objective>
Outcome train(const Settings& settings, const Objective& objective) {
  torch::manual_seed(1);
  kv::KonkaniVani model(kv::ModelConfig{.vocabulary = 12,
                                        .d_model = 16,
                                        .encoder_layers = 2,
                                        .decoder_layers = 1,
                                        .heads = 2,
                                        .feed_forward = 2,
                                        .kernel = 5,
                                        .mel_bins = 6,
                                        .dropout = 0.2,
                                        .positions = settings.positions});
  model->to(test_device());
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 0.01});
  Outcome outcome;
  lt::Trainer trainer(model, optimizer, objective, lt::Accumulate<>{settings.accumulate},
                      lt::ClipGradNorm{5.0}, lt::ScheduleLr{.decay = lt::LinearDecay{}, .warmup_steps = 3},
                      lt::When{settings.recomputes, lt::Checkpointed<kv::ConformerBlock>{}},
                      lt::When{settings.captures, lt::CaptureGraphs{.report = [&](const std::string& text) {
                                 outcome.said = text;
                               }}});
  outcome.loss = trainer.fit(batches(), {.epochs = 4}).loss;
  for (const char* name : {"ctc", "attention", "too_short"})
    outcome.metrics.push_back(trainer.updates()[0].metrics.at(name).mean());
  for (const auto& [name, tensor] : lt::state_dict(model)) outcome.state.push_back(tensor.detach().cpu());
  return outcome;
}

void check_same(const Outcome& captured, const Outcome& eager) {
  REQUIRE(captured.state.size() == eager.state.size());
  for (std::size_t i = 0; i < eager.state.size(); ++i) CHECK(bits_equal(captured.state[i], eager.state[i]));
  CHECK(captured.loss == eager.loss);
  CHECK(captured.metrics == eager.metrics);
  CHECK(captured.metrics.back() > 0);  // a clip is too short
}

}  // namespace

TEST_CASE("KonkaniVani trains as graphs with the eager run's bits") {
  if (!has_device()) return;
  for (Settings settings : {Settings{}, Settings{.accumulate = 3}, Settings{.recomputes = true},
                            Settings{.positions = kv::Positions::relative}}) {
    CAPTURE(settings.accumulate, settings.recomputes);
    const Outcome eager = train(settings, kv::JointLoss{});
    settings.captures = true;
    const Outcome captured = train(settings, kv::JointLoss{});
    check_same(captured, eager);
    if (settings.accumulate == 1)
      CHECK_THAT(captured.said,
                 StartsWith("28 of 32 micro-batches ran as graphs, of which there are 2; 4 came before"));
    else  // the last window of an epoch has two
      CHECK_THAT(captured.said, StartsWith("28 of 32") && !Contains("ran eagerly: it"));
  }
}

TEST_CASE("a loss of KonkaniVani that reads lengths on the host is not captured") {
  if (!has_device()) return;
  struct ByHost : kv::JointLoss {
    lt::Loss operator()(kv::KonkaniVani& model, const kv::Batch& batch) const {
      auto loss = kv::JointLoss::operator()(model, batch);
      loss.sum = loss.sum * (batch.targets.input_lengths_B.max().item<std::int64_t>() > 0 ? 1 : 2);
      return loss;
    }
  };
  const Outcome captured = train({.captures = true}, ByHost{});
  CHECK_THAT(captured.said, StartsWith("0 of 32") && Contains("cannot be captured"));
  const Outcome eager = train({}, kv::JointLoss{});
  check_same(captured, eager);
}
