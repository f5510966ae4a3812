// SPDX-License-Identifier: MIT
// Reads a NumPy array (.npy) or a sound file as a tensor. A field of a .jsonl sample may be the path of such
// a file in place of numbers.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/data/npy.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

namespace finetune_exported {

namespace lt = looptorch;

/// How sounds are read.
struct SoundOptions {
  std::int64_t sample_rate = 16000;
  bool normalize = true;  ///< to mean 0 and variance 1, as transformers' feature extractor does
};

/// True for the name of an array. A file with any other name is a sound.
[[nodiscard]] inline bool is_array(const std::filesystem::path& file) { return file.extension() == ".npy"; }

/// Returns the array of a .npy file, with its type, or a sound's samples `[T]`. Throws what load_npy and
/// decode throw, which name the file.
inline at::Tensor file_tensor(const std::filesystem::path& file, const SoundOptions& sounds) {
  if (is_array(file)) return lt::load_npy(file);
  const at::Tensor samples_T = lt::audio::decode(file, {.sample_rate = sounds.sample_rate}).samples_T;
  if (!sounds.normalize) return samples_T;
  constexpr double kEpsilon = 1e-7;  // transformers'
  return (samples_T - samples_T.mean()) / (samples_T.var(/*unbiased=*/false) + kEpsilon).sqrt();
}

}  // namespace finetune_exported
