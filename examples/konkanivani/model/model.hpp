// SPDX-License-Identifier: MIT
// The KonkaniVani model: a Conformer encoder with two heads, CTC and an attention decoder. It is saved as a
// folder of config.json and model.safetensors.
//
// Shapes: B batch, M mel bins, F mel frames, T encoder frames, D width, L characters, V vocabulary.
#pragma once

#include <looptorch/layers/linear.hpp>
#include <looptorch/state/weights/finite_weights.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "config.hpp"
#include "decoder.hpp"
#include "encoder.hpp"

#include <torch/torch.h>

#include <filesystem>

namespace konkanivani {

class KonkaniVaniImpl : public torch::nn::Module {
 public:
  /// Builds the model. Throws ConfigError for invalid sizes.
  explicit KonkaniVaniImpl(const ModelConfig& config) : config_(config) {
    check_config(config, "KonkaniVani");
    encoder = register_module("encoder", Encoder(config));
    ctc_head = register_module("ctc_head", looptorch::Linear(config.d_model, config.vocabulary));
    decoder = register_module("decoder", Decoder(config));
  }

  /// Encodes clips. `lengths_B` holds the number of unpadded frames of each clip.
  [[nodiscard]] Encoded encode(const at::Tensor& mel_BMF, const at::Tensor& lengths_B) {
    return encoder(mel_BMF, lengths_B);
  }

  /// Returns CTC's scores `[B, T, V]`.
  [[nodiscard]] at::Tensor ctc_scores(const Encoded& encoded) { return ctc_head(encoded.states_BTD); }

  /// Returns scores `[B, L, V]` of the character after each of `characters_BL`; see Decoder.
  [[nodiscard]] at::Tensor decoder_scores(const at::Tensor& characters_BL, const at::Tensor& lengths_B,
                                          const Encoded& encoded) {
    return decoder(characters_BL, lengths_B, encoded);
  }

  /// Returns scores `[B, V]` of the next character; see Decoder.
  [[nodiscard]] at::Tensor extend(const at::Tensor& next_B, const Encoded& encoded, DecoderCache& cache) {
    return decoder->extend(next_B, encoded, cache);
  }

  [[nodiscard]] const ModelConfig& config() const { return config_; }

 private:
  ModelConfig config_;
  Encoder encoder{nullptr};
  looptorch::Linear ctc_head{nullptr};
  Decoder decoder{nullptr};
};
TORCH_MODULE(KonkaniVani);

/// Returns the number of parameters of the model, all trained.
[[nodiscard]] inline int64_t count_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// Writes config.json and model.safetensors into `folder`, which must exist.
inline void save_model(const KonkaniVani& model, const std::filesystem::path& folder) {
  looptorch::save_weights(model, folder / "model.safetensors");
  save_config(folder / "config.json", model->config());
}

/// Loads the model of `folder`.
[[nodiscard]] inline KonkaniVani load_model(const std::filesystem::path& folder) {
  KonkaniVani model(load_config(folder / "config.json"));
  const auto file = folder / "model.safetensors";
  looptorch::load_weights(model, file);
  looptorch::require_finite_weights(model, file.string());
  return model;
}

}  // namespace konkanivani
