// SPDX-License-Identifier: MIT
// The sizes and special ids of a Whisper model, read from and written to Hugging Face's config.json.
// A model that this example does not build (another activation, untied logits) is refused here, by field.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace whisper {

/// Thrown for a config.json that is missing, malformed, or describes a model that cannot be built. Names the
/// file and the field.
struct ConfigError : looptorch::Error {
  using Error::Error;
};

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

struct ConfigField {
  const char* name;
  std::int64_t WhisperConfig::*member;
  std::int64_t min, max;
};

inline constexpr std::int64_t kMaxSize = 1 << 20;

inline constexpr std::array kConfigFields{
    ConfigField{"vocab_size", &WhisperConfig::vocab_size, 1, kMaxSize},
    ConfigField{"d_model", &WhisperConfig::d_model, 2, 1 << 16},
    ConfigField{"encoder_layers", &WhisperConfig::encoder_layers, 1, 1024},
    ConfigField{"decoder_layers", &WhisperConfig::decoder_layers, 1, 1024},
    ConfigField{"encoder_attention_heads", &WhisperConfig::encoder_attention_heads, 1, 1024},
    ConfigField{"decoder_attention_heads", &WhisperConfig::decoder_attention_heads, 1, 1024},
    ConfigField{"encoder_ffn_dim", &WhisperConfig::encoder_ffn_dim, 1, kMaxSize},
    ConfigField{"decoder_ffn_dim", &WhisperConfig::decoder_ffn_dim, 1, kMaxSize},
    ConfigField{"num_mel_bins", &WhisperConfig::num_mel_bins, 1, 1024},
    ConfigField{"max_source_positions", &WhisperConfig::max_source_positions, 1, kMaxSize},
    ConfigField{"max_target_positions", &WhisperConfig::max_target_positions, 1, kMaxSize},
    ConfigField{"pad_token_id", &WhisperConfig::pad_token_id, 0, kMaxSize},
    ConfigField{"bos_token_id", &WhisperConfig::bos_token_id, 0, kMaxSize},
    ConfigField{"eos_token_id", &WhisperConfig::eos_token_id, 0, kMaxSize},
    ConfigField{"decoder_start_token_id", &WhisperConfig::decoder_start_token_id, 0, kMaxSize},
};

template <class... Parts>
[[noreturn]] void config_error(std::string_view name, const Parts&... parts) {
  throw ConfigError(looptorch::message(name, ": ", parts...));
}

inline std::int64_t read_field(const looptorch::Json& json, const ConfigField& field, std::string_view name) {
  if (!json.contains(field.name)) config_error(name, "field \"", field.name, "\" is missing");
  const looptorch::Json& value = json.at(field.name);
  if (!value.is_int()) config_error(name, "field \"", field.name, "\" must be an integer, is ", value.dump());
  const auto number = value.as_int();
  if (number < field.min || number > field.max) {
    config_error(name, "field \"", field.name, "\" is ", number, ", outside ", field.min, "..", field.max);
  }
  return number;
}

/// Throws ConfigError for a setting that this model cannot vary, unless it is absent or has the model's
/// value.
inline void require_fixed(const looptorch::Json& json, const char* field, const looptorch::Json& value,
                          std::string_view name) {
  if (json.contains(field) && json.at(field) != value) {
    config_error(name, "field \"", field, "\" is ", json.at(field).dump(), ", and only ", value.dump(),
                 " is supported");
  }
}

inline void check_consistent(const WhisperConfig& config, std::string_view name) {
  for (auto [field, heads] : {std::pair{"encoder_attention_heads", config.encoder_attention_heads},
                              std::pair{"decoder_attention_heads", config.decoder_attention_heads}}) {
    if (config.d_model % heads != 0) {
      config_error(name, "field \"", field, "\" is ", heads, ", which does not divide d_model ",
                   config.d_model);
    }
  }
  for (const auto& field : kConfigFields) {
    const bool is_token = std::string_view(field.name).ends_with("_token_id");
    if (is_token && config.*field.member >= config.vocab_size) {
      config_error(name, "field \"", field.name, "\" is ", config.*field.member,
                   ", outside the vocabulary of ", config.vocab_size);
    }
  }
}

}  // namespace detail

inline WhisperConfig config_from_json(const looptorch::Json& json, std::string_view name) {
  if (!json.is_object()) detail::config_error(name, "is not a JSON object");
  detail::require_fixed(json, "model_type", "whisper", name);
  detail::require_fixed(json, "activation_function", "gelu", name);
  detail::require_fixed(json, "scale_embedding", false, name);
  detail::require_fixed(json, "tie_word_embeddings", true, name);
  WhisperConfig config;
  for (const auto& field : detail::kConfigFields) {
    config.*field.member = detail::read_field(json, field, name);
  }
  detail::check_consistent(config, name);
  return config;
}

inline looptorch::Json config_to_json(const WhisperConfig& config) {
  auto json = looptorch::Json::object();
  json.set("architectures", looptorch::Json::array({"WhisperForConditionalGeneration"}));
  json.set("model_type", "whisper").set("is_encoder_decoder", true).set("activation_function", "gelu");
  json.set("scale_embedding", false).set("tie_word_embeddings", true).set("torch_dtype", "float32");
  for (const auto& field : detail::kConfigFields) json.set(field.name, config.*field.member);
  return json;
}

inline WhisperConfig load_config(const std::filesystem::path& path) {
  try {
    return config_from_json(looptorch::load_json(path), path.string());
  } catch (const looptorch::JsonError& error) {
    throw ConfigError(error.what());
  }
}

inline void save_config(const std::filesystem::path& path, const WhisperConfig& config) {
  looptorch::write_file_atomically(path, config_to_json(config).dump(2) + "\n");
}

}  // namespace whisper
