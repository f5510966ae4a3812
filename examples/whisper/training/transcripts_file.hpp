// SPDX-License-Identifier: MIT
// Saves the transcripts that the model makes before training, so that a resumed run need not make them again.
// A resumed run reads them only if clips and settings are the same.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include "../clips/speech_dataset.hpp"
#include "evaluation.hpp"

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace whisper {

/// The settings that change a transcript. Saved transcripts are reused only if all are equal.
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
    clip.set("text", transcripts.references[i]).set("language", transcripts.languages[i]);
    clips.push_back(clip.set("hypothesis", transcripts.hypotheses[i]));
  }
  auto json = detail::transcripts_json(key);
  looptorch::write_file_atomically(file, json.set("clips", std::move(clips)).dump(2) + "\n");
}

/// Returns the transcripts that save_transcripts wrote to `file`. Empty if there is no such file, or if it
/// has another key or other clips.
inline std::optional<Transcripts> load_transcripts(const std::filesystem::path& file,
                                                   const TranscriptsKey& key,
                                                   const SpeechDataset& speech) try {
  if (!std::filesystem::exists(file)) return std::nullopt;
  const auto json = looptorch::load_json(file), expected = detail::transcripts_json(key);
  for (const auto& [name, value] : expected.as_object())
    if (json.at(name).dump() != value.dump()) return std::nullopt;
  const auto& clips = json.at("clips").as_array();
  if (std::ssize(clips) != speech.size()) return std::nullopt;
  Transcripts transcripts;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    const auto& utterance = speech.utterances()[i];
    if (clips[i].at("audio_filepath") != detail::name_of(utterance) ||
        clips[i].at("text") != utterance.text ||
        (!utterance.language.empty() && clips[i].at("language") != utterance.language))
      return std::nullopt;
    transcripts.references.push_back(utterance.text);
    transcripts.languages.push_back(clips[i].at("language").as_string());
    transcripts.hypotheses.push_back(clips[i].at("hypothesis").as_string());
  }
  return transcripts;
} catch (const looptorch::Error&) {
  return std::nullopt;  // a damaged file counts as missing
}

}  // namespace whisper
