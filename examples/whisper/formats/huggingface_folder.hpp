// SPDX-License-Identifier: MIT
// Makes the files of a Hugging Face Whisper folder beside the weights from a CTranslate2 folder: special
// token ids, generation_config.json, preprocessor_config.json, tokenizer_config.json.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "../config.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace whisper {

/// Thrown for a tokenizer.json without a token that Whisper needs, or a CTranslate2 config.json with
/// malformed ids.
struct FolderError : looptorch::Error {
  using Error::Error;
};

/// Returns the tokens that a tokenizer.json adds to the learnt ones, as an object from token to id.
[[nodiscard]] inline looptorch::Json added_token_ids(const looptorch::Json& tokenizer) {
  auto ids = looptorch::Json::object();
  for (const auto& token : tokenizer.at("added_tokens").as_array()) {
    ids.set(token.at("content").as_string(), token.at("id").as_int());
  }
  return ids;
}

namespace detail {

inline std::int64_t special_id(const looptorch::Json& ids, const std::string& token) {
  if (!ids.contains(token)) throw FolderError("tokenizer.json lacks the token " + token);
  return ids.at(token).as_int();
}

/// Returns the ids of the language tokens, which lie between start of transcript and the first task.
inline looptorch::Json language_ids(const looptorch::Json& ids) {
  auto languages = looptorch::Json::object();
  const auto first = special_id(ids, "<|startoftranscript|>"), last = special_id(ids, "<|translate|>");
  for (const auto& [token, id] : ids.as_object()) {
    if (id.as_int() > first && id.as_int() < last) languages.set(token, id);
  }
  return languages;
}

inline looptorch::Json suppressed_ids(const looptorch::Json& ctranslate2, const char* field) {
  const auto ids = ctranslate2.get(field, looptorch::Json::array());
  const auto is_id = [](const looptorch::Json& id) { return id.is_int(); };
  if (!ids.is_array() || !std::all_of(ids.as_array().begin(), ids.as_array().end(), is_id)) {
    throw FolderError(looptorch::message("config.json: field \"", field, "\" is not a list of ids"));
  }
  return ids;
}

}  // namespace detail

/// Sets the ids as published by OpenAI, where the end-of-text token also pads and begins.
inline void set_token_ids(WhisperConfig& config, const looptorch::Json& ids) {
  config.eos_token_id = config.bos_token_id = config.pad_token_id = detail::special_id(ids, "<|endoftext|>");
  config.decoder_start_token_id = detail::special_id(ids, "<|startoftranscript|>");
}

/// Returns generation_config.json; `ctranslate2` is CTranslate2's config.json, `ids` the added tokens.
[[nodiscard]] inline looptorch::Json generation_config(const WhisperConfig& config,
                                                       const looptorch::Json& ctranslate2,
                                                       const looptorch::Json& ids) {
  constexpr std::int64_t kEnglishVocabulary = 51864;  // one less than the smallest multilingual one
  const bool is_multilingual = config.vocab_size > kEnglishVocabulary;
  auto json = looptorch::Json::object();
  json.set("bos_token_id", config.bos_token_id).set("eos_token_id", config.eos_token_id);
  json.set("pad_token_id", config.pad_token_id).set("decoder_start_token_id", config.decoder_start_token_id);
  json.set("no_timestamps_token_id", detail::special_id(ids, "<|notimestamps|>"));
  json.set("prev_sot_token_id", detail::special_id(ids, "<|startofprev|>"));
  json.set("max_length", config.max_target_positions).set("return_timestamps", false);
  json.set("suppress_tokens", detail::suppressed_ids(ctranslate2, "suppress_ids"));
  json.set("begin_suppress_tokens", detail::suppressed_ids(ctranslate2, "suppress_ids_begin"));
  if (ctranslate2.contains("alignment_heads")) json.set("alignment_heads", ctranslate2["alignment_heads"]);
  json.set("is_multilingual", is_multilingual);
  if (!is_multilingual) return json;
  auto tasks = looptorch::Json::object();
  for (const std::string task : {"transcribe", "translate"}) {
    tasks.set(task, detail::special_id(ids, "<|" + task + "|>"));
  }
  return json.set("task_to_id", tasks).set("lang_to_id", detail::language_ids(ids));
}

/// Returns preprocessor_config.json, which differs among Whispers only in the mel bins.
[[nodiscard]] inline looptorch::Json preprocessor_config(const WhisperConfig& config) {
  auto json = looptorch::Json::object();
  json.set("feature_extractor_type", "WhisperFeatureExtractor").set("processor_class", "WhisperProcessor");
  json.set("feature_size", config.num_mel_bins).set("sampling_rate", 16000).set("n_fft", 400);
  json.set("hop_length", 160).set("chunk_length", 30).set("n_samples", 480000).set("nb_max_frames", 3000);
  json.set("padding_side", "right").set("padding_value", 0.0).set("return_attention_mask", false);
  return json;
}

/// Returns tokenizer_config.json, which names the class of tokenizer.json for transformers.
[[nodiscard]] inline looptorch::Json tokenizer_config(const WhisperConfig& config) {
  auto json = looptorch::Json::object();
  json.set("tokenizer_class", "WhisperTokenizer").set("model_max_length", config.max_target_positions);
  for (const auto* token : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    json.set(token, "<|endoftext|>");
  }
  return json;
}

}  // namespace whisper
