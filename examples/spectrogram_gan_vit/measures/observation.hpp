// SPDX-License-Identifier: MIT
// Runs the two networks of gan_measure on real or generated clips. One network gives the features by which
// sets of clips are compared; the other predicts emotions. Clips are read in batches, and only 4 KB of each
// stay in memory.
//
// Shapes: N clips, D features, K patches (patches.hpp), B batch, M mel bins, F frames.
#pragma once

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "../clips/skipped_items.hpp"
#include "../clips/song_clips.hpp"
#include "../gan/model.hpp"
#include "../gan/sampling.hpp"
#include "diversity.hpp"
#include "emotion_net.hpp"
#include "frechet.hpp"
#include "kernel_distance.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// Two networks, trained from different initial weights on the clips in different orders. The one that gives
/// the features therefore does not also judge the emotions.
struct Judges {
  EmotionNet features, regressor;
};

/// The figures kept of clips: 4 KB each.
struct Observed {
  at::Tensor features_ND, predicted_N2, wanted_N2, patches_NK;

  [[nodiscard]] ConditionCcc concordance() const {
    return spectrogram_gan::concordance(predicted_N2, wanted_N2);
  }
};

/// Collects the figures kept of clips, batch by batch.
class Observer {
 public:
  explicit Observer(Judges& judges) : judges_(&judges) {}

  void add(const at::Tensor& spectrograms_B1MF, const at::Tensor& conditions_B2) {
    rows_[0].push_back(predict(judges_->features, spectrograms_B1MF).features_ND);
    rows_[1].push_back(predict(judges_->regressor, spectrograms_B1MF).conditions_N2);
    rows_[2].push_back(conditions_B2.clone());
    rows_[3].push_back(patches_of(spectrograms_B1MF));
  }

  [[nodiscard]] Observed observed() const {
    return {at::cat(rows_[0]), at::cat(rows_[1]), at::cat(rows_[2]), at::cat(rows_[3])};
  }

 private:
  Judges* judges_;
  std::array<std::vector<at::Tensor>, 4> rows_;
};

/// Distances between two sets of clips.
struct Distances {
  double frechet, kernel;
};

[[nodiscard]] inline Distances distances(const Observed& a, const Observed& b) {
  return {frechet_distance(statistics_of(a.features_ND), statistics_of(b.features_ND)),
          kernel_distance(a.features_ND, b.features_ND)};
}

/// Calls `use` with each batch's spectrograms and conditions. Lists the clips that the loader skips.
template <class Use>
void each_batch(const Clips& clips, const looptorch::LoaderOptions& loading, SkippedItems& skipped,
                Use&& use) {
  looptorch::PinnedPrefetchLoader loader(clips, loading);
  for (const auto& batch : loader) use(batch.spectrograms_B1MF, batch.conditions_B2);
  skipped.add(loader.skipped());
}

/// Calls `use` with each batch of spectrograms that a generator draws for emotions, and with these emotions.
template <class Use>
void each_drawn(Generator& generator, const at::Tensor& conditions_N2, std::uint64_t seed, Use&& use) {
  std::int64_t first = 0;
  for (const auto& conditions_B2 : conditions_N2.split(16)) {
    use(draw_samples(generator, seed, first, conditions_B2), conditions_B2);
    first += conditions_B2.size(0);
  }
}

/// Returns what the judges find of real clips, or of real clips after `change`.
template <class Change>
[[nodiscard]] Observed observe(const Clips& clips, Judges& judges, const looptorch::LoaderOptions& loading,
                               SkippedItems& skipped, Change&& change) {
  Observer observer(judges);
  each_batch(clips, loading, skipped, [&](const at::Tensor& spectrograms, const at::Tensor& conditions) {
    observer.add(change(spectrograms), conditions);
  });
  return observer.observed();
}

[[nodiscard]] inline at::Tensor gather_patches(const Clips& clips, const looptorch::LoaderOptions& loading,
                                               SkippedItems& skipped) {
  std::vector<at::Tensor> patches;
  each_batch(clips, loading, skipped, [&](const at::Tensor& spectrograms, const at::Tensor&) {
    patches.push_back(patches_of(spectrograms));
  });
  return at::cat(patches);
}

/// Shuffles the cells of each clip, which keeps its loudness but not its structure. Draws from LibTorch's
/// generator.
[[nodiscard]] inline at::Tensor shuffled(const at::Tensor& spectrograms_N1MF) {
  auto result = spectrograms_N1MF.clone();
  for (auto clip : result.unbind()) {
    const auto cells = clip.view(-1);
    cells.copy_(cells.index({at::randperm(cells.size(0))}));
  }
  return result;
}

/// Distances to the test clips, with which a generator's are compared: the distances of other real clips, and
/// of clips without structure.
struct Reference {
  Observed test;
  at::Tensor train_patches_NK;
  Distances validation, noise, shuffled;
};

/// Returns the distances for comparison. Draws from LibTorch's generator.
[[nodiscard]] inline Reference observe_reference(const Clips& train, const Clips& validation,
                                                 const Clips& test, Judges& judges,
                                                 const looptorch::LoaderOptions& loading,
                                                 SkippedItems& skipped) {
  const auto plain = [](const at::Tensor& spectrograms) { return spectrograms; };
  const auto noise = [](const at::Tensor& spectrograms) { return at::randn_like(spectrograms); };
  auto real = observe(test, judges, loading, skipped, plain);
  const auto from_test = [&](const Clips& clips, const auto& change) {
    return distances(observe(clips, judges, loading, skipped, change), real);
  };
  const auto of_validation = from_test(validation, plain);
  const auto of_noise = from_test(test, noise);
  const auto of_shuffled = from_test(test, shuffled);
  return {std::move(real), gather_patches(train, loading, skipped), of_validation, of_noise, of_shuffled};
}

}  // namespace spectrogram_gan
