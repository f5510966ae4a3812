// SPDX-License-Identifier: MIT
// Prepares the validation of gan_train (validation.hpp): trains the network whose features are compared
// (emotion_net.hpp), or loads it if the run resumes, and runs it on the held-out clips.
#pragma once

#include "../clips/skipped_items.hpp"
#include "../clips/song_clips.hpp"
#include "../gan/train_options.hpp"
#include "emotion_net.hpp"
#include "validation.hpp"

#include <cstdint>
#include <utility>

namespace spectrogram_gan {

/// The judge and its results. Empty if the run does not validate.
struct HeldOutJudge {
  EmotionNet judge{nullptr};
  HeldOutClips held_out;
};

/// Trains the judge, or loads it for a resumed run, and runs it on the held-out clips. Returns an empty one
/// if the run does not validate. The network differs from both of gan_measure's.
[[nodiscard]] inline HeldOutJudge prepare_validation(const Clips& clips, const Clips& held_out_clips,
                                                     std::int64_t n_mels, at::Device device, bool goes_on,
                                                     const TrainOptions& options, SkippedItems& skipped) {
  if (!options.validates()) return {};
  require_held_out(held_out_clips.size());
  constexpr std::uint64_t kJudge = 2;  // a sequence of seeds apart from the run's
  auto loading = options.training.loader_options();
  loading.batch_size = 16;
  const EmotionNetTraining training{
      .epochs = 8, .seed = options.training.derived_seed(kJudge), .loading = loading};
  auto judge =
      validation_judge(clips, n_mels, device, training, options.output / "judge.safetensors", goes_on);
  auto held_out = read_held_out(judge, held_out_clips, loading, skipped);
  return {std::move(judge), std::move(held_out)};
}

}  // namespace spectrogram_gan
