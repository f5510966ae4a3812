// SPDX-License-Identifier: MIT
// The sizes and special ids of a Whisper model, read from and written to Hugging Face's config.json. Models
// that this example cannot build, such as those with another activation or untied logits, are refused by an
// error that names the field.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/base/json/json.hpp>

#include "../text/special_token_ids.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace whisper {

using looptorch::ConfigError;

/// Hugging Face's names; the defaults are Whisper tiny, multilingual.
struct WhisperConfig {
  std::int64_t vocab_size = 51865;
  std::int64_t d_model = 384;
  std::int64_t encoder_layers = 4;
  std::int64_t decoder_layers = 4;
  std::int64_t encoder_attention_heads = 6;
  std::int64_t decoder_attention_heads = 6;
  std::int64_t encoder_ffn_dim = 1536;
  std::int64_t decoder_ffn_dim = 1536;
  std::int64_t num_mel_bins = 80;
  std::int64_t max_source_positions = 1500;  ///< Encoder frames: half the mel frames, 20 ms each.
  std::int64_t max_target_positions = 448;   ///< Decoder positions, prompt included.
  std::int64_t pad_token_id = 50257;
  std::int64_t bos_token_id = 50257;
  std::int64_t eos_token_id = 50257;
  std::int64_t decoder_start_token_id = 50258;

  friend bool operator==(const WhisperConfig&, const WhisperConfig&) = default;
};

/// Reads and checks a config.json; throws ConfigError. An id may be a list of one. If `eos_token_id` lists
/// several ids, takes the one that the folder's tokenizer calls "<|endoftext|>"; no other may spell text.
/// Takes null or missing ids from the tokenizer, too.
[[nodiscard]] WhisperConfig load_config(const std::filesystem::path& path);

/// Writes a config.json that `transformers` loads as WhisperForConditionalGeneration; throws FileError.
void save_config(const std::filesystem::path& path, const WhisperConfig& config);

/// Converts from a JSON object; `name` is its name in errors.
[[nodiscard]] WhisperConfig config_from_json(const looptorch::Json& json, std::string_view name);
[[nodiscard]] looptorch::Json config_to_json(const WhisperConfig& config);

namespace detail {

inline constexpr std::int64_t kMaxSize = 1 << 20;

using looptorch::ConfigField;
using looptorch::OnlyValue;

inline constexpr auto kConfigFields =
    looptorch::config_fields<WhisperConfig>(
        OnlyValue("model_type", "whisper"), OnlyValue("activation_function", "gelu"),
        OnlyValue("scale_embedding", false), OnlyValue("tie_word_embeddings", true),
        ConfigField("vocab_size", &WhisperConfig::vocab_size, {.min = 1, .max = kMaxSize}),
        ConfigField("d_model", &WhisperConfig::d_model, {.min = 2, .max = 1 << 16}),
        ConfigField("encoder_layers", &WhisperConfig::encoder_layers, {.min = 1, .max = 1024}),
        ConfigField("decoder_layers", &WhisperConfig::decoder_layers, {.min = 1, .max = 1024}),
        ConfigField("encoder_attention_heads", &WhisperConfig::encoder_attention_heads,
                    {.min = 1, .max = 1024}),
        ConfigField("decoder_attention_heads", &WhisperConfig::decoder_attention_heads,
                    {.min = 1, .max = 1024}),
        ConfigField("encoder_ffn_dim", &WhisperConfig::encoder_ffn_dim, {.min = 1, .max = kMaxSize}),
        ConfigField("decoder_ffn_dim", &WhisperConfig::decoder_ffn_dim, {.min = 1, .max = kMaxSize}),
        ConfigField("num_mel_bins", &WhisperConfig::num_mel_bins, {.min = 1, .max = 1024}),
        ConfigField("max_source_positions", &WhisperConfig::max_source_positions,
                    {.min = 1, .max = kMaxSize}),
        ConfigField("max_target_positions", &WhisperConfig::max_target_positions,
                    {.min = 1, .max = kMaxSize}),
        ConfigField("pad_token_id", &WhisperConfig::pad_token_id, {.min = 0, .max = kMaxSize}),
        ConfigField("bos_token_id", &WhisperConfig::bos_token_id, {.min = 0, .max = kMaxSize}),
        ConfigField("eos_token_id", &WhisperConfig::eos_token_id, {.min = 0, .max = kMaxSize}),
        ConfigField("decoder_start_token_id", &WhisperConfig::decoder_start_token_id,
                    {.min = 0, .max = kMaxSize}))
        .quoting_keys();

inline constexpr const char* kIdFields[] = {"pad_token_id", "bos_token_id", "eos_token_id",
                                            "decoder_start_token_id"};

/// Replaces lists of one id by the id.
inline void flatten_ids(looptorch::Json& json) {
  if (!json.is_object()) return;
  for (const auto* field : kIdFields) {
    const auto value = json.get(field, nullptr);
    if (!value.is_array() || value.as_array().empty()) continue;
    const auto& ids = value.as_array();
    if (std::all_of(ids.begin(), ids.end(), [&](const auto& id) { return id == ids.front(); }))
      json.set(field, ids.front());
  }
}

/// Throws ConfigError unless "<|endoftext|>" is one of the listed ids, and each other one is a special token.
inline void check_ends(const looptorch::Json& listed, std::optional<std::int64_t> end_of_text,
                       const FolderTokens& tokens, std::int64_t vocabulary, std::string_view name) {
  const auto& ids = listed.as_array();
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(looptorch::message(name, ": field \"eos_token_id\" is ", listed.dump(), why));
  };
  if (!end_of_text) refuse(", and no tokenizer beside it says which one \"<|endoftext|>\" is");
  if (std::find(ids.begin(), ids.end(), looptorch::Json(*end_of_text)) == ids.end())
    refuse(looptorch::message(", and \"<|endoftext|>\" of the tokenizer is ", *end_of_text));
  if (const auto why = wrong_end(listed, tokens, vocabulary); !why.empty()) refuse(", and " + why);
}

