// SPDX-License-Identifier: MIT
// Writes a model's config.json into a training program's output folder. Refuses a folder with the config.json
// of another model, so that weights of different sizes never mix.
#pragma once

#include <filesystem>

namespace spectrogram_gan {

/// Throws ConfigError if config.json in `output`, or in the output folder of the run that wrote `snapshot`
/// (empty: none), is for another model. Loading a generator's weights would not notice another `n_mels`.
/// `load` reads config.json; `require_same_model` is found by argument-dependent lookup.
template <class Config>
void require_claimable(const std::filesystem::path& output, const std::filesystem::path& snapshot,
                       const Config& config, Config (*load)(const std::filesystem::path&)) {
  const auto require_same = [&](const std::filesystem::path& folder) {
    if (std::filesystem::exists(folder / "config.json"))
      require_same_model(load(folder / "config.json"), config, folder.string());
  };
  require_same(output);
  if (!snapshot.empty()) require_same((snapshot / "../..").lexically_normal());
}

/// Writes config.json into `output`. Call it right before training, so that a refused run claims nothing.
/// `save_config` is found by argument-dependent lookup.
template <class Config>
void claim_output(const std::filesystem::path& output, const Config& config) {
  std::filesystem::create_directories(output);
  save_config(output / "config.json", config);
}

}  // namespace spectrogram_gan
