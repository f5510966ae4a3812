// SPDX-License-Identifier: MIT
// What tests/export/python.sh reads: models as .pt2 and TorchScript, with inputs and the outputs that C++
// computes for them, and what AOTInductor made of them, which C++ runs. Everywhere the models are exported,
// which compares them with their programs.
//
// Tests export: export_model
#include <looptorch/export/export_model.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/export/exports.hpp"
#include "unit/export/models.hpp"

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <spectrogram_gan_vit/vit/model.hpp>
#include <whisper/model/model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using export_tests::Exports;
using Tensors = std::vector<at::Tensor>;

namespace {

whisper::Whisper small_whisper() {
  return whisper::Whisper(whisper::WhisperConfig{.vocab_size = 101,
                                                 .d_model = 32,
                                                 .encoder_layers = 2,
                                                 .decoder_layers = 2,
                                                 .encoder_attention_heads = 4,
                                                 .decoder_attention_heads = 4,
                                                 .encoder_ffn_dim = 64,
                                                 .decoder_ffn_dim = 64,
                                                 .num_mel_bins = 8,
                                                 .max_source_positions = 50,
                                                 .max_target_positions = 20});
}

spectrogram_vit::ViTBackbone small_vit() {
  return spectrogram_vit::ViTBackbone(spectrogram_vit::ViTConfig{.hidden_size = 32,
                                                                 .layers = 2,
                                                                 .heads = 4,
                                                                 .intermediate_size = 64,
                                                                 .hidden_dropout = 0.1,
                                                                 .attention_dropout = 0.1,
                                                                 .channels = 1,
                                                                 .image = {16, 24},
                                                                 .patch = {8, 8}});
}

/// Exports what docs/export.md reads.
void write_page_models(const std::filesystem::path& folder) {
  torch::nn::Sequential net(torch::nn::Linear(16, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                            torch::nn::Linear(8, 3));
  for (const char* name : {"net.pt2", "net.ts"})
    lt::export_model(net, [](auto& model, const at::Tensor& x) { return model->forward(x); },
                     torch::randn({4, 16}), folder / name,
                     {.input_names = {"features"}, .dynamic = {{.name = "batch", .places = {{0, 0}}}}});
}

void write_exports(const std::filesystem::path& folder) {
  torch::manual_seed(0);
  const bool onednn = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(false);  // its operators are not those of the file
  Exports exports(folder);
  const lt::DynamicDim batch{.name = "batch", .places = {{0, 0}}};

  export_tests::Mlp mlp;
  exports.add("mlp", mlp, [](auto& m, const at::Tensor& x) { return m(x); }, torch::randn({3, 4}),
              {.input_names = {"x"}, .dynamic = {batch}},
              {torch::randn({3, 4}), torch::randn({1, 4}), torch::randn({17, 4})});

  exports.add("named", mlp,
              [](auto& m, const at::Tensor& x) {
                return std::tuple{m(x), x};
              },
              torch::randn({3, 4}), {.output_names = {"scores", "a"}, .dynamic = {batch}},
              {torch::randn({3, 4}), torch::randn({1, 4})});

  export_tests::Keywords keywords;
  exports.add("keywords", keywords, [](auto& m, const at::Tensor& x) { return m(x); }, torch::randn({3, 4}),
              {.dynamic = {batch}}, {torch::randn({3, 4}), torch::randn({1, 4})});

  auto vit = small_vit();
  exports.add("vit", vit, [](auto& m, const at::Tensor& x) { return m->forward(x); },
              torch::randn({3, 1, 16, 24}), {.input_names = {"images"}, .dynamic = {batch}},
              {torch::randn({3, 1, 16, 24}), torch::randn({1, 1, 16, 24}), torch::randn({9, 1, 16, 24})});

  auto whisper = small_whisper();
  const auto tokens = [](std::int64_t clips, std::int64_t length) {
    return torch::randint(101, {clips, length});
  };
  const lt::DynamicDim frames{.name = "frames", .places = {{0, 2, 2}}, .max = 50};
  exports.add("whisper", whisper,
              [](auto& m, const at::Tensor& mel, const at::Tensor& ids) { return m->forward(mel, ids); },
              std::tuple{torch::randn({3, 8, 40}), tokens(3, 5)},
              {.input_names = {"mel", "tokens"},
               .dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}},
                           frames,
                           {.name = "length", .places = {{1, 1}}, .max = 20}}},
              {std::tuple{torch::randn({3, 8, 40}), tokens(3, 5)},
               std::tuple{torch::randn({1, 8, 60}), tokens(1, 12)},
               std::tuple{torch::randn({4, 8, 24}), tokens(4, 1)}});
  exports.add("encoder", whisper, [](auto& m, const at::Tensor& mel) { return m->encoder()(mel); },
              torch::randn({3, 8, 40}), {.input_names = {"mel"}, .dynamic = {batch, frames}},
              {torch::randn({3, 8, 40}), torch::randn({1, 8, 100}), torch::randn({5, 8, 22})});
  at::globalContext().setUserEnabledMkldnn(onednn);
}

/// Runs a package for the inputs of a file of Exports, and returns the largest difference to its outputs.
double largest_difference(const fs::path& package, const fs::path& cases) {
  torch::inductor::AOTIModelPackageLoader compiled(package.string());
  Tensors all;
  torch::load(all, cases.string());
  const auto inputs = all.at(0)[0].item<std::int64_t>(), outputs = all[0][1].item<std::int64_t>();
  double largest = 0;
  for (auto at = all.begin() + 1; at != all.end(); at += inputs + outputs) {
    const auto found = compiled.run(Tensors(at, at + inputs));
    REQUIRE(found.size() == static_cast<std::size_t>(outputs));
    for (std::int64_t i = 0; i < outputs; ++i) {
      const at::Tensor& wanted = *(at + inputs + i);
      REQUIRE(found[static_cast<std::size_t>(i)].sizes() == wanted.sizes());
      largest = std::max(largest, (found[static_cast<std::size_t>(i)] - wanted).abs().max().item<double>());
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("an MLP, a ViT and Whisper are exported with dynamic batch, frames and tokens") {
  const looptorch::testing::TemporaryFolder folder;
  write_exports(folder.path());
  CHECK(folder.entries() == 18);
}

TEST_CASE("for tests/export/python.sh: models and their outputs", "[.write_exports]") {
  const char* folder = std::getenv("LOOPTORCH_EXPORTS");
  if (!folder) return;  // by a filter on files
  write_exports(folder);
  std::filesystem::create_directory(std::filesystem::path(folder) / "page");
  write_page_models(std::filesystem::path(folder) / "page");
}

TEST_CASE("for tests/export/python.sh: C++ runs what AOTInductor compiled", "[.run_compiled]") {
  const char* folder = std::getenv("LOOPTORCH_EXPORTS");
  if (!folder) return;  // by a filter on files
  int run = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".cases") continue;
    const auto name = entry.path().stem().string();
    INFO(name);
    const auto difference = largest_difference(fs::path(folder) / (name + "_compiled.pt2"), entry.path());
    std::cout << name << ": " << difference << std::endl;
    CHECK(difference < 1e-5);
    ++run;
  }
  CHECK(run == 5);
}
