// SPDX-License-Identifier: MIT
// Computes the word error rate of a model on held-out speech, and its transcripts. These can be saved, so
// that a run that resumes from a snapshot need not transcribe again with the untrained model.
#pragma once

#include <looptorch/app/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/utf8.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/metrics/english_normalizer.hpp>
#include <looptorch/metrics/normalize.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include "data.hpp"
#include "recognizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// The normalisation of both texts before their words are compared.
struct Normalizer {
  std::string name;
  std::string (*apply)(std::string_view);
};

namespace detail {

/// True for the languages that are written without blanks between words.
inline bool writes_without_blanks(const std::string& language) {
  for (const auto* code : {"zh", "yue", "ja", "th", "lo", "my"})
    if (language == code) return true;
  return false;
}

/// Returns the normalised text with a blank after each character as a reader sees it: its words are then
/// characters.
inline std::string spaced_characters(std::string_view text) {
  std::string spaced;
  const auto normalized = looptorch::normalize_text(text);
  for (const auto character : looptorch::grapheme_clusters(normalized))
    if (character != " ") spaced.append(spaced.empty() ? "" : " ").append(character);
  return spaced;
}

}  // namespace detail

/// Returns a normaliser by name. `english` is Whisper's own, as in the literature: numbers, contractions and
/// British spellings become uniform. `marks` is lower case without punctuation, with the combining marks that
/// Whisper's normaliser for other languages removes, such as Devanagari's vowel signs. `characters` is
/// `marks` with every character a word, so that the word error rate is one of characters. `none` leaves texts
/// unchanged. `auto` is `english` for the language "en", `characters` for Chinese, Cantonese, Japanese, Thai,
/// Lao and Burmese, else `marks`. Throws CommandLineError for another name.
inline Normalizer choose_normalizer(const std::string& name, const std::string& language) {
  if (name == "auto" && detail::writes_without_blanks(language))
    return choose_normalizer("characters", language);
  if (name == "auto") return choose_normalizer(language == "en" ? "english" : "marks", language);
  if (name == "english") return {name, looptorch::normalize_english};
  if (name == "marks") return {name, looptorch::normalize_text};
  if (name == "characters") return {name, detail::spaced_characters};
  if (name == "none") return {name, [](std::string_view text) { return std::string(text); }};
  throw looptorch::app::CommandLineError(
      looptorch::message("--normalizer: \"", name, "\" is not auto, english, marks, characters or none"));
}

/// The spoken texts and a model's transcripts, clip by clip, and the word error rate of all after
/// normalisation.
struct Transcripts {
  std::vector<std::string> references, hypotheses;
  double word_error_rate = 0;
};

/// Returns the total errors over the total words of the normalised references.
inline double word_error_rate(const std::vector<std::string>& references,
                              const std::vector<std::string>& hypotheses, const Normalizer& normalizer) {
  looptorch::WordErrorRate errors;
  for (std::size_t i = 0; i < references.size(); ++i)
    errors.add(normalizer.apply(references[i]), normalizer.apply(hypotheses[i]));
  return errors.rate();
}

/// Transcribes a dataset, several clips at a time.
inline Transcripts transcribe_all(Recognizer& recognizer, const SpeechDataset& speech, std::int64_t workers,
                                  const Normalizer& normalizer) {
  Transcripts result;
  looptorch::PinnedPrefetchLoader batches(speech, {.batch_size = 16, .workers = workers});
  for (auto& batch : batches) {
    for (auto& text : recognizer.transcribe(batch.mel_BMT)) result.hypotheses.push_back(std::move(text));
    for (auto& text : batch.texts) result.references.push_back(std::move(text));
  }
  result.word_error_rate = word_error_rate(result.references, result.hypotheses, normalizer);
  return result;
}

/// The values on which transcripts depend beside the clips.
struct TranscriptsKey {
  std::filesystem::path model;
  std::string language;
  double max_seconds = 0;  ///< Length to which clips are padded.
  bool fallback = false;
};

namespace detail {

inline looptorch::Json transcripts_json(const TranscriptsKey& key) {
  auto json = looptorch::Json::object();
  return json.set("model", looptorch::replace_invalid_utf8(key.model.string()))
      .set("language", key.language)
      .set("max_seconds", key.max_seconds)
      .set("fallback", key.fallback);
}

/// Returns the utterance's name in UTF-8, which JSON requires.
inline std::string name_of(const looptorch::Utterance& utterance) {
  return looptorch::replace_invalid_utf8(utterance.audio_filepath.string());
}

}  // namespace detail

/// Writes the transcripts of `speech` to a JSON file. Throws looptorch::FileError.
inline void save_transcripts(const std::filesystem::path& file, const TranscriptsKey& key,
                             const SpeechDataset& speech, const Transcripts& transcripts) {
  auto clips = looptorch::Json::array();
  for (std::size_t i = 0; i < transcripts.references.size(); ++i) {
    auto clip = looptorch::Json::object();
    clip.set("audio_filepath", detail::name_of(speech.utterances()[i]));
    clips.push_back(clip.set("text", transcripts.references[i]).set("heard", transcripts.hypotheses[i]));
  }
  auto json = detail::transcripts_json(key);
  looptorch::write_file_atomically(file, json.set("clips", std::move(clips)).dump(2) + "\n");
}

/// Returns the transcripts that save_transcripts wrote to `file`, with the word error rate by `normalizer`.
/// Empty if there is no such file, or if it has another key or other clips.
inline std::optional<Transcripts> load_transcripts(const std::filesystem::path& file,
                                                   const TranscriptsKey& key, const SpeechDataset& speech,
                                                   const Normalizer& normalizer) try {
  if (!std::filesystem::exists(file)) return std::nullopt;
  const auto json = looptorch::load_json(file), expected = detail::transcripts_json(key);
  for (const auto& [name, value] : expected.as_object())
    if (json.at(name).dump() != value.dump()) return std::nullopt;
  const auto& clips = json.at("clips").as_array();
  if (std::ssize(clips) != speech.size()) return std::nullopt;
  Transcripts transcripts;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    const auto& utterance = speech.utterances()[i];
    if (clips[i].at("audio_filepath") != detail::name_of(utterance) || clips[i].at("text") != utterance.text)
      return std::nullopt;
    transcripts.references.push_back(utterance.text);
    transcripts.hypotheses.push_back(clips[i].at("heard").as_string());
  }
  transcripts.word_error_rate = word_error_rate(transcripts.references, transcripts.hypotheses, normalizer);
  return transcripts;
} catch (const looptorch::Error&) {
  return std::nullopt;  // a damaged file counts as missing
}

/// Prints `count` clips from the whole range: the spoken text, and the transcripts before and after training.
inline void print_side_by_side(std::ostream& out, const Transcripts& before, const Transcripts& after,
                               std::size_t count) {
  const auto size = before.references.size();
  for (std::size_t i = 0; i < std::min(count, size); ++i) {
    const auto clip = i * size / std::min(count, size);
    out << "\nreference  " << before.references[clip] << "\nbefore     " << before.hypotheses[clip]
        << "\nafter      " << after.hypotheses[clip] << "\n";
  }
  out << "\n";
}

}  // namespace whisper
