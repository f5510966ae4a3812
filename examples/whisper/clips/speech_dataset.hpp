// SPDX-License-Identifier: MIT
// A dataset of speech for Whisper: converts a manifest's audio files to log-mel frames, and its transcripts
// to token ids.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/data/manifest/listed_lines.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include "../audio/clip_mels.hpp"
#include "../decoding/prompt.hpp"
#include "batch.hpp"
#include "encoded_clips.hpp"
#include "training_text.hpp"

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

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
  /// clips' frames in the folder `cache`, if given. `longer` has the clips, by number, that get_longer
  /// returns with more of their sound.
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

  /// Makes `get` return `encoder`'s states of each clip instead of its frames, cached in `cache`.
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

  /// Returns the number of tokens of each clip's target.
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
  /// Returns a text that differs for other targets, such as those of another tokenizer.
  [[nodiscard]] std::string targets_identity() const {
    std::uint64_t hash = 0;
    for (const auto& tokens : tokens_)
      hash = looptorch::stable_hash(looptorch::message(hash, " ", c10::IntArrayRef(tokens)));
    return looptorch::message("checksum ", hash);
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

}  // namespace whisper
