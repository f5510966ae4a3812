// SPDX-License-Identifier: MIT
// The models of the examples, small and, for tests/export/python.sh --real, at the sizes that are trained.
//
// Tests export: export_model
// Tests konkanivani/model: torch_export
#include <looptorch/export/export_model.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/export/exports.hpp"

#include <torch/torch.h>

#include <konkanivani/model/torch_export.hpp>
#include <spectrogram_gan_vit/gan/model.hpp>
#include <spectrogram_gan_vit/vit/model.hpp>
#include <whisper/model/model.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>

namespace kv = konkanivani;
namespace lt = looptorch;
using export_tests::Exports;
using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

namespace {

constexpr auto kForward = [](auto& model, const auto&... inputs) { return model->forward(inputs...); };

void add_gan(Exports& exports, const spectrogram_gan::GanConfig& config) {
  spectrogram_gan::Gan gan(config);
  const lt::ExportOptions options{.dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}}}};
  const auto noise = [&](std::int64_t clips) {
    return Pair{torch::randn({clips, config.latent}), torch::rand({clips, 2})};
  };
  exports.add("generator", gan->generator, kForward, noise(2), options, {noise(2), noise(1), noise(3)});
  const auto spectrograms = [&](std::int64_t clips) {
    return Pair{torch::randn({clips, 1, config.n_mels, config.frames}), torch::rand({clips, 2})};
  };
  exports.add("discriminator", gan->discriminator, kForward, spectrograms(2), options,
              {spectrograms(2), spectrograms(1), spectrograms(3)});
}

kv::ModelConfig small_konkanivani() {
  return {.vocabulary = 12,
          .d_model = 16,
          .encoder_layers = 2,
          .decoder_layers = 2,
          .heads = 2,
          .kernel = 5,
          .mel_bins = 8};
}

/// `frames` are multiples of 16, of which encoders make a multiple of 4.
void add_konkanivani(Exports& exports, const std::string& name, const kv::ModelConfig& config,
                     std::int64_t frames) {
  kv::KonkaniVani model(config);
  for (const char* suffix : {".pt2", ".ts"}) {
    kv::export_encoder(model, exports.path(name + suffix));
    kv::export_decoder(model, exports.path(name + "_decoder" + suffix));
  }
  const auto clips = [&](std::int64_t count, std::int64_t length) {
    return Pair{torch::randn({count, config.mel_bins, length}), length - torch::arange(count)};
  };
  exports.add_cases(
      name, model,
      [](auto& m, const at::Tensor& mel, const at::Tensor& lengths) {
        const auto encoded = m->encode(mel, lengths);
        return std::tuple{m->ctc_scores(encoded), encoded.lengths_B, encoded.states_BTD};
      },
      std::vector{clips(2, 64), clips(1, 32), clips(3, frames)});
  const auto texts = [&](std::int64_t count, std::int64_t length, std::int64_t states) {
    return Triple{torch::randint(config.vocabulary, {count, length}),
                  torch::randn({count, states, config.d_model}), states - torch::arange(count)};
  };
  exports.add_cases(
      name + "_decoder", model,
      [](auto& m, const at::Tensor& characters, const at::Tensor& states, const at::Tensor& count) {
        const auto lengths = torch::full({characters.size(0)}, characters.size(1));
        return m->decoder_scores(characters, lengths, {states, count});
      },
      std::vector{texts(2, 4, 6), texts(1, 1, 1), texts(3, 9, frames / 4)});
}

void add_vit(Exports& exports) {
  spectrogram_vit::ViTBackbone vit(spectrogram_vit::ViTConfig{});
  const auto images = [](std::int64_t count) { return torch::randn({count, 3, 224, 224}); };
  exports.add("vit", vit, kForward, images(2), {.dynamic = {{.name = "batch", .places = {{0, 0}}}}},
              {images(2), images(1)});
}

void add_whisper(Exports& exports) {
  const whisper::WhisperConfig config;
  whisper::Whisper model(config);
  const auto batch = [&](std::int64_t clips, std::int64_t frames, std::int64_t tokens) {
    return Pair{torch::randn({clips, config.num_mel_bins, frames}),
                torch::randint(config.vocab_size, {clips, tokens})};
  };
  exports.add("whisper", model, kForward, batch(2, 400, 4),
              {.dynamic = {{.name = "batch", .places = {{0, 0}, {1, 0}}},
                           {.name = "frames", .places = {{0, 2, 2}}, .max = config.max_source_positions},
                           {.name = "length", .places = {{1, 1}}, .max = config.max_target_positions}}},
              {batch(2, 400, 4), batch(1, 3000, 7)});
}

/// oneDNN's operators are not those of the file.
struct NoOnednn {
  NoOnednn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~NoOnednn() { at::globalContext().setUserEnabledMkldnn(before); }
  bool before = at::globalContext().userEnabledMkldnn();
};

void write_small(const std::filesystem::path& folder) {
  torch::manual_seed(0);
  const NoOnednn plain;
  Exports exports(folder);
  add_gan(exports,
          {.n_mels = 16, .frames = 40, .latent = 6, .channels = 8, .seed_rows = 2, .seed_columns = 4});
  add_konkanivani(exports, "konkanivani", small_konkanivani(), 48);
  auto relative = small_konkanivani();
  relative.positions = kv::Positions::relative;
  relative.subsampling = 2;
  add_konkanivani(exports, "konkanivani_relative", relative, 48);
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("GAN and KonkaniVani, with its decoder, are exported with open sizes") {
  const looptorch::testing::TemporaryFolder folder;
  write_small(folder.path());
  CHECK(folder.entries() == 18);
}

TEST_CASE("one model and one example make the same bytes") {
  const looptorch::testing::TemporaryFolder folder;
  kv::KonkaniVani model(small_konkanivani());
  for (const std::string suffix : {".pt2", ".ts"}) {
    for (const std::string name : {"one", "two"}) {
      torch::manual_seed(3);
      kv::export_encoder(model, folder / (name + suffix));
    }
    CHECK(bytes_of(folder / ("one" + suffix)) == bytes_of(folder / ("two" + suffix)));
  }
}

TEST_CASE("for tests/export/python.sh: models of the examples", "[.write_exports]") {
  const char* folder = std::getenv("LOOPTORCH_EXPORTS");
  if (!folder) return;  // by a filter on files
  write_small(folder);
}

TEST_CASE("for tests/export/python.sh: models of the examples at real size", "[.write_real_exports]") {
  const char* folder = std::getenv("LOOPTORCH_EXPORTS");
  if (!folder) return;  // by a filter on files
  torch::manual_seed(0);
  const NoOnednn plain;
  Exports exports(folder);
  add_gan(exports, {});
  add_konkanivani(exports, "konkanivani", kv::original_size(100), 1600);
  add_vit(exports);
  add_whisper(exports);
}
