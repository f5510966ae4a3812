// SPDX-License-Identifier: MIT
// Saves and loads the decibel scale of a model's spectrograms: their mean and deviation in decibels. A
// model's pictures have mean 0 and deviation 1, so a picture can become sound only with this scale.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/base/json/json.hpp>

#include "spectrogram.hpp"

#include <cmath>
#include <filesystem>

namespace spectrogram_gan {

inline void save_loudness(const std::filesystem::path& file, const DecibelScale& scale) {
  auto json = looptorch::Json::object();
  json.set("mean_db", scale.mean).set("deviation_db", scale.deviation);
  looptorch::write_file_atomically(file, json.dump(2) + "\n");
}

/// Loads a scale. Throws FileError, and ConfigError, which names the file, for anything but a mean and a
/// deviation above 0.
[[nodiscard]] inline DecibelScale load_loudness(const std::filesystem::path& file) {
  DecibelScale scale;
  try {
    const auto json = looptorch::load_json(file);
    scale = {.mean = json.at("mean_db").as_number(), .deviation = json.at("deviation_db").as_number()};
  } catch (const looptorch::JsonError& error) {
    throw looptorch::ConfigError(looptorch::message(file.string(), ": ", error.what()));
  }
  if (!std::isfinite(scale.mean) || !(std::isfinite(scale.deviation) && scale.deviation > 0))
    throw looptorch::ConfigError(looptorch::message(file.string(), ": a mean of ", scale.mean,
                                                    " dB and a deviation of ", scale.deviation, " dB"));
  return scale;
}

}  // namespace spectrogram_gan
