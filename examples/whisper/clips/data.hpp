// SPDX-License-Identifier: MIT
// A dataset of speech for Whisper: converts audio files to log-mel frames and transcripts to token ids, and
// makes padded batches of them.
//
// Shapes: B batch, M mel bins, T mel frames, L tokens.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/data/manifest/listed_lines.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include "../audio/clip_mels.hpp"
#include "../decoding/generation.hpp"
#include "../model/model.hpp"
#include "encoded_clips.hpp"
#include "training_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

struct Sample {
  at::Tensor mel_MT;                 ///< Or [S, D], a frozen encoder's states: see encode_by.
  std::vector<std::int64_t> tokens;  ///< Prompt, text, end of text.
  std::string text;
  std::string language{};
  std::int64_t given = 0;  ///< Tokens of previous text, before the prompt and not learnt.
  std::int64_t index = 0;  ///< In its dataset.
};

struct Batch {
  at::Tensor mel_BMT;            ///< Or [B, S, D], if they are `encoded`.
  at::Tensor tokens_BL;          ///< The decoder's input, padded after the end.
  at::Tensor labels_BL;          ///< Its expected output; kIgnored after the end and before the prompt's.
  std::int64_t label_count = 0;  ///< Labels that are not ignored.
  std::vector<std::string> texts, languages;
  bool encoded = false;                    ///< The encoder has run.
  std::vector<std::int64_t> indices = {};  ///< Numbers of the samples in their dataset.

  /// Returns samples [begin, end), with the number of their own labels. Waits for labels on a device.
  [[nodiscard]] Batch slice(std::int64_t begin, std::int64_t end) const {
    const auto rows = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, end - begin); };
    const auto items = [&](const auto& list) {
      return std::decay_t<decltype(list)>(list.begin() + (list.empty() ? 0 : begin),
                                          list.begin() + (list.empty() ? 0 : end));
    };
    const auto labels = rows(labels_BL);
    return {.mel_BMT = rows(mel_BMT),
            .tokens_BL = rows(tokens_BL),
            .labels_BL = labels,
            .label_count = labels.ne(kIgnored).sum().item<std::int64_t>(),
            .texts = items(texts),
            .languages = items(languages),
            .encoded = encoded,
            .indices = items(indices)};
  }
};

/// Returns the encoder's states of a batch, `[B, S, D]`.
[[nodiscard]] inline at::Tensor states_of(Whisper& model, const Batch& batch) {
  return batch.encoded ? batch.mel_BMT : model->encoder()(batch.mel_BMT);
}

/// Returns the loss of predicting a batch's labels, the mean over those that are not kIgnored.
[[nodiscard]] inline at::Tensor loss_of(Whisper& model, const Batch& batch) {
  auto& decoder = model->decoder();
  return decoder->loss(decoder(batch.tokens_BL, states_of(model, batch)), batch.labels_BL);
}

/// Pads the samples' tokens. Padding is determined by each sample's length, never by its id: the padding id
/// is also the end of text, which must be learnt. In a loader all tensors lie in the loader's reused memory.
///
/// With a `multiple` above 1 the tokens are padded to such a length, up to `longest_allowed`: batches then
/// have few shapes, for CaptureGraphs.
inline Batch collate(std::span<Sample> samples, std::int64_t padding, std::int64_t multiple = 1,
                     std::int64_t longest_allowed = std::numeric_limits<std::int64_t>::max()) {
  const auto longest = std::max_element(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
                         return a.tokens.size() < b.tokens.size();
                       })->tokens.size();
  const auto needed = static_cast<std::int64_t>(longest) - 1;
  const auto rows = static_cast<std::int64_t>(samples.size()),
             length =
                 std::max(needed, std::min(longest_allowed, (needed + multiple - 1) / multiple * multiple));
  const auto& mel_MT = samples.front().mel_MT;
  Batch batch{.mel_BMT = looptorch::batch_empty({rows, mel_MT.size(0), mel_MT.size(1)}, mel_MT.options()),
              .tokens_BL = looptorch::batch_empty({rows, length}, at::kLong).fill_(padding),
              .labels_BL = looptorch::batch_empty({rows, length}, at::kLong).fill_(kIgnored),
              .texts = {},
              .languages = {},
              .encoded = false};
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& sample = samples[static_cast<std::size_t>(row)];
    batch.mel_BMT[row].copy_(sample.mel_MT);
    const auto count = static_cast<std::int64_t>(sample.tokens.size()) - 1;
    const auto* ids = sample.tokens.data();
    std::copy_n(ids, count, batch.tokens_BL.mutable_data_ptr<std::int64_t>() + row * length);
    std::copy_n(ids + 1 + sample.given, count - sample.given,
                batch.labels_BL.mutable_data_ptr<std::int64_t>() + row * length + sample.given);
    batch.label_count += count - sample.given;
    batch.indices.push_back(sample.index);
    batch.texts.push_back(std::move(sample.text));
    batch.languages.push_back(std::move(sample.language));
  }
  return batch;
}

/// Returns the decoder's target for an utterance, in its language if it has one. Throws SpeechError, which
/// names the file, for a text that has no target (see training_tokens) and an unknown language.
inline std::vector<std::int64_t> target_of(const looptorch::Utterance& utterance, const Tokenizer& tokenizer,
                                           const DecodingOptions& decoding) {
  try {
    return training_tokens(tokenizer, decoding_in(decoding, utterance.language), utterance.text);
  } catch (const looptorch::Error& error) {
    throw SpeechError(utterance.audio_filepath.string() + ": " + error.what());
  }
}

