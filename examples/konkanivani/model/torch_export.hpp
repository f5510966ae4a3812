// SPDX-License-Identifier: MIT
// Exports KonkaniVani as two files, which PyTorch, AOTInductor and the ONNX exporter read: the encoder with
// its CTC head, which runs once a clip, and the attention decoder, which runs once a character. Writes
// TorchScript instead on request.
//
// Shapes: B batch, M mel bins, F mel frames, T encoder frames, D width, L characters, V vocabulary.
#pragma once

#include <looptorch/export/export_model.hpp>

#include "model.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <tuple>

namespace konkanivani {

/// The fewest mel frames that the exported encoder takes; pad shorter clips. export_model also runs the
/// encoder at this size, so the lengths in its example must not exceed it.
inline constexpr std::int64_t kFewestFrames = 32;

/// Writes the encoder with its CTC head. It maps `mel` `[B, M, F]` and `lengths` `[B]`, each clip's number of
/// unpadded frames, to CTC's scores `[B, T, V]`, the numbers of valid frames `[B]`, and the states `[B, T,
/// D]`. B and F are open. Throws looptorch::ExportError and looptorch::FileError.
inline void export_encoder(KonkaniVani& model, const std::filesystem::path& path) {
  const auto& config = model->config();
  looptorch::export_model(
      model,
      [](KonkaniVani& recognizer, const at::Tensor& mel_BMF, const at::Tensor& lengths_B) {
        const auto encoded = recognizer->encode(mel_BMF, lengths_B);
        return std::tuple{recognizer->ctc_scores(encoded), encoded.lengths_B, encoded.states_BTD};
      },
      std::tuple{torch::randn({2, config.mel_bins, 2 * kFewestFrames}),
                 torch::tensor({kFewestFrames, kFewestFrames - 3})},
      path,
      {.input_names = {"mel", "lengths"},
       .dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}},
                   {.name = "frames",
                    .places = {{0, 2, config.subsampling}},
                    .min = kFewestFrames / config.subsampling}},
       .trust_value_reads = true});  // the encoder reads lengths to check them
}

/// Writes the attention decoder. It maps `characters` `[B, L]`, `states`, and `frames`, the numbers of valid
/// states, to the scores `[B, L, V]` of the character after each one. B, L and T are open. Texts may be
/// padded at the end, where scores mean nothing. Throws what export_encoder throws.
inline void export_decoder(KonkaniVani& model, const std::filesystem::path& path) {
  const auto& config = model->config();
  looptorch::export_model(
      model,
      [](KonkaniVani& recognizer, const at::Tensor& characters_BL, const at::Tensor& states_BTD,
         const at::Tensor& frames_B) {
        const auto lengths_B = at::ones_like(characters_BL).sum(1);
        return recognizer->decoder_scores(characters_BL, lengths_B, {states_BTD, frames_B});
      },
      std::tuple{torch::arange(8).view({2, 4}).remainder(config.vocabulary),
                 torch::randn({2, 6, config.d_model}), torch::tensor({6, 1})},
      path,
      {.input_names = {"characters", "states", "frames"},
       .dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}, {2, 0}}},
                   {.name = "length", .places = {{0, 1}}},
                   {.name = "frames", .places = {{1, 1}}}}});
}

}  // namespace konkanivani
