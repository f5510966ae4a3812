// SPDX-License-Identifier: MIT
// Marks a training program's output folder as that of one model, so that weights of another size are never
// mixed with it.
#pragma once

#include <filesystem>

namespace spectrogram_gan {

/// Throws ConfigError unless `config` is that of the model that `output` was begun with, and of that whose
/// `snapshot` the run goes on from, if it is not empty: weights do not tell one `n_mels` from another. Then
/// creates the folder and writes its config.json. `load` reads such a file; `require_same_model` and
/// `save_config` are found beside Config.
template <class Config>
void claim_output(const std::filesystem::path& output, const std::filesystem::path& snapshot,
                  const Config& config, Config (*load)(const std::filesystem::path&)) {
  const auto require_same = [&](const std::filesystem::path& folder) {
    if (std::filesystem::exists(folder / "config.json"))
      require_same_model(load(folder / "config.json"), config, folder.string());
  };
  require_same(output);
  if (!snapshot.empty()) require_same((snapshot / "../..").lexically_normal());
  std::filesystem::create_directories(output);
  save_config(output / "config.json", config);
}

}  // namespace spectrogram_gan
