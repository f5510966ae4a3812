// SPDX-License-Identifier: MIT
// The training clips of a run, with random choices: which part of a clip is masked, and whether its target
// has timestamps and follows the previous text. The choices are drawn anew in each epoch from the run's seed,
// so that a resumed run makes the same ones.
//
// Shapes: M mel bins, T mel frames.
#pragma once

#include <looptorch/audio/spec_augment.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/preflight/hard_batches.hpp>
#include <looptorch/preflight/sample_batches.hpp>

#include "../clips/batch.hpp"
#include "../clips/packed_windows.hpp"
#include "../clips/speech_dataset.hpp"
#include "../clips/training_text.hpp"
#include "../decoding/prompt.hpp"

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

namespace whisper {

/// The random choices for each clip in each epoch.
struct TrainingDraws {
  std::optional<looptorch::audio::SpecAugmentOptions> masks{};
  double timestamps_share = 0;      ///< Share of the windows whose target has timestamps.
  double prompt_share = 0;          ///< Share of the windows whose target follows the previous window's text.
  std::int64_t token_multiple = 1;  ///< Tokens of a batch are padded to a multiple of this.
};

/// SpeechDataset's clips with random choices. Only windows have timestamps and previous text. For a window
/// that cuts off a segment SpeechDataset has more sound: with timestamps, the window has that sound and its
/// target ends with the beginning of the segment; without them it has neither.
class TrainingClips {
 public:
  /// `clips` must outlive it.
  TrainingClips(const SpeechDataset& clips, const WindowTexts& texts, const Tokenizer& tokenizer,
                const DecodingOptions& decoding, const TrainingDraws& draws)
      : clips_(clips), draws_(draws), targets_(static_cast<std::size_t>(clips.size())) {
    if (draws.masks) masks_.emplace(*draws.masks);
    const auto lengths = clips.target_lengths();
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const auto& utterance = clips.utterances()[i];
      auto text = texts.find(utterance) ? *texts.find(utterance) : WindowText{};
      if (text.segments.empty()) continue;
      if (!clips.longer(static_cast<std::int64_t>(i))) text.cut_off.reset();
      targets_[i] = forms_of(text, lengths[i], tokenizer, decoding_in(decoding, utterance.language));
    }
  }

  [[nodiscard]] std::int64_t size() const { return clips_.size(); }
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const { return clips_.path(index); }
  [[nodiscard]] std::string fingerprint(std::int64_t index) const { return clips_.fingerprint(index); }
  [[nodiscard]] Batch collate(std::span<Sample> samples) const {
    return clips_.collate(samples, draws_.token_multiple);
  }

  /// Reads one clip; throws what LogMelReader throws.
  [[nodiscard]] Sample get(std::int64_t index, const looptorch::SampleContext& context) const {
    const auto i = static_cast<std::size_t>(index);
    looptorch::SplitMix64 random(looptorch::derive_seed(context.seed, kForm));
    const auto& target = targets_[i];
    const bool is_timed = random.uniform() < draws_.timestamps_share && !target.timed.empty();
    const bool is_prompted = random.uniform() < draws_.prompt_share;
    const auto* longer = is_timed ? clips_.longer(index) : nullptr;
    auto sample = longer ? clips_.get_longer(index) : clips_.get(index);
    if (is_timed) sample.tokens = target.timed;
    if (is_prompted) prepend(sample, is_timed ? target.before_timed : target.before);
    if (masks_)
      hide(sample.mel_MT, frames_of(longer ? *longer : clips_.utterances()[i]),
           looptorch::derive_seed(context.seed, kMasks));
    return sample;
  }

  /// Returns these clips, each in the longest form that may be drawn.
  [[nodiscard]] TrainingClips longest() const {
    auto clips = *this;
    for (auto* share : {&clips.draws_.timestamps_share, &clips.draws_.prompt_share})
      if (*share > 0) *share = 1;
    return clips;
  }

  /// Returns the number of tokens of each clip's longest target.
  [[nodiscard]] std::vector<std::int64_t> target_lengths() const {
    auto lengths = clips_.target_lengths();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto& target = targets_[i];
      const bool is_timed = draws_.timestamps_share > 0 && !target.timed.empty();
      if (is_timed) lengths[i] = std::ssize(target.timed);
      if (draws_.prompt_share > 0) lengths[i] += std::ssize(is_timed ? target.before_timed : target.before);
    }
    return lengths;
  }

 private:
  static constexpr std::uint64_t kForm = 1, kMasks = 2;  // the purposes of derived seeds

  /// The forms of a window's target besides the plain one.
  struct Forms {
    std::vector<std::int64_t> timed;                 // empty: none
    std::vector<std::int64_t> before, before_timed;  // previous text before the plain and the timed one
  };

  /// `length` is the plain target's number of tokens.
  static Forms forms_of(const WindowText& text, std::int64_t length, const Tokenizer& tokenizer,
                        const DecodingOptions& decoding) {
    Forms forms{.timed = timed_tokens(tokenizer, decoding, text.segments, text.cut_off),
                .before = {},
                .before_timed = {}};
    if (std::ssize(forms.timed) > decoding.max_length) forms.timed.clear();
    forms.before = previous_tokens(tokenizer, decoding, text.previous, length);
    forms.before_timed = previous_tokens(tokenizer, decoding, text.previous, std::ssize(forms.timed));
    return forms;
  }

  static void prepend(Sample& sample, const std::vector<std::int64_t>& tokens) {
    sample.tokens.insert(sample.tokens.begin(), tokens.begin(), tokens.end());
    sample.given = std::ssize(tokens);
  }

  /// Returns the mel frames of a clip before its padding.
  [[nodiscard]] static std::int64_t frames_of(const looptorch::Utterance& clip) {
    constexpr double kRate = 100;  // a second
    return std::max<std::int64_t>(1, std::llround(kRate * clip.duration.value_or(kWhisperSeconds)));
  }

  void hide(at::Tensor& mel_MT, std::int64_t frames, std::uint64_t seed) const {
    mel_MT = mel_MT.clone();
    auto clip_MT = mel_MT.narrow(1, 0, std::min(frames, mel_MT.size(1)));
    clip_MT.copy_((*masks_)(clip_MT, seed));
  }

  const SpeechDataset& clips_;
  TrainingDraws draws_;
  std::optional<looptorch::audio::SpecAugment> masks_;
  std::vector<Forms> targets_;
};

/// Returns the batch of `batch_size` clips that needs the most memory, which has the longest texts, since
/// audio is padded to one length. Keeps a reference to `clips`; pass those of `longest`.
[[nodiscard]] inline looptorch::SampleBatches<TrainingClips> hardest_batches(const TrainingClips& clips,
                                                                             std::int64_t batch_size) {
  std::vector<looptorch::SampleLengths> lengths;
  for (const std::int64_t tokens : clips.target_lengths())
    lengths.push_back({.input = tokens, .target = tokens});  // equal orders make one batch
  return {clips, looptorch::hard_batches(lengths, batch_size)};
}

}  // namespace whisper
