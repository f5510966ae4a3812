// SPDX-License-Identifier: MIT
// Reads a model's generation_config.json: the forced first tokens and the tokens that never appear. The same
// prompt begins every training sequence.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "decoding.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace whisper {

/// Thrown for a generation_config.json that is missing, malformed, or lacks the requested language. Names the
/// file.
struct GenerationConfigError : looptorch::Error {
  using Error::Error;
};

namespace detail {

inline std::vector<int64_t> id_list(const looptorch::Json& json, const char* field) {
  std::vector<int64_t> ids;
  if (!json.contains(field) || json.at(field).is_null()) return ids;
  for (const auto& id : json.at(field).as_array()) ids.push_back(id.as_int());
  return ids;
}

inline int64_t language_id(const looptorch::Json& json, const std::string& language) {
  const auto token = "<|" + language + "|>";
  if (!json.at("lang_to_id").contains(token)) {
    throw GenerationConfigError("the model does not know the language \"" + language + "\"");
  }
  return json.at("lang_to_id").at(token).as_int();
}

/// Returns start of transcript, then for multilingual models language and task, then no-timestamps.
inline std::vector<int64_t> transcription_prompt(const looptorch::Json& json, const WhisperConfig& config,
                                                 const std::string& language) {
  std::vector<int64_t> prompt{config.decoder_start_token_id};
  if (json.at("is_multilingual").as_bool()) {
    prompt.push_back(language_id(json, language));
    prompt.push_back(json.at("task_to_id").at("transcribe").as_int());
  }
  prompt.push_back(json.at("no_timestamps_token_id").as_int());
  return prompt;
}

inline void check_ids(const std::vector<int64_t>& ids, int64_t vocabulary) {
  for (const auto id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    throw GenerationConfigError(
        looptorch::message("token ", id, " is outside the vocabulary of ", vocabulary));
  }
}

inline DecodingOptions decoding_options(const looptorch::Json& json, const WhisperConfig& config,
                                        const std::string& language) {
  DecodingOptions options{.prompt = transcription_prompt(json, config, language),
                          .suppress = id_list(json, "suppress_tokens"),
                          .begin_suppress = id_list(json, "begin_suppress_tokens"),
                          .end_of_text = config.eos_token_id,
                          .max_length = config.max_target_positions};
  for (const auto* ids : {&options.prompt, &options.suppress, &options.begin_suppress}) {
    check_ids(*ids, config.vocab_size);
  }
  return options;
}

}  // namespace detail

/// Returns the decoding options of the model in `folder` for transcription without timestamps. `language`
/// ("en", "kn", ...) matters only to multilingual models. Throws GenerationConfigError, or
/// looptorch::FileError.
inline DecodingOptions load_decoding_options(const std::filesystem::path& folder, const WhisperConfig& config,
                                             const std::string& language = "en") {
  const auto file = folder / "generation_config.json";
  const auto json = looptorch::load_json(file);
  try {
    return detail::decoding_options(json, config, language);
  } catch (const looptorch::Error& error) {
    throw GenerationConfigError(file.string() + ": " + error.what());
  }
}

}  // namespace whisper
