// SPDX-License-Identifier: MIT
// Speech for Whisper: audio files to log-mel frames, transcripts to token ids, and both to batches. All clips
// of a dataset are padded to one length, `max_seconds`, with what silence sounds like: the encoder then works
// on that length instead of on Whisper's 30 s, which for 8 s clips costs a quarter of the time and memory.
//
// Shapes: B batch, M mel bins, T mel frames, L tokens.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/data/manifest.hpp>
#include <looptorch/data/sampler.hpp>
#include <looptorch/error.hpp>

#include "training_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Speech that this model cannot learn from or listen to; names the file.
struct SpeechError : looptorch::Error {
  using Error::Error;
};

/// The length of a clip as a model hears it.
struct SpeechOptions {
  std::int64_t mel_bins = 80;
  double max_seconds = 30;  ///< Shorter clips are padded to it; longer ones are refused.
};

/// The length that a manifest gives a clip, if it does.
inline std::optional<double> clip_seconds(const looptorch::Utterance& utterance) {
  return utterance.end ? *utterance.end - utterance.start.value_or(0) : utterance.duration;
}

/// Reads an audio file, resampled to 16 kHz, as log-mel frames `[M, T]`, T = 100 x max_seconds. Safe to call
/// from several threads.
class Listener {
 public:
  /// Throws UsageError for a length that gives no frame.
  explicit Listener(SpeechOptions options)
      : options_(options),
        log_mel_({.mel_bins = options.mel_bins,
                  .max_samples = std::llround(options.max_seconds * looptorch::audio::LogMel::kSampleRate)}) {
  }

  /// `start` and `end` (seconds) choose a part of the file. Throws SpeechError for a clip that is silent or
  /// longer than `max_seconds`, and what looptorch::audio::decode throws.
  [[nodiscard]] at::Tensor operator()(const std::filesystem::path& file, double start = 0,
                                      double end = kFileEnd) const {
    constexpr auto kRate = looptorch::audio::LogMel::kSampleRate;
    const auto samples_T =
        looptorch::audio::decode(file, {.sample_rate = kRate, .start = start, .end = end}).samples_T;
    check_length(file, static_cast<double>(samples_T.size(0)) / static_cast<double>(kRate));
    if (samples_T.abs().max().item<float>() < kSilence) throw SpeechError(file.string() + ": is silent");
    return log_mel_(samples_T);
  }

  /// The clip that a line of a manifest names.
  [[nodiscard]] at::Tensor operator()(const looptorch::Utterance& utterance) const {
    return (*this)(utterance.audio_filepath, utterance.start.value_or(0), utterance.end.value_or(kFileEnd));
  }

  /// Throws SpeechError if `seconds` are more than a clip may have.
  void check_length(const std::filesystem::path& file, double seconds) const {
    if (seconds <= options_.max_seconds) return;
    throw SpeechError(looptorch::detail::message(file.string(), ": lasts ", seconds, " s, longer than the ",
                                                 options_.max_seconds, " s of --max-audio-seconds"));
  }

 private:
  static constexpr float kSilence = 1e-4F;  // peak; 3 units of 16-bit audio
  static constexpr double kFileEnd = std::numeric_limits<double>::infinity();

  SpeechOptions options_;
  looptorch::audio::LogMel log_mel_;
};

struct Sample {
  at::Tensor mel_MT;
  std::vector<std::int64_t> tokens;  ///< Prompt, text, end of text.
  std::string text;
};

struct Batch {
  at::Tensor mel_BMT;
  at::Tensor tokens_BL;          ///< What the decoder is given, padded behind the end.
  at::Tensor labels_BL;          ///< What it should answer at each place; kIgnored behind the end.
  std::int64_t label_count = 0;  ///< Labels that are not ignored.
  std::vector<std::string> texts;
};