/// Sets the ids missing in `json` from the tokenizer in `folder`.
inline void settle_ids(looptorch::Json& json, const std::filesystem::path& folder, std::string_view name) {
  const auto value = [&](const char* field) { return json.get(field, nullptr); };
  const auto is_open = [&](const char* field) { return value(field).is_null(); };
  const auto eos = value("eos_token_id");
  if (std::none_of(std::begin(kIdFields), std::end(kIdFields), is_open) && !eos.is_array()) return;
  const FolderTokens tokens(folder);
  const auto end_of_text = tokens.id("<|endoftext|>");
  const auto size = value("vocab_size");
  if (eos.is_array())
    check_ends(eos, end_of_text, tokens, size.is_int() ? size.as_int() : WhisperConfig{}.vocab_size, name);
  if (end_of_text && (eos.is_null() || eos.is_array())) json.set("eos_token_id", *end_of_text);
  if (const auto start = tokens.id("<|startoftranscript|>"); start && is_open("decoder_start_token_id"))
    json.set("decoder_start_token_id", *start);
  for (const auto* field : {"pad_token_id", "bos_token_id"})
    if (is_open(field) && !is_open("eos_token_id")) json.set(field, json.at("eos_token_id"));
}

/// Throws ConfigError where one field contradicts another.
inline void check_consistent(const WhisperConfig& config, std::string_view name) {
  for (const auto& [field, heads] : {std::pair{"encoder_attention_heads", config.encoder_attention_heads},
                                     std::pair{"decoder_attention_heads", config.decoder_attention_heads}}) {
    if (config.d_model % heads != 0)
      throw ConfigError(looptorch::message(name, ": field \"", field, "\" is ", heads,
                                           ", which does not divide d_model ", config.d_model));
  }
  for (const auto& [field, token] :
       {std::pair{"pad_token_id", config.pad_token_id}, std::pair{"bos_token_id", config.bos_token_id},
        std::pair{"eos_token_id", config.eos_token_id},
        std::pair{"decoder_start_token_id", config.decoder_start_token_id}}) {
    if (token >= config.vocab_size)
      throw ConfigError(looptorch::message(name, ": field \"", field, "\" is ", token,
                                           ", outside the vocabulary of ", config.vocab_size));
  }
}

}  // namespace detail

inline WhisperConfig config_from_json(const looptorch::Json& json, std::string_view name) {
  auto flat = json;
  detail::flatten_ids(flat);
  const auto config = detail::kConfigFields.read(flat, name);
  detail::check_consistent(config, name);
  return config;
}

inline looptorch::Json config_to_json(const WhisperConfig& config) {
  auto json = detail::kConfigFields.write(config);
  json.set("architectures", looptorch::Json::array({"WhisperForConditionalGeneration"}));
  return json.set("is_encoder_decoder", true).set("torch_dtype", "float32");
}

inline WhisperConfig load_config(const std::filesystem::path& path) {
  try {
    auto json = looptorch::load_json(path);
    detail::flatten_ids(json);
    if (json.is_object()) detail::settle_ids(json, path.parent_path(), path.string());
    return config_from_json(json, path.string());
  } catch (const looptorch::JsonError& error) {
    throw ConfigError(error.what());
  }
}

inline void save_config(const std::filesystem::path& path, const WhisperConfig& config) {
  looptorch::write_file_atomically(path, config_to_json(config).dump(2) + "\n");
}

}  // namespace whisper
