// SPDX-License-Identifier: MIT
// The sizes of a KonkaniVani model: the three of its first project, checks, and config.json. A model's
// weights do not show the number of heads or the positions, so the configuration is saved beside them and
// compared before they are loaded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace konkanivani {

/// Sizes that make no model, a config.json that holds none, or another size than was asked for.
struct ConfigError : looptorch::Error {
  using Error::Error;
};

/// The encoder's positions: sinusoids added to its input, or distances within attention (Transformer-XL),
/// whose memory grows with the square of the frames.
enum class Positions { sinusoidal, relative };

/// The defaults are the largest size. The order of the fields is API.
struct ModelConfig {
  std::int64_t vocabulary = 0;  ///< special ids included
  std::int64_t d_model = 256;
  std::int64_t encoder_layers = 12;
  std::int64_t decoder_layers = 6;
  std::int64_t heads = 4;
  std::int64_t feed_forward = 4;  ///< times d_model
  std::int64_t kernel = 31;       ///< frames that a depthwise convolution sees; odd
  std::int64_t mel_bins = 80;
  double dropout = 0.1;
  /// The mel frames of 10 ms in one encoder frame: 1 (by the first project's linear layer), 2 or 4.
  std::int64_t subsampling = 4;
  Positions positions = Positions::sinusoidal;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Returns the largest size: 256 wide, 12 + 6 layers, 24.8 M parameters with 100 characters.
inline ModelConfig original_size(std::int64_t vocabulary) { return {.vocabulary = vocabulary}; }

/// Returns the middle size: 192 wide, 8 + 4 layers, 9.4 M parameters.
inline ModelConfig optimized_size(std::int64_t vocabulary) {
  return {.vocabulary = vocabulary, .d_model = 192, .encoder_layers = 8, .decoder_layers = 4};
}

/// Returns the smallest size: 128 wide, 6 + 3 layers, 3.2 M parameters.
inline ModelConfig minimal_size(std::int64_t vocabulary) {
  return {.vocabulary = vocabulary, .d_model = 128, .encoder_layers = 6, .decoder_layers = 3};
}

namespace detail {

struct ConfigField {
  const char* name;
  std::int64_t ModelConfig::*member;
  std::int64_t min, max;
};

inline constexpr std::array kConfigFields{
    ConfigField{"vocabulary", &ModelConfig::vocabulary, 6, 1 << 20},
    ConfigField{"d_model", &ModelConfig::d_model, 2, 1 << 14},
    ConfigField{"encoder_layers", &ModelConfig::encoder_layers, 1, 1024},
    ConfigField{"decoder_layers", &ModelConfig::decoder_layers, 1, 1024},
    ConfigField{"heads", &ModelConfig::heads, 1, 1024},
    ConfigField{"feed_forward", &ModelConfig::feed_forward, 1, 64},
    ConfigField{"kernel", &ModelConfig::kernel, 1, 1023},
    ConfigField{"mel_bins", &ModelConfig::mel_bins, 1, 1024},
    ConfigField{"subsampling", &ModelConfig::subsampling, 1, 4},
};

template <class... Parts>
[[noreturn]] void config_error(std::string_view where, const Parts&... parts) {
  throw ConfigError(looptorch::message(where, ": ", parts...));
}

inline const char* name_of(Positions positions) {
  return positions == Positions::relative ? "relative" : "sinusoidal";
}

}  // namespace detail

/// Throws ConfigError, which begins with `where` and names the field, for sizes that make no model.
inline void check_config(const ModelConfig& config, std::string_view where) {
  for (const auto& field : detail::kConfigFields) {
    const auto value = config.*field.member;
    if (value < field.min || value > field.max)
      detail::config_error(where, field.name, " is ", value, ", outside ", field.min, "..", field.max);
  }
  if (config.d_model % 2 != 0 || config.d_model % config.heads != 0)
    detail::config_error(where, "d_model is ", config.d_model, "; it must be even and a multiple of the ",
                         config.heads, " heads");
  if (config.subsampling == 3) detail::config_error(where, "subsampling is 3; it must be 1, 2 or 4");
  if (config.kernel % 2 == 0) detail::config_error(where, "kernel is ", config.kernel, "; it must be odd");
  if (!(config.dropout >= 0 && config.dropout < 1))
    detail::config_error(where, "dropout is ", config.dropout, ", outside [0, 1)");
}

/// Throws ConfigError with each field in which the model that `where` holds is not the one asked for. Dropout
/// is free: no weight depends on it.
inline void require_same_model(const ModelConfig& saved, const ModelConfig& asked, std::string_view where) {
  std::string differences;
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (a != b)
      differences += looptorch::message(differences.empty() ? "" : ", ", name, " ", a, " instead of ", b);
  };
  for (const auto& field : detail::kConfigFields)
    compare(field.name, saved.*field.member, asked.*field.member);
  compare("positions", std::string_view(detail::name_of(saved.positions)), detail::name_of(asked.positions));
  if (!differences.empty())
    detail::config_error(where, "holds another model than the one asked for: ", differences);
}

inline looptorch::Json config_to_json(const ModelConfig& config) {
  auto json = looptorch::Json::object();
  json.set("model_type", "konkanivani");
  for (const auto& field : detail::kConfigFields) json.set(field.name, config.*field.member);
  json.set("dropout", config.dropout).set("positions", detail::name_of(config.positions));
  return json;
}

/// Reads a configuration; `where` is the JSON's name in errors. Throws ConfigError.
inline ModelConfig config_from_json(const looptorch::Json& json, std::string_view where) {
  ModelConfig config;
  try {
    if (const auto type = json.at("model_type").as_string(); type != "konkanivani")
      detail::config_error(where, "model_type is \"", type, "\", not \"konkanivani\"");
    for (const auto& field : detail::kConfigFields) config.*field.member = json.at(field.name).as_int();
    config.dropout = json.at("dropout").as_number();
    const auto positions = json.at("positions").as_string();
    if (positions != "sinusoidal" && positions != "relative")
      detail::config_error(where, "positions is \"", positions,
                           "\", neither \"sinusoidal\" nor \"relative\"");
    config.positions = positions == "relative" ? Positions::relative : Positions::sinusoidal;
  } catch (const looptorch::JsonError& error) {
    detail::config_error(where, error.what());
  }
  check_config(config, where);
  return config;
}

/// Loads a configuration. Throws FileError, or ConfigError that names the file.
inline ModelConfig load_config(const std::filesystem::path& path) {
  try {
    return config_from_json(looptorch::load_json(path), path.string());
  } catch (const looptorch::JsonError& error) {
    throw ConfigError(error.what());
  }
}

inline void save_config(const std::filesystem::path& path, const ModelConfig& config) {
  looptorch::write_file_atomically(path, config_to_json(config).dump(2) + "\n");
}

}  // namespace konkanivani
