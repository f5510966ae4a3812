// SPDX-License-Identifier: MIT
// Defines ModelConfig, the dimensions of a KonkaniVani model, with three presets from the public KonkaniVani
// project. Checks dimensions, and reads and writes config.json. Weights do not tell a model's number of heads
// or its kind of positions, so config.json is saved beside them, and compared before they are loaded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/base/json/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace konkanivani {

using looptorch::ConfigError;

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
  std::int64_t feed_forward = 4;  ///< width of the feed-forward layers, in d_model
  std::int64_t kernel = 31;       ///< frames that a depthwise convolution sees; odd
  std::int64_t mel_bins = 80;
  double dropout = 0.1;
  /// Mel frames of 10 ms in one encoder frame: 1 (by a linear layer, as in the first project), 2 or 4.
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

using looptorch::ConfigField;

inline constexpr auto kConfigFields = looptorch::config_fields<ModelConfig>(
    looptorch::RequiredValue("model_type", "konkanivani"),
    ConfigField("vocabulary", &ModelConfig::vocabulary, {.min = 6, .max = 1 << 20}),
    ConfigField("d_model", &ModelConfig::d_model, {.min = 2, .max = 1 << 14}),
    ConfigField("encoder_layers", &ModelConfig::encoder_layers, {.min = 1, .max = 1024}),
    ConfigField("decoder_layers", &ModelConfig::decoder_layers, {.min = 1, .max = 1024}),
    ConfigField("heads", &ModelConfig::heads, {.min = 1, .max = 1024}),
    ConfigField("feed_forward", &ModelConfig::feed_forward, {.min = 1, .max = 64}),
    ConfigField("kernel", &ModelConfig::kernel, {.min = 1, .max = 1023}),
    ConfigField("mel_bins", &ModelConfig::mel_bins, {.min = 1, .max = 1024}),
    ConfigField("subsampling", &ModelConfig::subsampling, {.min = 1, .max = 4}),
    ConfigField("dropout", &ModelConfig::dropout, {.min = 0, .below = 1}),
    ConfigField("positions", &ModelConfig::positions, {"sinusoidal", "relative"}));

/// Throws ConfigError, which begins with `where` and names the field, for sizes that make no model.
inline void check_config(const ModelConfig& config, std::string_view where) {
  kConfigFields.check(config, where);
  const auto refuse = [&](const auto&... why) { throw ConfigError(looptorch::message(where, ": ", why...)); };
  if (config.d_model % 2 != 0 || config.d_model % config.heads != 0)
    refuse("d_model is ", config.d_model, "; it must be even and a multiple of the ", config.heads, " heads");
  if (config.subsampling == 3) refuse("subsampling is 3; it must be 1, 2 or 4");
  if (config.kernel % 2 == 0) refuse("kernel is ", config.kernel, "; it must be odd");
}

/// Throws ConfigError with each field in which the model that `where` names differs from the requested one.
/// Dropout may differ: no weight depends on it.
inline void require_same_model(const ModelConfig& saved, const ModelConfig& asked, std::string_view where) {
  if (const auto differences = kConfigFields.differences(saved, asked, {"dropout"}); !differences.empty())
    throw ConfigError(
        looptorch::message(where, ": holds another model than the one asked for: ", differences));
}

inline looptorch::Json config_to_json(const ModelConfig& config) { return kConfigFields.write(config); }

/// Reads a configuration; errors call it `where`. Throws ConfigError.
inline ModelConfig config_from_json(const looptorch::Json& json, std::string_view where) {
  const auto config = kConfigFields.read(json, where);
  check_config(config, where);
  return config;
}

/// Loads a configuration. Throws FileError, or ConfigError that names the file.
inline ModelConfig load_config(const std::filesystem::path& path) {
  const auto config = kConfigFields.load(path);
  check_config(config, path.string());
  return config;
}

inline void save_config(const std::filesystem::path& path, const ModelConfig& config) {
  kConfigFields.save(path, config);
}

}  // namespace konkanivani
