// SPDX-License-Identifier: MIT
// Writes the encoder and the CTC head of a model that konkanivani_train made as a file that PyTorch,
// AOTInductor and the ONNX exporter read.
#include <looptorch/app/run_main.hpp>
#include <looptorch/export/export_model.hpp>

#include "model.hpp"

#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <tuple>

namespace app = looptorch::app;
namespace kv = konkanivani;

namespace {

/// Clips shorter than this are padded: the example's lengths are valid at every size that is open.
constexpr std::int64_t kFewestFrames = 32;

void write(kv::KonkaniVani model, const std::filesystem::path& output) {
  const auto subsampling = model->config().subsampling;
  const auto mel = torch::randn({2, model->config().mel_bins, 2 * kFewestFrames});
  const auto lengths = torch::tensor({kFewestFrames, kFewestFrames - 3});
  looptorch::export_model(
      model,
      [](kv::KonkaniVani& recognizer, const at::Tensor& mel_BMF, const at::Tensor& lengths_B) {
        const auto encoded = recognizer->encode(mel_BMF, lengths_B);
        return std::tuple{recognizer->ctc_scores(encoded), encoded.lengths_B};
      },
      std::tuple{mel, lengths}, output,
      {.input_names = {"mel", "lengths"},
       .dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}},
                   {.name = "frames", .places = {{0, 2, subsampling}}, .min = kFewestFrames / subsampling}},
       .trust_value_reads = true});  // the encoder reads lengths to check them
}

}  // namespace

int main(int argc, char** argv) {
  std::filesystem::path model, output;
  app::CommandLine line(
      "konkanivani_export",
      "Writes encoder and CTC head for PyTorch, AOTInductor and ONNX: from mel frames, [B, M, "
      "F], and\nhow many of each clip are not padding, [B], to scores, [B, T, V], and how many "
      "count, [B]. B\nand F are open; F is 32 or more, and a multiple of the subsampling.");
  line.required("model", "DIR", model, "folder that konkanivani_train wrote");
  line.required("output", "FILE", output, "NAME.pt2, or NAME.ts for TorchScript");
  return app::run_main(argc, argv, line, [&] {
    write(kv::load_model(model), output);
    std::cout << "wrote " << output.string() << std::endl;
  });
}
