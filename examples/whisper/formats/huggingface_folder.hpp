// SPDX-License-Identifier: MIT
// Makes the files that a Hugging Face folder has besides the weights, for models imported from CTranslate2 or
// OpenAI: generation_config.json, preprocessor_config.json and tokenizer_config.json. Also sets the special
// token ids of config.json.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "../model/config.hpp"
#include "../text/special_token_ids.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace whisper {

namespace detail {

inline looptorch::Json suppressed_ids(const looptorch::Json& ctranslate2, const char* field) {
  const auto ids = ctranslate2.get(field, looptorch::Json::array());
  const auto is_id = [](const looptorch::Json& id) { return id.is_int(); };
  if (!ids.is_array() || !std::all_of(ids.as_array().begin(), ids.as_array().end(), is_id)) {
    throw FolderError(looptorch::message("config.json: field \"", field, "\" is not a list of ids"));
  }
  return ids;
}

}  // namespace detail

/// Sets the ids as published by OpenAI: the end-of-text token also pads and begins.
inline void set_token_ids(WhisperConfig& config, const looptorch::Json& ids) {
  config.eos_token_id = config.bos_token_id = config.pad_token_id = detail::special_id(ids, "<|endoftext|>");
  config.decoder_start_token_id = detail::special_id(ids, "<|startoftranscript|>");
}

/// Returns generation_config.json; `ctranslate2` is CTranslate2's config.json, `ids` the added tokens.
[[nodiscard]] inline looptorch::Json generation_config(const WhisperConfig& config,
                                                       const looptorch::Json& ctranslate2,
                                                       const looptorch::Json& ids) {
  const bool is_multilingual = detail::is_multilingual(config.vocab_size, ids);
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
  return json.set("task_to_id", detail::task_ids(ids)).set("lang_to_id", detail::language_ids(ids));
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
