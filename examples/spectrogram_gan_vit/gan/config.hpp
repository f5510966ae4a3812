// SPDX-License-Identifier: MIT
// Defines the sizes of a spectrogram GAN, checks them, and reads and writes config.json. Weights do not tell
// the size of the pictures, so config.json is saved beside them, and compared before they are loaded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/base/json/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace spectrogram_gan {

using looptorch::ConfigError;

/// The defaults are the published size. The order of the fields is API.
struct GanConfig {
  std::int64_t n_mels = 128;
  std::int64_t frames = 1292;  ///< 30 s at 22.05 kHz, a frame every 512 samples
  std::int64_t latent = 100;
  std::int64_t channels = 256;  ///< channels of each network's widest layer; the narrowest has an eighth
  /// Size of the generator's first picture. Its convolutions enlarge this eight times in each direction, and
  /// a resize to `n_mels` x `frames` follows.
  std::int64_t seed_rows = 16, seed_columns = 20;

  friend bool operator==(const GanConfig&, const GanConfig&) = default;
};

/// Returns sizes for CPUs: an eighth of the channels, and a seed with fewer rows and more columns.
inline GanConfig small_size() { return {.n_mels = 64, .channels = 32, .seed_rows = 8, .seed_columns = 81}; }

using looptorch::ConfigField;

inline constexpr auto kConfigFields = looptorch::config_fields<GanConfig>(
    looptorch::RequiredValue("model_type", "spectrogram_gan"),
    ConfigField("n_mels", &GanConfig::n_mels, {.min = 16, .max = 1024}),
    ConfigField("frames", &GanConfig::frames, {.min = 16, .max = 1 << 20}),
    ConfigField("latent", &GanConfig::latent, {.min = 1, .max = 1 << 14}),
    ConfigField("channels", &GanConfig::channels, {.min = 8, .max = 1 << 13}),
    ConfigField("seed_rows", &GanConfig::seed_rows, {.min = 1, .max = 256}),
    ConfigField("seed_columns", &GanConfig::seed_columns, {.min = 1, .max = 1 << 14}));

/// Throws ConfigError, which begins with `where` and names the field, for sizes that make no model.
inline void check_config(const GanConfig& config, std::string_view where) {
  kConfigFields.check(config, where);
  if (config.channels % 8 != 0)
    throw ConfigError(
        looptorch::message(where, ": channels is ", config.channels, "; it must be a multiple of 8"));
}

/// Throws ConfigError with each field in which the model that `where` names differs from the requested one.
inline void require_same_model(const GanConfig& saved, const GanConfig& asked, std::string_view where) {
  if (const auto differences = kConfigFields.differences(saved, asked); !differences.empty())
    throw ConfigError(
        looptorch::message(where, ": holds another model than the one asked for: ", differences));
}

inline looptorch::Json config_to_json(const GanConfig& config) { return kConfigFields.write(config); }

/// Loads a configuration. Throws FileError, or ConfigError that names the file.
inline GanConfig load_config(const std::filesystem::path& path) {
  const auto config = kConfigFields.load(path);
  check_config(config, path.string());
  return config;
}

inline void save_config(const std::filesystem::path& path, const GanConfig& config) {
  kConfigFields.save(path, config);
}

}  // namespace spectrogram_gan
