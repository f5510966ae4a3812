// SPDX-License-Identifier: MIT
// Reads, checks and writes a model's generation_config.json: the special tokens, the tokens that begin a
// text, and those that are never chosen. Special tokens that the file lacks, as in fine-tunes of 2022, come
// from the tokenizer.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include "../model/config.hpp"
#include "../text/special_token_ids.hpp"
#include "decoding_options.hpp"
#include "prompt.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

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

inline void check_ids(const std::vector<int64_t>& ids, int64_t vocabulary) {
  for (const auto id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    throw GenerationConfigError(
        looptorch::message("token ", id, " is outside the vocabulary of ", vocabulary));
  }
}

inline DecodingOptions decoding_options(const looptorch::Json& json, const WhisperConfig& config,
                                        const std::string& language) {
  DecodingOptions options{.prompt = {},
                          .suppress = id_list(json, "suppress_tokens"),
                          .begin_suppress = id_list(json, "begin_suppress_tokens"),
                          .end_of_text = config.eos_token_id,
                          .max_length = config.max_target_positions};
  if (json.get("eos_token_id", nullptr).is_array()) options.other_ends = id_list(json, "eos_token_id");
  std::erase(options.other_ends, config.eos_token_id);
  options.special = special_tokens(json, config);
  set_prompt(options, language_code(options.special, language));
  for (const auto* ids : {&options.prompt, &options.suppress, &options.begin_suppress}) {
    check_ids(*ids, config.vocab_size);
  }
  return options;
}

/// Throws GenerationConfigError for ids that differ from config.json's, and for a list of ends of a text that
/// holds ids other than special tokens.
inline void check_agreement(looptorch::Json json, const WhisperConfig& config,
                            const std::filesystem::path& folder) {
  flatten_ids(json);
  const auto check = [&](const char* field, std::int64_t id, bool may_list) {
    const auto value = json.get(field, nullptr);
    if (value.is_null() || value == looptorch::Json(id)) return;
    const auto refuse = [&](const auto&... why) {
      throw GenerationConfigError(looptorch::message("\"", field, "\" is ", value.dump(), ", and ", why...));
    };
    if (!may_list || !value.is_array()) refuse("config.json has ", id);
    const auto& ids = value.as_array();
    if (std::find(ids.begin(), ids.end(), looptorch::Json(id)) == ids.end()) refuse("config.json has ", id);
    const auto why = wrong_end(value, FolderTokens(folder), config.vocab_size);
    if (!why.empty()) refuse(why);
  };
  check("eos_token_id", config.eos_token_id, true);
  check("decoder_start_token_id", config.decoder_start_token_id, false);
}

/// Adds the special tokens that `json` lacks, from the tokenizer in `folder`.
inline void settle_special_tokens(looptorch::Json& json, const WhisperConfig& config,
                                  const std::filesystem::path& folder) {
  const auto is_open = [&](const char* field) { return json.get(field, nullptr).is_null(); };
  const bool knows_tasks = json.get("is_multilingual", nullptr) == false ||
                           (!is_open("is_multilingual") && !is_open("task_to_id") && !is_open("lang_to_id"));
  if (knows_tasks && !is_open("no_timestamps_token_id")) return;
  const FolderTokens tokens(folder);
  const auto set = [&](const char* field, const auto& value) {
    if (is_open(field)) json.set(field, value(tokens.ids()));
  };
  set("no_timestamps_token_id", [](const auto& ids) { return special_id(ids, "<|notimestamps|>"); });
  set("is_multilingual", [&](const auto& ids) { return is_multilingual(config.vocab_size, ids); });
  if (json.at("is_multilingual") == false) return;
  set("task_to_id", task_ids);
  set("lang_to_id", language_ids);
}

/// Returns config.json's generation settings, which transformers kept there before generation_config.json:
/// the ends of a text, and the lists of suppressed tokens without ids beyond the vocabulary.
inline looptorch::Json generation_by_config(const std::filesystem::path& file, std::int64_t vocabulary) {
  const auto config = looptorch::load_json(file);
  auto json = looptorch::Json::object();
  for (const auto* field : {"suppress_tokens", "begin_suppress_tokens"}) {
    auto kept = looptorch::Json::array();
    for (const auto id : id_list(config, field))
      if (id >= 0 && id < vocabulary) kept.push_back(id);
    json.set(field, std::move(kept));
  }
  if (config.get("eos_token_id", nullptr).is_array()) json.set("eos_token_id", config.at("eos_token_id"));
  return json;
}

}  // namespace detail

/// Returns the generation_config.json of the model in `folder`. Takes special tokens that it lacks from the
/// tokenizer and, if there is no such file, suppressed tokens from config.json. Throws GenerationConfigError,
/// or looptorch::FileError.
[[nodiscard]] inline looptorch::Json load_generation_config(const std::filesystem::path& folder,
                                                            const WhisperConfig& config) {
  const auto file = folder / "generation_config.json";
  const bool is_there = std::filesystem::exists(file);
  auto json = is_there ? looptorch::load_json(file) : looptorch::Json();
  try {
    if (!is_there) json = detail::generation_by_config(folder / "config.json", config.vocab_size);
    detail::check_agreement(json, config, folder);
    detail::settle_special_tokens(json, config, folder);
    return json;
  } catch (const looptorch::Error& error) {
    throw GenerationConfigError(
        looptorch::message(file.string(), is_there ? ": " : ": is not there; ", error.what()));
  }
}

/// Returns the decoding options of the model in `folder` for transcription without timestamps. `language`
/// (as language_code takes it) matters only to multilingual models. Throws GenerationConfigError, or
/// looptorch::FileError.
inline DecodingOptions load_decoding_options(const std::filesystem::path& folder, const WhisperConfig& config,
                                             const std::string& language = "en") {
  const auto json = load_generation_config(folder, config);
  try {
    return detail::decoding_options(json, config, language);
  } catch (const looptorch::Error& error) {
    throw GenerationConfigError((folder / "generation_config.json").string() + ": " + error.what());
  }
}

namespace detail {

/// Returns the generation_config.json of a folder that has none.
inline looptorch::Json new_generation_config(const std::filesystem::path& folder) {
  const auto config = load_config(folder / "config.json");
  auto json = load_generation_config(folder, config);
  if (json.get("eos_token_id", nullptr).is_null()) json.set("eos_token_id", config.eos_token_id);
  json.set("bos_token_id", config.bos_token_id);
  json.set("pad_token_id", config.pad_token_id).set("decoder_start_token_id", config.decoder_start_token_id);
  return json.set("max_length", config.max_target_positions);
}

}  // namespace detail

/// Writes the suppressed tokens to `folder`/generation_config.json, which is created if needed. Throws
/// looptorch::FileError, looptorch::JsonError, and what load_generation_config throws.
inline void save_suppressed(const std::filesystem::path& folder, const DecodingOptions& options) {
  const auto list = [](const std::vector<int64_t>& ids) {
    auto array = looptorch::Json::array();
    for (const auto id : ids) array.push_back(id);
    return array;
  };
  const auto file = folder / "generation_config.json";
  auto json =
      std::filesystem::exists(file) ? looptorch::load_json(file) : detail::new_generation_config(folder);
  json.set("suppress_tokens", list(options.suppress));
  json.set("begin_suppress_tokens", list(options.begin_suppress));
  looptorch::write_file_atomically(file, json.dump(2) + "\n");
}

}  // namespace whisper
