// SPDX-License-Identifier: MIT
// Whisper (Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision") as a LibTorch
// module, without dropout, as it was published. Parameters have the names of transformers'
// WhisperForConditionalGeneration; its `proj_out.weight` is the token embedding here. Layers recompute their
// activations in backward. To switch that off, list Checkpointed<EncoderLayer> or Checkpointed<DecoderLayer>
// in the Trainer within When{false, ...}.
//
// Shapes: B batch, M mel bins, T mel frames, L tokens, V vocabulary.
#pragma once

#include "decoder.hpp"
#include "encoder.hpp"

#include <vector>

namespace whisper {

/// Encoder and decoder; registered as `model` so that parameter names carry transformers' prefix.
class EncoderDecoderImpl : public torch::nn::Module {
 public:
  explicit EncoderDecoderImpl(const WhisperConfig& config)
      : encoder(register_module("encoder", Encoder(config))),
        decoder(register_module("decoder", Decoder(config))) {}

  Encoder encoder;
  Decoder decoder;
};
TORCH_MODULE(EncoderDecoder);

class WhisperImpl : public torch::nn::Module {
 public:
  explicit WhisperImpl(const WhisperConfig& config)
      : config_(config), model_(register_module("model", EncoderDecoder(config))) {}

  /// Returns the scores `[B, L, V]` of the token after each of `tokens_BL`, given log-mel frames `[B, M, T]`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& mel_BMT, const at::Tensor& tokens_BL) {
    return decoder()->logits(decoder()(tokens_BL, encoder()(mel_BMT)));
  }

  /// Freezes the encoder permanently: it builds no graph, keeps no activations and gets no gradients. Returns
  /// the parameters that are still trained.
  [[nodiscard]] std::vector<at::Tensor> freeze_encoder() {
    for (auto& parameter : encoder()->parameters()) parameter.requires_grad_(false);
    return decoder()->parameters();
  }

  /// Returns the loss of predicting `labels_BL` from the tokens before them, the mean over the labels that
  /// are not kIgnored. Never holds all scores at once.
  [[nodiscard]] at::Tensor loss(const at::Tensor& mel_BMT, const at::Tensor& tokens_BL,
                                const at::Tensor& labels_BL) {
    return decoder()->loss(decoder()(tokens_BL, encoder()(mel_BMT)), labels_BL);
  }

  [[nodiscard]] Encoder& encoder() { return model_->encoder; }
  [[nodiscard]] Decoder& decoder() { return model_->decoder; }
  [[nodiscard]] const WhisperConfig& config() const { return config_; }

 private:
  WhisperConfig config_;
  EncoderDecoder model_;
};
TORCH_MODULE(Whisper);

}  // namespace whisper
