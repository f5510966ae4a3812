// SPDX-License-Identifier: MIT
// Speech for KonkaniVani: audio files to log-mel frames, texts to ids, and both to padded batches. For
// training the audio is played at other speeds and parts of its log-mel frames are hidden, anew in each
// epoch.
//
// Shapes: B batch, M mel bins, F mel frames of 10 ms, T samples.
#pragma once

#include <looptorch/audio/augment.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/data/dataset.hpp>
#include <looptorch/data/manifest.hpp>
#include <looptorch/error.hpp>

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

/// Speech that this model cannot learn from or listen to; names the file.
struct SpeechError : looptorch::Error {
  using Error::Error;
};

struct SpeechOptions {
  std::int64_t mel_bins = 80;
  double max_seconds = 20;  ///< longer clips are refused
  bool subsampling = true;  ///< the model's
};

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

/// Reads an audio file, resampled to 16 kHz, as log-mel frames `[M, F]`, F = samples / 160, rounded up. Safe
/// to call from several threads.
class Listener {
 public:
  explicit Listener(SpeechOptions options)
      : options_(options),
        log_mel_({.mel_bins = options.mel_bins,
                  .max_samples = std::llround(options.max_seconds * kSlowest * kRate)}) {}

  /// The samples `[T]` of what a line of a manifest names. Throws SpeechError for a clip that is silent or
  /// longer than `max_seconds`, and what looptorch::audio::decode throws.
  [[nodiscard]] at::Tensor samples(const looptorch::Utterance& utterance) const {
    looptorch::audio::DecodeOptions decoding{.sample_rate = kRate, .start = utterance.start.value_or(0)};
    if (utterance.end) decoding.end = *utterance.end;
    const auto samples_T = looptorch::audio::decode(utterance.audio_filepath, decoding).samples_T;
    const auto seconds = static_cast<double>(samples_T.size(0)) / kRate;
    if (seconds > options_.max_seconds)
      throw SpeechError(looptorch::detail::message(utterance.audio_filepath.string(), ": lasts ", seconds,
                                                   " s, longer than ", options_.max_seconds, " s"));
    if (samples_T.abs().max().item<float>() < kSilence)
      throw SpeechError(utterance.audio_filepath.string() + ": is silent");
    return samples_T;
  }

  [[nodiscard]] at::Tensor frames(const at::Tensor& samples_T) const {
    const auto count = (samples_T.size(0) + kHop - 1) / kHop;
    return log_mel_(samples_T).narrow(1, 0, std::min(count, log_mel_.frames())).clone();
  }

  [[nodiscard]] const SpeechOptions& options() const { return options_; }

  static constexpr std::int64_t kRate = looptorch::audio::LogMel::kSampleRate, kHop = 160;

 private:
  static constexpr float kSilence = 1e-4F;  // peak; 3 units of 16-bit audio
  static constexpr double kSlowest = 1.25;  // room for a clip that is played more slowly

  SpeechOptions options_;
  looptorch::audio::LogMel log_mel_;
};

/// Pads clips to the longest.
[[nodiscard]] inline Batch collate(std::span<Clip> clips, bool subsampling) {
  std::int64_t longest = 0;
  for (const auto& clip : clips) longest = std::max(longest, clip.mel_MF.size(1));
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
      : utterances_(std::move(utterances)), listener_(options) {
    for (const auto& utterance : utterances_) {
      texts_.push_back(normalize(utterance.text));
      ids_.push_back(vocabulary.encode(utterance.text, unknown));
      if (ids_.back().empty())
        throw SpeechError(utterance.audio_filepath.string() + ": its text \"" + utterance.text +
                          "\" has no characters");
      if (utterance.duration.value_or(0) > options.max_seconds)
        throw SpeechError(looptorch::detail::message(utterance.audio_filepath.string(), ": lasts ",
                                                     *utterance.duration, " s, longer than ",
                                                     options.max_seconds, " s"));
    }
  }

  /// From now on samples are augmented.
  void augment(const AugmentOptions& options) {
    speed_.emplace(options.speeds);
    masks_.emplace(options.masks);
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances_.size()); }

  /// Reads one clip; throws what Listener throws.
  [[nodiscard]] Clip get(std::int64_t index, const looptorch::SampleContext& context) const {
    const auto i = static_cast<std::size_t>(index);
    auto samples_T = listener_.samples(utterances_[i]);
    if (speed_) samples_T = (*speed_)(samples_T, context.seed);
    auto mel_MF = listener_.frames(samples_T);
    if (masks_) mel_MF = (*masks_)(mel_MF, context.seed + 1);
    return {.mel_MF = std::move(mel_MF), .ids = ids_[i], .text = texts_[i]};
  }

  [[nodiscard]] Batch collate(std::span<Clip> clips) const {
    return konkanivani::collate(clips, listener_.options().subsampling);
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
    const auto frames = lengths();
    std::vector<std::int64_t> encoded;
    for (const auto count : frames) encoded.push_back(encoder_frames(count, listener_.options().subsampling));
    return konkanivani::count_too_short(make_targets(ids_), encoded);
  }

 private:
  std::vector<looptorch::Utterance> utterances_;
  std::vector<std::string> texts_;
  std::vector<std::vector<std::int64_t>> ids_;
  Listener listener_;
  std::optional<looptorch::audio::SpeedPerturbation> speed_;
  std::optional<looptorch::audio::SpecAugment> masks_;
};

}  // namespace konkanivani
