// SPDX-License-Identifier: MIT
// Exports a ViT of vit_train for PyTorch, AOTInductor and the ONNX exporter.
#include <looptorch/app/run_main.hpp>
#include <looptorch/export/export_model.hpp>

#include "clips/spectrogram.hpp"
#include "vit/hugging_face.hpp"
#include "vit/model.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <iostream>

namespace app = looptorch::app;

int main(int argc, char** argv) {
  std::filesystem::path model, output;
  app::CommandLine line(
      "vit_export",
      "Writes a ViT for PyTorch, AOTInductor and ONNX: from spectrograms of 30 s, [B, 1, M, "
      "F], to\nvalence and arousal, [B, 2]. The batch is open.");
  line.required("model", "DIR", model, "folder that vit_train wrote");
  line.required("output", "FILE", output, "NAME.pt2, or NAME.ts for TorchScript");
  return app::run_main(argc, argv, line, [&] {
    torch::manual_seed(0);  // an example input is saved in the file: makes it the same each time
    auto vit = spectrogram_vit::load_vit(model);
    const auto frames = spectrogram_gan::SpectrogramOptions{.mel_bins = vit->config().n_mels}.frames();
    looptorch::export_model(
        vit, torch::randn({2, 1, vit->config().n_mels, frames}), output,
        {.input_names = {"spectrograms"}, .dynamic = {{.name = "batch", .places = {{0, 0}}}}});
    std::cout << "wrote " << output.string() << std::endl;
  });
}
