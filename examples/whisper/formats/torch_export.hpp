// SPDX-License-Identifier: MIT
// Exports Whisper as two files of torch.export, which PyTorch, AOTInductor and the ONNX exporter read: the
// encoder, which runs once a window, and the decoder, which runs once a token.
#pragma once

#include <looptorch/export/export_model.hpp>

#include "../model/model.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <tuple>

namespace whisper {

/// Writes `encoder.pt2`, from log-mel frames `mel` `[B, M, 2 S]` to `states` `[B, S, D]`, and `decoder.pt2`,
/// from `tokens` `[B, L]` and `states` to the scores `[B, L, V]` of the next token. B, S and L are open up to
/// the model's positions. The decoder is written last: a folder that has it is complete. Throws
/// looptorch::ExportError and looptorch::FileError.
inline void save_torch_export(const std::filesystem::path& folder, Whisper& model) {
  std::filesystem::remove(folder / "decoder.pt2");
  const auto& config = model->config();
  const auto mel = torch::randn({2, config.num_mel_bins, 48});
  const auto tokens = torch::arange(8).view({2, 4}).remainder(config.vocab_size);
  const auto states = torch::randn({2, 24, config.d_model});
  const looptorch::DynamicDim length{
      .name = "length", .places = {{0, 1}}, .max = config.max_target_positions};
  looptorch::export_model(
      model->encoder(), mel, folder / "encoder.pt2",
      {.input_names = {"mel"},
       .dynamic = {{.name = "batch", .places = {{0, 0}}},
                   {.name = "states", .places = {{0, 2, 2}}, .max = config.max_source_positions}}});
  looptorch::export_model(
      model->decoder(),
      [](Decoder& decoder, const at::Tensor& tokens_BL, const at::Tensor& states_BSD) {
        return decoder->logits(decoder(tokens_BL, states_BSD));
      },
      std::tuple{tokens, states}, folder / "decoder.pt2",
      {.input_names = {"tokens", "states"},
       .dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}},
                   length,
                   {.name = "states", .places = {{1, 1}}, .max = config.max_source_positions}}});
}

}  // namespace whisper
