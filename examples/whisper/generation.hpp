// SPDX-License-Identifier: MIT
// Reads a model's generation_config.json: the special tokens, the forced first ones and those that never
// appear. The same prompt begins every training sequence.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include "config.hpp"
#include "decoding_options.hpp"

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

inline SpecialTokens special_tokens(const looptorch::Json& json, const WhisperConfig& config) {
  SpecialTokens special{.start = config.decoder_start_token_id,
                        .no_timestamps = json.at("no_timestamps_token_id").as_int()};
  // The order of Whisper's vocabulary: ..., translate, transcribe, -, previous text, no speech, no
  // timestamps.
  const auto before_it = [&](int64_t distance) {
    const auto id = special.no_timestamps - distance;
    return id > special.start ? id : -1;
  };
  special.no_speech = before_it(1), special.previous = before_it(2);
  if (!json.at("is_multilingual").as_bool()) return special;
  const auto& tasks = json.at("task_to_id");
  special.transcribe = tasks.at("transcribe").as_int();
  special.translate = tasks.contains("translate") ? tasks.at("translate").as_int() : -1;
  for (const auto& [token, id] : json.at("lang_to_id").as_object())
    special.languages.emplace_back(token.substr(2, token.size() - 4), id.as_int());
  return special;
}

inline int64_t language_id(const SpecialTokens& special, const std::string& language) {
  for (const auto& [code, id] : special.languages)
    if (code == language) return id;
  throw GenerationConfigError("the model does not know the language \"" + language + "\"");
}

inline void check_ids(const std::vector<int64_t>& ids, int64_t vocabulary) {
  for (const auto id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    throw GenerationConfigError(
        looptorch::message("token ", id, " is outside the vocabulary of ", vocabulary));
  }
}

}  // namespace detail

/// The result's language: that of the speech, or English.
enum class Task { transcribe, translate };

/// Sets the prompt: start of transcript, then for multilingual models language and task, then no-timestamps
/// unless timestamps are wanted. Throws GenerationConfigError for a language or task that the model does not
/// know.
inline void set_prompt(DecodingOptions& options, const std::string& language, Task task = Task::transcribe) {
  const auto& special = options.special;
  options.prompt = {special.start};
  if (!special.languages.empty()) {
    options.prompt.push_back(detail::language_id(special, language));
    options.prompt.push_back(task == Task::translate ? special.translate : special.transcribe);
  }
  if (task == Task::translate && special.translate < 0)
    throw GenerationConfigError("the model cannot translate: it knows English only");
  if (options.without_timestamps) options.prompt.push_back(special.no_timestamps);
}

/// Returns `options` with the prompt of a transcription in `language`; unchanged for an empty one. Throws
/// what set_prompt throws.
inline DecodingOptions decoding_in(DecodingOptions options, const std::string& language) {
  if (!language.empty()) set_prompt(options, language);
  return options;
}

namespace detail {

inline DecodingOptions decoding_options(const looptorch::Json& json, const WhisperConfig& config,
                                        const std::string& language) {
  DecodingOptions options{.prompt = {},
                          .suppress = id_list(json, "suppress_tokens"),
                          .begin_suppress = id_list(json, "begin_suppress_tokens"),
                          .end_of_text = config.eos_token_id,
                          .max_length = config.max_target_positions};
  options.special = special_tokens(json, config);
  set_prompt(options, language);
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

/// Lets the model write all signs of its vocabulary, those too that OpenAI's settings suppress as no speech,
/// such as "/" and "=". Special tokens stay suppressed.
inline void allow_all_signs(DecodingOptions& options) {
  std::erase_if(options.suppress, [&](int64_t id) { return id < options.end_of_text; });
}

/// Lets a text end where it begins: noise may be heard, and learnt, as an empty text.
inline void allow_empty_texts(DecodingOptions& options) {
  options.empty_texts = true;
  std::erase(options.begin_suppress, options.end_of_text);
}

/// Writes which tokens are suppressed into `folder`/generation_config.json. Throws looptorch::FileError and
/// looptorch::JsonError.
inline void save_suppressed(const std::filesystem::path& folder, const DecodingOptions& options) {
  const auto list = [](const std::vector<int64_t>& ids) {
    auto array = looptorch::Json::array();
    for (const auto id : ids) array.push_back(id);
    return array;
  };
  const auto file = folder / "generation_config.json";
  auto json = looptorch::load_json(file);
  json.set("suppress_tokens", list(options.suppress));
  json.set("begin_suppress_tokens", list(options.begin_suppress));
  looptorch::write_file_atomically(file, json.dump(2) + "\n");
}

}  // namespace whisper
