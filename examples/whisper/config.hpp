// SPDX-License-Identifier: MIT
// The sizes and special ids of a Whisper model, read from and written to Hugging Face's config.json.
// A model that this example does not build (another activation, untied logits) is refused here, by field.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/base/json/json.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
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

/// Reads and checks a config.json; throws ConfigError.
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
  const auto config = detail::kConfigFields.read(json, name);
  detail::check_consistent(config, name);
  return config;
}

inline looptorch::Json config_to_json(const WhisperConfig& config) {
  auto json = detail::kConfigFields.write(config);
  json.set("architectures", looptorch::Json::array({"WhisperForConditionalGeneration"}));
  return json.set("is_encoder_decoder", true).set("torch_dtype", "float32");
}

inline WhisperConfig load_config(const std::filesystem::path& path) {
  const auto config = detail::kConfigFields.load(path);
  detail::check_consistent(config, path.string());
  return config;
}

inline void save_config(const std::filesystem::path& path, const WhisperConfig& config) {
  looptorch::write_file_atomically(path, config_to_json(config).dump(2) + "\n");
}

}  // namespace whisper
