// SPDX-License-Identifier: MIT
// The ViT of examples/spectrogram_gan_vit on a device: the CPU's outputs, gradients and training run, and
// micro-batches that wait for nothing, and as graphs.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/trainer.hpp>

#include "support/device.hpp"
#include "support/snapshots.hpp"

#include <spectrogram_gan_vit/vit/config.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <spectrogram_gan_vit/vit/objective.hpp>
#include <spectrogram_gan_vit/vit/scores.hpp>
#include <spectrogram_gan_vit/vit/unfreezing.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace lt = looptorch;
namespace vit = spectrogram_vit;
using namespace looptorch::testing;
using Catch::StartsWith;

namespace {

using NamedTensors = std::map<std::string, at::Tensor>;

/// The preset "small", with a normalisation that changes what it sees. In fp64, so that attention computed by
/// other kernels differs in the last digits alone.
vit::ViT vit_on(at::Device device, at::ScalarType type = at::kDouble) {
  torch::manual_seed(3);
  vit::ViT model(vit::size_named("small"));
  {
    const torch::NoGradGuard no_grad;
    model->normalisation->mean.uniform_(-1, 1);
    model->normalisation->deviation.uniform_(0.5, 2);
  }
  model->to(device, type);
  return model;
}

std::vector<vit::Batch> emotions_on(at::Device device, std::int64_t count,
                                    at::ScalarType type = at::kDouble) {
  torch::manual_seed(5);
  std::vector<vit::Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto spectrograms = at::randn({3, 1, 64, 323}), conditions = at::rand({3, 2}) * 2 - 1;
    batches.push_back({spectrograms.to(device, type), conditions.to(device, type)});
  }
  return batches;
}

/// Checks that both hold the same tensors, to a billionth of a tensor's largest value.
void check_equal(const NamedTensors& host, const NamedTensors& device) {
  REQUIRE(host.size() == device.size());
  for (const auto& [name, expected] : host) {
    CAPTURE(name);
    const auto& found = device.at(name);
    REQUIRE(found.sizes() == expected.sizes());
    const double largest = std::max(expected.abs().max().item<double>(), 1e-3);
    CHECK((found - expected).abs().max().item<double>() <= 1e-9 * largest);
  }
}

/// Mixes as ViTObjective does, by a share that all devices have.
struct MixedObjective {
  lt::Loss operator()(vit::ViT& model, const vit::Batch& batch) const {
    const auto mixed = vit::mix(batch, at::full({}, 0.3, batch.conditions_B2.options()));
    return {.value = vit::emotion_loss(model(mixed.spectrograms_B1MF), mixed.conditions_B2),
            .weight = batch.conditions_B2.size(0)};
  }
};

/// Fine-tunes as vit_train does, in two steps of unfreezing. Returns weights, scores and loss.
NamedTensors fine_tuned(at::Device device, bool recomputes) {
  auto model = vit_on(device);
  const auto rules = vit::unfreeze_rules(vit::parse_unfreezing("1:3,2:2-3"), 4);
  vit::freeze_backbone(model);
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-3});
  lt::Trainer trainer(model, optimizer, MixedObjective{}, lt::Accumulate<2>{},
                      lt::When{recomputes, lt::Checkpointed<vit::ViTBlock>{}}, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}, .warmup_steps = 2}, lt::UnfreezeAt(rules),
                      lt::Validate{emotions_on(at::kCPU, 2), vit::EmotionMeasure{}});
  const auto result = trainer.fit(emotions_on(at::kCPU, 5), {.epochs = 3});
  CHECK(result.steps == 9);
  NamedTensors left{{"loss", at::scalar_tensor(result.loss, at::kDouble)}};
  for (const auto& [name, score] : trainer.evaluate(emotions_on(at::kCPU, 2), vit::EmotionMeasure{}).metrics)
    left.emplace(name, at::scalar_tensor(score, at::kDouble));
  for (const auto& item : model->named_parameters()) left.emplace(item.key(), item.value().detach().cpu());
  return left;
}

}  // namespace

