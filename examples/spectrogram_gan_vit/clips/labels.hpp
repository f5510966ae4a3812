// SPDX-License-Identifier: MIT
// Saves and loads the emotions of the songs on which a generator was trained, as labels.safetensors beside
// the model. gan_sample draws the emotions of its clips from them, since the generator has learnt no others.
//
// Shapes: N songs.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "annotations.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace spectrogram_gan {

inline constexpr const char* kLabelsFile = "labels.safetensors";

/// Returns valence and arousal of each song, float32 `[N, 2]`.
[[nodiscard]] inline at::Tensor labels_of(const std::vector<Song>& songs) {
  auto labels_N2 = at::empty({static_cast<std::int64_t>(songs.size()), 2}, at::kFloat);
  auto* label = labels_N2.mutable_data_ptr<float>();
  for (const auto& song : songs) {
    *label++ = static_cast<float>(song.valence);
    *label++ = static_cast<float>(song.arousal);
  }
  return labels_N2;
}

/// Writes `folder`/labels.safetensors.
inline void save_labels(const std::filesystem::path& folder, const at::Tensor& labels_N2) {
  looptorch::save_safetensors(folder / kLabelsFile, {{"labels", labels_N2}});
}

/// Reads `folder`/labels.safetensors. Throws ConfigError, which names the file and the remedy, if there is
/// none, and for anything but float32 `[N, 2]` in [-1, 1]. Throws what looptorch::load_safetensors throws.
[[nodiscard]] inline at::Tensor load_labels(const std::filesystem::path& folder) {
  const auto file = folder / kLabelsFile;
  if (!std::filesystem::exists(file))
    throw looptorch::ConfigError(
        file.string() +
        ": is missing, and samples draw their emotions from it; a model that was trained before "
        "labels were saved gets them by gan_train --resume auto --validate-every 0");
  const auto tensors = looptorch::load_safetensors(file).tensors;
  const auto found = tensors.find("labels");
  const auto refuse = [&](const auto&... what) {
    throw looptorch::ConfigError(looptorch::message(file.string(), ": ", what...));
  };
  if (found == tensors.end()) refuse("holds no tensor \"labels\"");
  const auto& labels_N2 = found->second;
  if (labels_N2.dim() != 2 || labels_N2.size(0) < 1 || labels_N2.size(1) != 2 ||
      labels_N2.scalar_type() != at::kFloat)
    refuse("labels is ", labels_N2.scalar_type(), " ", labels_N2.sizes(), "; it must be Float [N, 2]");
  if (!(labels_N2.abs() <= 1).all().item<bool>()) refuse("some labels are outside [-1, 1]");
  return labels_N2;
}

}  // namespace spectrogram_gan