/// Pads the samples' tokens. Padding is told from text by each sample's length, never by its id: the padding
/// id is also the end of text, which must be learnt.
inline Batch collate(std::span<Sample> samples, std::int64_t padding) {
  const auto longest = std::max_element(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
                         return a.tokens.size() < b.tokens.size();
                       })->tokens.size();
  const auto rows = static_cast<std::int64_t>(samples.size()),
             length = static_cast<std::int64_t>(longest) - 1;
  Batch batch{.mel_BMT = {},
              .tokens_BL = at::full({rows, length}, padding, at::kLong),
              .labels_BL = at::full({rows, length}, kIgnored, at::kLong),
              .texts = {}};
  std::vector<at::Tensor> mels;
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& sample = samples[static_cast<std::size_t>(row)];
    const auto ids = torch::tensor(sample.tokens, at::kLong);
    const auto count = ids.size(0) - 1;
    batch.tokens_BL[row].narrow(0, 0, count).copy_(ids.narrow(0, 0, count));
    batch.labels_BL[row].narrow(0, 0, count).copy_(ids.narrow(0, 1, count));
    batch.label_count += count;
    batch.texts.push_back(std::move(sample.text));
    mels.push_back(std::move(sample.mel_MT));
  }
  batch.mel_BMT = at::stack(mels);
  return batch;
}

/// The utterances of a manifest as training samples. Texts are tokenised once, at construction, so that a
/// text that does not fit is found before training begins; audio is read when it is asked for.
class SpeechDataset {
 public:
  /// Throws SpeechError for a text of more tokens than the model has positions, a text that is empty, or a
  /// duration beyond `max_seconds`; each names the file.
  SpeechDataset(std::vector<looptorch::Utterance> utterances, const Tokenizer& tokenizer,
                const DecodingOptions& decoding, SpeechOptions options)
      : utterances_(std::move(utterances)), listener_(options), end_of_text_(decoding.end_of_text) {
    for (const auto& utterance : utterances_) {
      if (const auto seconds = clip_seconds(utterance))
        listener_.check_length(utterance.audio_filepath, *seconds);
      try {
        tokens_.push_back(training_tokens(tokenizer, decoding, utterance.text));
      } catch (const looptorch::Error& error) {
        throw SpeechError(utterance.audio_filepath.string() + ": " + error.what());
      }
    }
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances_.size()); }

  /// Reads and transforms one clip; throws what Listener throws.
  [[nodiscard]] Sample get(std::int64_t index) const {
    const auto& utterance = utterances_[static_cast<std::size_t>(index)];
    return {.mel_MT = listener_(utterance),
            .tokens = tokens_[static_cast<std::size_t>(index)],
            .text = utterance.text};
  }

  [[nodiscard]] Batch collate(std::span<Sample> samples) const {
    return whisper::collate(samples, end_of_text_);
  }

 private:
  std::vector<looptorch::Utterance> utterances_;
  std::vector<std::vector<std::int64_t>> tokens_;
  Listener listener_;
  std::int64_t end_of_text_;
};

/// `percent` of the utterances, at least one, chosen by `seed` alone.
inline std::vector<looptorch::Utterance> random_subset(std::vector<looptorch::Utterance> utterances,
                                                       double percent, std::int64_t seed) {
  const auto size = static_cast<std::int64_t>(utterances.size());
  const auto count = std::max<std::int64_t>(1, std::llround(static_cast<double>(size) * percent / 100));
  if (count >= size) return utterances;
  const auto order = looptorch::RandomSampler{.seed = static_cast<std::uint64_t>(seed)}.order(0, size);
  std::vector<looptorch::Utterance> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen.push_back(std::move(utterances[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]));
  }
  return chosen;
}

/// The whole number of seconds that holds the longest clip of all manifests; 30, Whisper's own, where a clip
/// is longer or a duration is not given.
inline double common_seconds(std::initializer_list<const std::vector<looptorch::Utterance>*> manifests) {
  constexpr double kWindow = 30;
  double longest = 1;
  for (const auto* manifest : manifests) {
    for (const auto& utterance : *manifest)
      longest = std::max(longest, clip_seconds(utterance).value_or(kWindow));
  }
  return std::min(std::ceil(longest), kWindow);
}

}  // namespace whisper
