// SPDX-License-Identifier: MIT
// Maps the names that NeMo, Common Voice, Hugging Face's audiofolder and DeepSpeech give to an utterance's
// fields to this library's names.
#pragma once

#include <looptorch/base/json/json.hpp>

#include <string>
#include <string_view>

namespace looptorch::detail {

/// A name, and the key that it stands for.
struct ManifestName {
  std::string_view name, key;
};

inline constexpr ManifestName kManifestNames[] = {{"audio_filepath", "audio_filepath"},
                                                  {"file_name", "audio_filepath"},
                                                  {"audio_file", "audio_filepath"},
                                                  {"audio_path", "audio_filepath"},
                                                  {"audio", "audio_filepath"},
                                                  {"wav_filename", "audio_filepath"},
                                                  {"path", "audio_filepath"},
                                                  {"text", "text"},
                                                  {"transcription", "text"},
                                                  {"sentence", "text"},
                                                  {"transcript", "text"},
                                                  {"duration", "duration"},
                                                  {"start", "start"},
                                                  {"begin", "start"},
                                                  {"offset", "offset"},
                                                  {"end", "end"},
                                                  {"speaker", "speaker"},
                                                  {"client_id", "speaker"},
                                                  {"language", "language"},
                                                  {"lang", "lang"},
                                                  {"source_lang", "source_lang"},
                                                  {"target_lang", "target_lang"}};

/// Returns the key of a table's column; empty for one that is not of an utterance.
[[nodiscard]] constexpr std::string_view manifest_key_of(std::string_view name) {
  for (const auto& known : kManifestNames)
    if (known.name == name) return known.key;
  return {};
}

/// Returns the names of a key, "audio_filepath, file_name, ...", for a message.
[[nodiscard]] inline std::string names_of_manifest_key(std::string_view key) {
  std::string names;
  for (const auto& known : kManifestNames)
    if (known.key == key) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

/// Returns the first name of `key` that a line of JSON has; the key itself if it has none. Names whose value
/// is null or empty count only if there is no other. Common Voice's "path" does not count: it is a table's.
[[nodiscard]] inline std::string_view name_in_line(const Json& line, std::string_view key) {
  std::string_view blank;
  for (const auto& known : kManifestNames) {
    if (known.key != key || known.name == "path" || !line.contains(known.name)) continue;
    const Json& value = line.at(known.name);
    if (!value.is_null() && !(value.is_string() && value.as_string().empty())) return known.name;
    if (blank.empty()) blank = known.name;
  }
  return blank.empty() ? key : blank;
}

}  // namespace looptorch::detail
