// SPDX-License-Identifier: MIT
// Exports a model of konkanivani_train for PyTorch, AOTInductor and the ONNX exporter: the encoder with its
// CTC head and, on request, the attention decoder.
#include <looptorch/app/run_main.hpp>

#include "model/torch_export.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <iostream>

namespace app = looptorch::app;
namespace kv = konkanivani;

int main(int argc, char** argv) {
  std::filesystem::path model, output, decoder;
  app::CommandLine line(
      "konkanivani_export",
      "Writes encoder and CTC head for PyTorch, AOTInductor and ONNX: from mel frames, [B, M, F], and\n"
      "how many of each clip are not padding, [B], to scores, [B, T, V], how many of the T count, [B],\n"
      "and states, [B, T, D]. B and F are open; F is 32 or more, and a multiple of the subsampling.");
  line.required("model", "DIR", model, "folder that konkanivani_train wrote");
  line.required("output", "FILE", output, "NAME.pt2, or NAME.ts for TorchScript");
  line.option("decoder", "FILE", decoder,
              "the attention decoder, too: from characters, [B, L], states and how many count, to the scores "
              "of the next characters, [B, L, V]");
  return app::run_main(argc, argv, line, [&] {
    if (decoder.lexically_normal() == output.lexically_normal())
      throw app::CommandLineError("--decoder must be another file than --output");
    torch::manual_seed(0);  // an example input is saved in the file: makes it the same each time
    auto recognizer = kv::load_model(model);
    kv::export_encoder(recognizer, output);
    std::cout << "wrote " << output.string() << std::endl;
    if (decoder.empty()) return;
    kv::export_decoder(recognizer, decoder);
    std::cout << "wrote " << decoder.string() << std::endl;
  });
}