/// The utterances of a manifest as training samples. Tokenises texts once, at construction, to find text that
/// does not fit before training begins; reads audio when a sample is requested.
class SpeechDataset {
 public:
  /// Throws SpeechError, which names the file, for a text that has no target: see training_tokens. Keeps the
  /// clips' frames in the folder `cache`, if given. `longer` holds some clips, by their number, with more of
  /// their sound: see get_longer.
  SpeechDataset(std::vector<looptorch::Utterance> utterances, const Tokenizer& tokenizer,
                const DecodingOptions& decoding, SpeechOptions options,
                const std::filesystem::path& cache = {},
                std::map<std::int64_t, looptorch::Utterance> longer = {})
      : utterances_(std::move(utterances)),
        longer_(std::move(longer)),
        lines_(utterances_),
        options_(options),
        mels_(ClipMels(sounds(), options), detail::mel_settings(options), cache),
        end_of_text_(decoding.end_of_text),
        most_tokens_(decoding.max_length) {
    for (const auto& utterance : utterances_) tokens_.push_back(target_of(utterance, tokenizer, decoding));
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(utterances_.size()); }

  /// Reads and transforms one clip; throws what LogMelReader throws.
  [[nodiscard]] Sample get(std::int64_t index) const { return sample(index, index); }

  /// Reads and transforms one clip with more of its sound, which must exist.
  [[nodiscard]] Sample get_longer(std::int64_t index) const {
    return sample(index, size() + std::distance(longer_.begin(), longer_.find(index)));
  }

  /// Returns the clip with more of its sound, or null.
  [[nodiscard]] const looptorch::Utterance* longer(std::int64_t index) const {
    const auto found = longer_.find(index);
    return found == longer_.end() ? nullptr : &found->second;
  }

  [[nodiscard]] Batch collate(std::span<Sample> samples, std::int64_t multiple = 1) const {
    auto batch = whisper::collate(samples, end_of_text_, multiple, most_tokens_);
    batch.encoded = encoded_;
    return batch;
  }

  /// From now on returns `encoder`'s states of each clip instead of its frames, cached in `cache`.
  void encode_by(const ClipEncoder& encoder, const std::filesystem::path& cache) {
    mels_ = MelSource(EncodedClips(ClipMels(sounds(), options_), encoder),
                      detail::mel_settings(options_) + ", " + encoder.identity(), cache);
    encoded_ = true;
  }

  /// Puts the frames of all clips into the cache; see MelSource::prepare.
  void prepare(std::int64_t workers,
               const std::function<void(const looptorch::CacheProgress&)>& progress = {}) const {
    mels_.prepare(workers, progress);
  }

  /// Returns the number of tokens of each clip's text.
  [[nodiscard]] std::vector<std::int64_t> target_lengths() const {
    std::vector<std::int64_t> lengths;
    for (const auto& tokens : tokens_) lengths.push_back(std::ssize(tokens));
    return lengths;
  }

  [[nodiscard]] const std::vector<looptorch::Utterance>& utterances() const { return utterances_; }
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const {
    return utterances_[static_cast<std::size_t>(index)].audio_filepath;
  }
  /// Returns the clip's line, by which a resumed run recognises its data.
  [[nodiscard]] std::string fingerprint(std::int64_t index) const {
    return lines_(utterances_[static_cast<std::size_t>(index)]);
  }

 private:
  /// Returns the utterances, then those with more sound.
  [[nodiscard]] std::vector<looptorch::Utterance> sounds() const {
    auto all = utterances_;
    for (const auto& [index, utterance] : longer_) all.push_back(utterance);
    return all;
  }

  [[nodiscard]] Sample sample(std::int64_t index, std::int64_t sound) const {
    const auto& utterance = utterances_[static_cast<std::size_t>(index)];
    return {.mel_MT = mels_(sound),
            .tokens = tokens_[static_cast<std::size_t>(index)],
            .text = utterance.text,
            .language = utterance.language,
            .index = index};
  }

  std::vector<looptorch::Utterance> utterances_;
  std::map<std::int64_t, looptorch::Utterance> longer_;
  looptorch::LineFingerprints lines_;
  std::vector<std::vector<std::int64_t>> tokens_;
  SpeechOptions options_;
  MelSource mels_;
  bool encoded_ = false;
  std::int64_t end_of_text_;
  std::int64_t most_tokens_;
};

/// Returns `percent` of the utterances, at least one, chosen by `seed` alone.
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

/// Returns the smallest integer number of seconds that holds the longest clip of all manifests, with a
/// tolerance of kLengthSlack, by the known durations. Returns Whisper's own window if a clip is longer or a
/// duration is unknown.
inline double common_seconds(std::initializer_list<const std::vector<looptorch::Utterance>*> manifests) {
  double longest = 1;
  for (const auto* manifest : manifests) {
    for (const auto& utterance : *manifest)
      longest = std::max(longest, utterance.duration.value_or(kWhisperSeconds));
  }
  return std::min(std::ceil(longest - kLengthSlack), kWhisperSeconds);
}

}  // namespace whisper
