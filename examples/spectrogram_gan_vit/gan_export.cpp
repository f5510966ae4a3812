// SPDX-License-Identifier: MIT
// Exports a generator of gan_train for PyTorch, AOTInductor and the ONNX exporter.
#include <looptorch/app/run_main.hpp>
#include <looptorch/export/export_model.hpp>

#include "gan/model.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <tuple>

namespace app = looptorch::app;

int main(int argc, char** argv) {
  std::filesystem::path model, output;
  app::CommandLine line(
      "gan_export",
      "Writes a generator for PyTorch, AOTInductor and ONNX: from noise, [B, Z], and valence "
      "and\narousal, [B, 2], to spectrograms, [B, 1, M, F]. The batch is open.");
  line.required("model", "DIR", model, "folder that gan_train wrote");
  line.required("output", "FILE", output, "NAME.pt2, or NAME.ts for TorchScript");
  return app::run_main(argc, argv, line, [&] {
    torch::manual_seed(0);  // an example input is saved in the file: makes it the same each time
    auto generator = spectrogram_gan::load_generator(model);
    looptorch::export_model(
        generator, std::tuple{torch::randn({2, generator->config().latent}), torch::rand({2, 2})}, output,
        {.input_names = {"noise", "conditions"}, .dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}}}});
    std::cout << "wrote " << output.string() << std::endl;
  });
}
