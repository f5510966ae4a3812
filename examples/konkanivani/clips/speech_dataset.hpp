// SPDX-License-Identifier: MIT
// The dataset of KonkaniVani: reads a manifest's clips as log-mel frames with the ids of their texts. For
// training it can change the audio's speed and mask parts of the frames, anew in each epoch.
//
// Shapes: M mel bins, F mel frames of 10 ms.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/manifest/listed_lines.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/samplers/length_bucket_sampler.hpp>

#include "../model/encoder.hpp"
#include "../model/loss.hpp"
#include "../text/vocabulary.hpp"
#include "batch.hpp"
#include "clip_frames.hpp"
#include "skipped_items.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

/// The utterances of a manifest as samples. Encodes texts and reads headers of audio files once, at
/// construction, to find faults before training begins; decodes audio when a sample is requested. A clip's
/// duration is that of its file, or of the part that the manifest names, whatever duration the manifest
/// states.
class SpeechDataset {
 public:
  /// Checks and encodes the utterances. Notes characters outside the vocabulary in `unknown`. Skips a text
  /// without characters, a clip longer than `max_seconds` and a header that looptorch::audio::ClipLengths
  /// refuses, and lists them in `skipped`; without it throws SpeechError or AudioError, which names the file.
  /// Throws SpeechError if no clip is left.
  SpeechDataset(std::vector<looptorch::Utterance> utterances, const Vocabulary& vocabulary,
                SpeechOptions options, UnknownCharacters& unknown, SkippedItems* skipped = nullptr)
      : options_(std::move(options)) {
    const looptorch::audio::ClipLengths seconds_of;
    std::string first_fault;
    for (auto& utterance : utterances) {
      auto ids = vocabulary.encode(utterance.text, unknown);
      try {
        check(utterance, ids, seconds_of);
      } catch (const looptorch::Error& error) {
        list_or_rethrow(skipped, error);
        if (first_fault.empty()) first_fault = error.what();
        continue;
      }
      texts_.push_back(normalize(utterance.text));
      ids_.push_back(std::move(ids));
      utterances_.push_back(std::move(utterance));
    }
    if (utterances_.empty())
      throw SpeechError(looptorch::message("none of ", utterances.size(), " clips can be used",
                                           first_fault.empty() ? "" : "; the first: " + first_fault));
    lines_ = looptorch::LineFingerprints(utterances_);
    play_at({1.0});
  }

  /// Makes `get` augment samples.
  void augment(const AugmentOptions& options) {
    play_at(options.speeds);
    masks_.emplace(options.masks);
  }

  /// Makes `collate` pad a batch's texts to a multiple of so many characters.
  void pad_texts(std::int64_t multiple) { text_multiple_ = multiple; }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances_.size()); }

  [[nodiscard]] std::filesystem::path path(std::int64_t index) const {
    return utterances_[static_cast<std::size_t>(index)].audio_filepath;
  }

  [[nodiscard]] const looptorch::Utterance& utterance(std::int64_t index) const {
    return utterances_[static_cast<std::size_t>(index)];
  }

  /// Returns the clip's line, by which a resumed run recognises its data.
  [[nodiscard]] std::string fingerprint(std::int64_t index) const { return lines_(utterance(index)); }

  /// Reads one clip. Throws what LogMelReader throws.
  [[nodiscard]] Clip get(std::int64_t index, const looptorch::SampleContext& context) const {
    const auto i = static_cast<std::size_t>(index);
    const auto speed = static_cast<std::int64_t>(context.seed % speeds_.size());
    auto mel_MF = frames_(index * std::ssize(speeds_) + speed);
    if (masks_) mel_MF = (*masks_)(mel_MF, context.seed);
    return {.index = index, .mel_MF = std::move(mel_MF), .ids = ids_[i], .text = texts_[i]};
  }

  [[nodiscard]] Batch collate(std::span<Clip> clips) const {
    return konkanivani::collate(clips, text_multiple_);
  }

  /// Returns the mel frames of each clip in a batch, at the slowest speed.
  [[nodiscard]] std::vector<std::int64_t> lengths() const {
    std::vector<std::int64_t> lengths;
    for (const auto& utterance : utterances_)
      lengths.push_back(padded_frames(mel_frames(*utterance.duration / speeds_.front())));
    return lengths;
  }

  /// Returns a sampler of batches of clips of similar length. A clip that exceeds `size` by itself is a batch
  /// of its own.
  [[nodiscard]] looptorch::LengthBucketSampler by_length(const BatchSize& size, std::uint64_t seed = 0,
                                                         std::int64_t shortest_first_epochs = 0) const {
    return looptorch::LengthBucketSampler(lengths(), {.budget = size.frames,
                                                      .batch_size = size.clips,
                                                      .too_long = looptorch::TooLong::alone,
                                                      .seed = seed,
                                                      .shortest_first_epochs = shortest_first_epochs});
  }

  /// Returns the number of ids of each clip's text.
  [[nodiscard]] std::vector<std::int64_t> target_lengths() const {
    std::vector<std::int64_t> lengths;
    for (const auto& ids : ids_) lengths.push_back(std::ssize(ids));
    return lengths;
  }

  /// Returns the number of clips that at the fastest speed have too few frames for CTC to learn their text.
  [[nodiscard]] std::int64_t count_too_short() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < utterances_.size(); ++i) {
      const auto frames =
          encoder_frames(mel_frames(*utterances_[i].duration / speeds_.back()), options_.subsampling);
      count += frames < ctc_frames_needed(ids_[i]);
    }
    return count;
  }

 private:
  static std::int64_t mel_frames(double seconds) {
    constexpr double kRounding = 1e-6;  // for rounded durations in a manifest
    return std::max<std::int64_t>(1, std::llround(std::ceil(100 * seconds - kRounding)));
  }

  /// Throws SpeechError for a clip with an unusable text or file. Sets the clip's duration.
  void check(looptorch::Utterance& utterance, const std::vector<std::int64_t>& ids,
             const looptorch::audio::ClipLengths& seconds_of) const {
    if (ids.empty())
      throw SpeechError(looptorch::message(utterance.audio_filepath.string(), ": ", "its text \"",
                                           utterance.text, "\" has no characters"));
    const double seconds = seconds_of(utterance);
    utterance.duration = seconds;
    looptorch::audio::ClipLimits{.max_seconds = options_.max_seconds}.check(utterance.audio_filepath,
                                                                            seconds);
  }

  void play_at(std::vector<double> speeds) {
    std::sort(speeds.begin(), speeds.end());
    frames_ = frames_source(ClipFrames(utterances_, options_, speeds), options_);
    speeds_ = std::move(speeds);
  }

  std::vector<looptorch::Utterance> utterances_;
  looptorch::LineFingerprints lines_;
  SpeechOptions options_;
  std::vector<std::string> texts_;
  std::vector<std::vector<std::int64_t>> ids_;
  std::int64_t text_multiple_ = 1;
  std::vector<double> speeds_;  // ascending: seed 0, as in a preflight, takes the slowest
  FramesSource frames_;
  std::optional<looptorch::audio::SpecAugment> masks_;
};

}  // namespace konkanivani
