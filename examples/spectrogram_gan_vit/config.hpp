// SPDX-License-Identifier: MIT
// The sizes of a spectrogram GAN, checks, and config.json. Weights do not say how large the pictures are that
// they make, so the configuration is saved beside them and compared before they are used.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace spectrogram_gan {

/// Sizes that make no model, a config.json that holds none, or another size than was asked for.
struct ConfigError : looptorch::Error {
  using Error::Error;
};

/// The defaults are the published size. The order of the fields is API.
struct GanConfig {
  std::int64_t n_mels = 128;
  std::int64_t frames = 1292;  ///< 30 s at 22.05 kHz, a frame every 512 samples
  std::int64_t latent = 100;
  std::int64_t channels = 256;  ///< of the widest layer on either side; the narrowest has an eighth of them
  std::int64_t seed_rows = 16;  ///< of the picture that the generator begins with; its convolutions make ...
  std::int64_t seed_columns = 20;  ///< ... it eight times as high and as wide, and a resize what is missing

  friend bool operator==(const GanConfig&, const GanConfig&) = default;
};

/// Returns sizes for CPUs: an eighth of the channels, and a seed with fewer rows and more columns.
inline GanConfig small_size() { return {.n_mels = 64, .channels = 32, .seed_rows = 8, .seed_columns = 81}; }

namespace detail {

struct ConfigField {
  const char* name;
  std::int64_t GanConfig::*member;
  std::int64_t min, max;
};

inline constexpr std::array kConfigFields{
    ConfigField{"n_mels", &GanConfig::n_mels, 16, 1024},
    ConfigField{"frames", &GanConfig::frames, 16, 1 << 20},
    ConfigField{"latent", &GanConfig::latent, 1, 1 << 14},
    ConfigField{"channels", &GanConfig::channels, 8, 1 << 13},
    ConfigField{"seed_rows", &GanConfig::seed_rows, 1, 256},
    ConfigField{"seed_columns", &GanConfig::seed_columns, 1, 1 << 14},
};

inline constexpr std::string_view kModelType = "spectrogram_gan";

template <class... Parts>
[[noreturn]] void config_error(std::string_view where, const Parts&... parts) {
  throw ConfigError(looptorch::message(where, ": ", parts...));
}

}  // namespace detail

/// Throws ConfigError, which begins with `where` and names the field, for sizes that make no model.
inline void check_config(const GanConfig& config, std::string_view where) {
  for (const auto& field : detail::kConfigFields) {
    const auto value = config.*field.member;
    if (value < field.min || value > field.max)
      detail::config_error(where, field.name, " is ", value, ", outside ", field.min, "..", field.max);
  }
  if (config.channels % 8 != 0)
    detail::config_error(where, "channels is ", config.channels, "; it must be a multiple of 8");
}

/// Throws ConfigError with each field in which the model that `where` holds is not the one asked for.
inline void require_same_model(const GanConfig& saved, const GanConfig& asked, std::string_view where) {
  std::string differences;
  for (const auto& [name, member, min, max] : detail::kConfigFields)
    if (saved.*member != asked.*member)
      differences += looptorch::message(differences.empty() ? "" : ", ", name, " ", saved.*member,
                                        " instead of ", asked.*member);
  if (!differences.empty())
    detail::config_error(where, "holds another model than the one asked for: ", differences);
}

inline looptorch::Json config_to_json(const GanConfig& config) {
  auto json = looptorch::Json::object();
  json.set("model_type", detail::kModelType);
  for (const auto& field : detail::kConfigFields) json.set(field.name, config.*field.member);
  return json;
}

/// Reads a configuration; `where` is the JSON's name in errors. Throws ConfigError.
inline GanConfig config_from_json(const looptorch::Json& json, std::string_view where) {
  GanConfig config;
  try {
    if (const auto type = json.at("model_type").as_string(); type != detail::kModelType)
      detail::config_error(where, "model_type is \"", type, "\", not \"", detail::kModelType, "\"");
    for (const auto& field : detail::kConfigFields) config.*field.member = json.at(field.name).as_int();
  } catch (const looptorch::JsonError& error) {
    detail::config_error(where, error.what());
  }
  check_config(config, where);
  return config;
}

/// Loads a configuration. Throws FileError, or ConfigError that names the file.
inline GanConfig load_config(const std::filesystem::path& path) {
  try {
    return config_from_json(looptorch::load_json(path), path.string());
  } catch (const looptorch::JsonError& error) {
    throw ConfigError(error.what());
  }
}

inline void save_config(const std::filesystem::path& path, const GanConfig& config) {
  looptorch::write_file_atomically(path, config_to_json(config).dump(2) + "\n");
}

}  // namespace spectrogram_gan