TEST_CASE("A ViT predicts on a device what it predicts on a CPU, with the same attention and gradients") {
  if (!has_device()) return;
  const auto numbers = [](at::Device device) {
    auto model = vit_on(device);
    const auto [spectrograms_B1MF, conditions_B2] = emotions_on(device, 1).front();
    const auto predicted_B2 = model(spectrograms_B1MF);
    const auto loss = vit::emotion_loss(predicted_B2, conditions_B2);
    loss.backward();
    // Half as wide as the configuration says, so that positions are interpolated.
    const auto states_BTD = model->backbone(model->images(spectrograms_B1MF).slice(3, 0, 128));
    CHECK(predicted_B2.device() == device);
    NamedTensors all{{"predicted", predicted_B2.detach().cpu()},
                     {"loss", loss.detach().cpu()},
                     {"states", states_BTD.detach().cpu()},
                     {"attention", model->attention(spectrograms_B1MF).detach().cpu()}};
    for (const auto& item : model->named_parameters()) all.emplace(item.key(), item.value().grad().cpu());
    return all;
  };
  check_equal(numbers(at::kCPU), numbers(test_device()));
}

TEST_CASE("A ViT that is fine-tuned on a device block by block has the CPU's weights and scores") {
  if (!has_device()) return;
  const auto host = fine_tuned(at::kCPU, false);
  check_equal(host, fine_tuned(test_device(), false));
  check_equal(host, fine_tuned(test_device(), true));
}

TEST_CASE("A ViT's micro-batches wait for nothing on the device, mixed in fp16 and recomputed") {
  if (!has_device()) return;
  auto model = vit_on(test_device(), at::kFloat);
  lt::FusedAdamW optimizer(model->parameters());
  lt::Trainer trainer(model, optimizer, vit::ViTObjective{.mixup = 0.4}, lt::Accumulate<2>{},
                      lt::Autocast<lt::fp16>{}, lt::Checkpointed<vit::ViTBlock>{}, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::ConstantLr{}, .warmup_steps = 3});
  const auto batch = emotions_on(test_device(), 1, at::kFloat).front();
  for (int i = 0; i < 4; ++i) trainer.step(batch);  // allocators and handles are there afterwards
  const NoWaits no_waits;
  for (int i = 0; i < 8; ++i) CHECK_NOTHROW(trainer.step(batch));
  CHECK_THROWS(trainer.updates()[0].loss.mean());  // so that a wait would have shown
}

TEST_CASE("Mixup draws on the device, so that mixed micro-batches become graphs with the eager run's bits") {
  if (!has_device()) return;
  const auto trained = [](bool captures) {
    auto model = vit_on(test_device(), at::kFloat);
    torch::manual_seed(7);
    lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-3});
    std::string said;
    lt::Trainer trainer(
        model, optimizer, vit::ViTObjective{.mixup = 0.4}, lt::Accumulate<2>{},
        lt::Checkpointed<vit::ViTBlock>{},
        lt::When{captures, lt::CaptureGraphs{.report = [&](const std::string& text) { said = text; }}});
    trainer.fit(emotions_on(at::kCPU, 4, at::kFloat), {.epochs = 2});
    if (captures) CHECK_THAT(said, StartsWith("6 of 8 micro-batches ran as graphs"));
    return model->parameters();
  };
  const auto eager = trained(false), replayed = trained(true);
  for (std::size_t i = 0; i < eager.size(); ++i) CHECK(bits_equal(eager[i].cpu(), replayed[i].cpu()));
}

TEST_CASE("Shares of mixup that a device draws differ from step to step, and follow from the seed") {
  if (!has_device()) return;
  const auto draw = [] { return vit::draw_share(0.4, test_device()).item<double>(); };
  torch::manual_seed(1);
  const double first = draw(), second = draw();
  for (const double share : {first, second}) CHECK((share >= 0 && share <= 1));
  CHECK(first != second);
  torch::manual_seed(1);
  CHECK(draw() == first);
}
