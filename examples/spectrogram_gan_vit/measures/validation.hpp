// SPDX-License-Identifier: MIT
// Evaluates a generator while it trains: generates a clip for the emotion of each held-out song, and measures
// the distance between the features of generated and held-out clips. The distance is not a mean over batches,
// so looptorch::Validate gets all emotions as one batch. Costs one forward pass of the generator and of the
// judging network for each held-out clip. Draws nothing from the run's random generators.
//
// Shapes: N held-out clips, D features, B batch, M mel bins, F frames.
#pragma once

#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/example.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/objective/loss.hpp>
#include <looptorch/report/learning_curve.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "../clips/skipped_items.hpp"
#include "../gan/model.hpp"
#include "../gan/sampling.hpp"
#include "../pictures/spectrogram_picture.hpp"
#include "emotion_net.hpp"
#include "frechet.hpp"
#include "kernel_distance.hpp"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// Returns the judging network. If `goes_on` loads it from `file`, so that the distances of a resumed run
/// stay comparable; else trains it on `clips` and saves it there.
template <class Clips>
[[nodiscard]] EmotionNet validation_judge(const Clips& clips, std::int64_t n_mels, at::Device device,
                                          const EmotionNetTraining& training,
                                          const std::filesystem::path& file, bool goes_on) {
  if (!goes_on || !std::filesystem::exists(file)) {
    const auto judge = train_emotion_net(clips, n_mels, device, training);
    if (looptorch::app::leads()) looptorch::save_weights(judge, file);
    return judge;
  }
  EmotionNet judge(n_mels);
  looptorch::load_weights(judge, file);
  judge->to(device);
  judge->eval();
  return judge;
}

/// The judge's features of held-out clips, and their own emotions.
struct HeldOutClips {
  at::Tensor features_ND, conditions_N2;
};

/// Throws UsageError for fewer than 2 clips, which have no distance.
inline void require_held_out(std::int64_t clips) {
  if (clips < 2)
    throw looptorch::UsageError(looptorch::message("validation needs at least 2 clips, and there are ", clips,
                                                   "; --validate-every 0 does without"));
}

/// Reads clips in batches and computes their features. Notes clips that the loader skips in `skipped`. Throws
/// UsageError for fewer than 2 clips, and what the loader throws.
template <class Clips>
[[nodiscard]] HeldOutClips read_held_out(EmotionNet& judge, const Clips& clips,
                                         const looptorch::LoaderOptions& loading, SkippedItems& skipped) {
  std::vector<at::Tensor> features, conditions;
  looptorch::PinnedPrefetchLoader loader(clips, loading);
  std::int64_t count = 0;
  for (const auto& batch : loader) {
    features.push_back(predict(judge, batch.spectrograms_B1MF).features_ND);
    conditions.push_back(batch.conditions_B2.clone());
    count += conditions.back().size(0);
  }
  skipped.add(loader.skipped());
  require_held_out(count);
  return {at::cat(features), at::cat(conditions)};
}

/// All emotions for which a validation draws clips, in one batch.
struct WantedEmotions {
  at::Tensor conditions_N2;
};

/// Measures for Validate: the Frechet distance (`frechet`, and the loss) and the kernel distance (`kid`)
/// between drawn and held-out clips. The noise is the same each time. Works in full precision also under
/// autocast, as gan_measure does.
class HeldOutDistance {
 public:
  HeldOutDistance(EmotionNet judge, const HeldOutClips& real, std::uint64_t seed)
      : judge_(std::move(judge)), features_ND_(real.features_ND), seed_(seed) {}

  looptorch::Loss operator()(Gan& gan, const WantedEmotions& wanted) const {
    const c10::impl::ExcludeDispatchKeyGuard full_precision(c10::autocast_dispatch_keyset);
    const auto features_ND = features_of_drawn(gan->generator, wanted.conditions_N2);
    const auto frechet = frechet_distance(statistics_of(features_ND), statistics_of(features_ND_));
    return {.value = at::scalar_tensor(frechet, at::kDouble),
            .metrics = {{"frechet", frechet}, {"kid", kernel_distance(features_ND, features_ND_)}}};
  }

  /// Returns pictures of the first clips of the last validation: emotions and noise are the same each time.
  [[nodiscard]] std::shared_ptr<const std::vector<looptorch::Example>> shown() const { return shown_; }

 private:
  static constexpr std::int64_t kShown = 6;

  void show(const at::Tensor& spectrograms_B1MF, const at::Tensor& conditions_B2) const {
    shown_->clear();
    for (std::int64_t i = 0; i < std::min(kShown, spectrograms_B1MF.size(0)); ++i) {
      const auto pixels = picture_of(spectrograms_B1MF[i][0]);
      const auto emotion = conditions_B2[i].to(at::kCPU, at::kDouble);
      char title[64];
      std::snprintf(title, sizeof title, "valence %.2f, arousal %.2f", emotion[0].item<double>(),
                    emotion[1].item<double>());
      shown_->emplace_back(looptorch::PictureExample{title, pixels.size(0), pixels.size(1),
                                                     looptorch::app::png_of(pixels.contiguous())});
    }
  }

  [[nodiscard]] at::Tensor features_of_drawn(Generator& generator, const at::Tensor& conditions_N2) const {
    auto judge = judge_;
    std::vector<at::Tensor> features;
    std::int64_t first = 0;
    for (const auto& conditions_B2 : conditions_N2.split(16)) {
      const auto drawn_B1MF = draw_samples(generator, seed_, first, conditions_B2);
      if (first == 0) show(drawn_B1MF, conditions_B2);
      features.push_back(predict(judge, drawn_B1MF).features_ND);
      first += conditions_B2.size(0);
    }
    return at::cat(features);
  }

  EmotionNet judge_;
  at::Tensor features_ND_;
  std::uint64_t seed_;
  std::shared_ptr<std::vector<looptorch::Example>> shown_ =
      std::make_shared<std::vector<looptorch::Example>>();  // shared by all copies
};

/// Adds a row to the learning curve in `path`.
inline void add_to_curve(const std::filesystem::path& path, std::int64_t step, double frechet, double kid) {
  looptorch::LearningCurve(path, {"frechet", "kid"}).add(step, {frechet, kid});
}

/// Adds a row to the curve, from Validate's last measurement, every so many steps, and offers `shown` to the
/// report; 0: never.
struct NoteCurve {
  std::filesystem::path path;
  std::int64_t every;
  std::shared_ptr<const std::vector<looptorch::Example>> shown = {};

  void operator()(const looptorch::WindowContext& window) const {
    const auto step = window.run.progress().step;
    if (every == 0 || step % every != 0) return;
    const auto value = [&](const char* name) { return window.run.metrics().find(name).value(); };
    add_to_curve(path, step, value("validation.frechet"), value("validation.kid"));
    if (shown && !shown->empty()) window.run.offer_examples("generated", *shown);
  }
};

}  // namespace spectrogram_gan
