// SPDX-License-Identifier: MIT
// The objective of training: how well the decoder predicts each token of a batch's texts from the sound and
// the tokens before it.
//
// Shapes: B batch, L tokens, S encoder positions, D width of the model.
#pragma once

#include "../clips/batch.hpp"
#include "../model/model.hpp"

namespace whisper {

/// Returns the encoder's states of a batch, `[B, S, D]`.
[[nodiscard]] inline at::Tensor states_of(Whisper& model, const Batch& batch) {
  return batch.encoded ? batch.mel_BMT : model->encoder()(batch.mel_BMT);
}

/// Returns the loss of predicting a batch's labels: the mean over labels that are not kIgnored.
[[nodiscard]] inline at::Tensor loss_of(Whisper& model, const Batch& batch) {
  auto& decoder = model->decoder();
  return decoder->loss(decoder(batch.tokens_BL, states_of(model, batch)), batch.labels_BL);
}

}  // namespace whisper
