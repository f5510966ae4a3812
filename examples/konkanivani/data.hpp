// SPDX-License-Identifier: MIT
// Speech for KonkaniVani: audio files to log-mel frames, texts to ids, and both to padded batches. For
// training the audio is played at other speeds and parts of its log-mel frames are hidden, anew in each
// epoch.
//
// Shapes: B batch, M mel bins, F mel frames of 10 ms.
#pragma once

#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/data/dataset.hpp>
#include <looptorch/data/manifest.hpp>
#include <looptorch/error.hpp>

#include "clip_frames.hpp"
#include "encoder.hpp"
#include "loss.hpp"
#include "vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

/// What training does to clips, beside reading them. The first project's masks; none of them hides more than
/// a fifth of a clip's time.
struct AugmentOptions {
  std::vector<double> speeds{0.9, 1.0, 1.1};
  looptorch::audio::SpecAugmentOptions masks{.max_frames = 70, .max_bins = 27, .max_time_share = 0.2};
};

struct Clip {
  at::Tensor mel_MF;
  std::vector<std::int64_t> ids;
  std::string text;  ///< normalised
};

struct Batch {
  at::Tensor mel_BMF;
  at::Tensor lengths_B;              ///< mel frames of each clip
  std::vector<std::int64_t> frames;  ///< encoder frames of each clip
  Targets targets;
  std::vector<std::string> texts;
};

/// Pads clips to the longest, rounded up to 32 frames: what libraries prepare for a shape (oneDNN's kernels,
/// cuDNN's plans) is then found again, since batches have a few shapes instead of hundreds.
[[nodiscard]] inline Batch collate(std::span<Clip> clips, bool subsampling) {
  constexpr std::int64_t kStep = 32;
  std::int64_t longest = 0;
  for (const auto& clip : clips) longest = std::max(longest, clip.mel_MF.size(1));
  longest = (longest + kStep - 1) / kStep * kStep;
  const auto rows = static_cast<std::int64_t>(clips.size());
  Batch batch{.mel_BMF = at::zeros({rows, clips.front().mel_MF.size(0), longest}),
              .lengths_B = at::empty({rows}, at::kLong),
              .frames = {},
              .targets = {},
              .texts = {}};
  std::vector<std::vector<std::int64_t>> ids;
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& clip = clips[static_cast<std::size_t>(row)];
    const auto count = clip.mel_MF.size(1);
    batch.mel_BMF[row].narrow(1, 0, count).copy_(clip.mel_MF);
    batch.lengths_B[row] = count;
    batch.frames.push_back(encoder_frames(count, subsampling));
    batch.texts.push_back(std::move(clip.text));
    ids.push_back(std::move(clip.ids));
  }
  batch.targets = make_targets(ids);
  return batch;
}

/// The utterances of a manifest as samples. Texts are encoded once, at construction, so that one that cannot
/// be used is found before training begins; audio is read when it is asked for.
class SpeechDataset {
 public:
  /// Characters outside the vocabulary are noted in `unknown`. Throws SpeechError, which names the file, for
  /// a text without characters and a duration beyond `max_seconds`.
  SpeechDataset(std::vector<looptorch::Utterance> utterances, const Vocabulary& vocabulary,
                SpeechOptions options, UnknownCharacters& unknown)
      : utterances_(std::move(utterances)), options_(std::move(options)) {
    for (const auto& utterance : utterances_) {
      texts_.push_back(normalize(utterance.text));
      ids_.push_back(vocabulary.encode(utterance.text, unknown));
      if (ids_.back().empty())
        throw SpeechError(utterance.audio_filepath.string() + ": its text \"" + utterance.text +
                          "\" has no characters");
      if (utterance.duration.value_or(0) > options_.max_seconds)
        throw SpeechError(looptorch::detail::message(utterance.audio_filepath.string(), ": lasts ",
                                                     *utterance.duration, " s, longer than ",
                                                     options_.max_seconds, " s"));
    }
    play_at({1.0});
  }

  /// From now on samples are augmented.
  void augment(const AugmentOptions& options) {
    play_at(options.speeds);
    masks_.emplace(options.masks);
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances_.size()); }

  /// Reads one clip; throws what Listener throws.
  [[nodiscard]] Clip get(std::int64_t index, const looptorch::SampleContext& context) const {
    const auto i = static_cast<std::size_t>(index);
    const auto speed = static_cast<std::int64_t>(context.seed % static_cast<std::uint64_t>(speeds_));
    auto mel_MF = frames_(index * speeds_ + speed);
    if (masks_) mel_MF = (*masks_)(mel_MF, context.seed);
    return {.mel_MF = std::move(mel_MF), .ids = ids_[i], .text = texts_[i]};
  }

  [[nodiscard]] Batch collate(std::span<Clip> clips) const {
    return konkanivani::collate(clips, options_.subsampling);
  }

  /// For LengthBucketSampler: about the mel frames of each clip, as far as the manifest gives durations.
  [[nodiscard]] std::vector<std::int64_t> lengths() const {
    std::vector<std::int64_t> lengths;
    for (const auto& utterance : utterances_)
      lengths.push_back(std::llround(100 * utterance.duration.value_or(0)));
    return lengths;
  }

  /// Clips whose manifest duration leaves CTC too few frames for their text.
  [[nodiscard]] std::int64_t count_too_short() const {
    std::vector<std::vector<std::int64_t>> ids;
    std::vector<std::int64_t> frames;
    for (std::size_t i = 0; i < utterances_.size(); ++i) {
      if (!utterances_[i].duration) continue;
      ids.push_back(ids_[i]);
      frames.push_back(encoder_frames(std::llround(100 * *utterances_[i].duration), options_.subsampling));
    }
    return ids.empty() ? 0 : konkanivani::count_too_short(make_targets(ids), frames);
  }

 private:
  void play_at(const std::vector<double>& speeds) {
    speeds_ = static_cast<std::int64_t>(speeds.size());
    frames_ = frames_source(ClipFrames(utterances_, options_, speeds), options_);
  }

  std::vector<looptorch::Utterance> utterances_;
  SpeechOptions options_;
  std::vector<std::string> texts_;
  std::vector<std::vector<std::int64_t>> ids_;
  std::int64_t speeds_ = 1;
  FramesSource frames_;
  std::optional<looptorch::audio::SpecAugment> masks_;
};

}  // namespace konkanivani
