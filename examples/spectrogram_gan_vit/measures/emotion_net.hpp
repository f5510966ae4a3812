// SPDX-License-Identifier: MIT
// A small network by which generators are measured. It is trained on real spectrograms to predict valence and
// arousal, then applied to generated ones. Its predictions show which emotion a generated spectrogram has.
// Its last layer but one gives the features for the Frechet and kernel distances.
//
// Shapes: B batch, N clips, M mel bins, F frames, D features.
#pragma once

#include <looptorch/app/ranks.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/metrics/regression.hpp>
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace spectrogram_gan {

class EmotionNetImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kFeatures = 64;

  explicit EmotionNetImpl(std::int64_t n_mels) {
    std::int64_t rows = n_mels;
    for (std::int64_t from = 1, to = 16; to <= 64; from = to, to *= 2, rows = (rows + 1) / 2) {
      convolutions->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).stride(2).padding(1)));
      convolutions->push_back(torch::nn::GroupNorm(8, to));
      convolutions->push_back(torch::nn::ReLU());
    }
    register_module("convolutions", convolutions);
    hidden = register_module("hidden", torch::nn::Linear(2 * 64 * rows, kFeatures));
    output = register_module("output", torch::nn::Linear(kFeatures, 2));
  }

  /// Converts `[B, 1, M, F]` to features `[B, D]`.
  at::Tensor features(const at::Tensor& spectrograms_B1MF) {
    // Averages pairs of frames, since emotion changes slowly.
    const auto x = convolutions->forward(at::avg_pool2d(spectrograms_B1MF, {1, 2}));
    const auto [variance, mean] = at::var_mean(x, at::IntArrayRef{3}, /*unbiased=*/false);
    return at::relu(hidden(at::cat({mean.flatten(1), (variance + 1e-5).sqrt().flatten(1)}, 1)));
  }

  /// Returns valence and arousal `[B, 2]`.
  at::Tensor forward(const at::Tensor& spectrograms_B1MF) { return output(features(spectrograms_B1MF)); }

  torch::nn::Sequential convolutions;
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(EmotionNet);

/// Options of `train_emotion_net`. The order of the fields is API.
struct EmotionNetTraining {
  std::int64_t epochs = 10;
  std::uint64_t seed = 1;
  looptorch::LoaderOptions loading = {.batch_size = 16};
};

/// Returns a network trained from scratch on the clips of a dataset. Its first weights and the order of clips
/// depend on the seed alone.
template <class Dataset>
[[nodiscard]] EmotionNet train_emotion_net(const Dataset& clips, std::int64_t n_mels, at::Device device,
                                           const EmotionNetTraining& options) {
  namespace lt = looptorch;
  torch::manual_seed(options.seed);
  EmotionNet net(n_mels);
  net->to(device);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 2e-3, .weight_decay = 1e-4});
  auto objective = [](EmotionNet& net, const auto& batch) {
    return lt::Loss{.value = at::mse_loss(net(batch.spectrograms_B1MF), batch.conditions_B2),
                    .weight = batch.conditions_B2.size(0)};
  };
  lt::Trainer trainer(net, optimizer, objective, lt::ClipGradNorm{1.0},
                      lt::ScheduleLr{.decay = lt::CosineDecay{}},
                      lt::When{lt::app::leads(), lt::ShowProgress{}});  // each rank trains its own network
  trainer.fit(lt::PinnedPrefetchLoader(clips, options.loading, lt::RandomSampler{.seed = options.seed}),
              {.epochs = options.epochs});
  net->eval();
  return net;
}

/// A network's results for many spectrograms `[N, 1, M, F]`, in batches of `batch`: features `[N, D]` and
/// emotions `[N, 2]`, on the CPU.
struct Predictions {
  at::Tensor features_ND, conditions_N2;
};

[[nodiscard]] inline Predictions predict(EmotionNet& net, const at::Tensor& spectrograms_N1MF,
                                         std::int64_t batch = 32) {
  const torch::NoGradGuard no_grad;
  const auto device = net->output->weight.device();
  std::vector<at::Tensor> features, conditions;
  for (const auto& part : spectrograms_N1MF.split(batch)) {
    features.push_back(net->features(part.to(device)));
    conditions.push_back(net->output(features.back()).cpu());
    features.back() = features.back().cpu();
  }
  return {at::cat(features), at::cat(conditions)};
}

/// The concordance of valence and of arousal.
struct ConditionCcc {
  double valence, arousal;
};

[[nodiscard]] inline ConditionCcc concordance(const at::Tensor& predicted_N2, const at::Tensor& wanted_N2) {
  const auto of = [&](std::int64_t column) {
    looptorch::RegressionMetrics metrics;
    metrics.add(predicted_N2.select(1, column), wanted_N2.select(1, column));
    return metrics.moments().concordance();
  };
  return {of(0), of(1)};
}

}  // namespace spectrogram_gan
