// SPDX-License-Identifier: MIT
// --weights of gan_train and vit_train: names of PyTorch's spectral norms and of transformers, and what is
// filled in. Recorded by tests/parity/first_weights.py.
#include "support/precompiled.hpp"

#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/state/weights/torch_files/torch_checkpoint.hpp>

#include <spectrogram_gan_vit/gan/first_weights.hpp>
#include <spectrogram_gan_vit/vit/hugging_face.hpp>

#include <filesystem>
#include <string>

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;
namespace sv = spectrogram_vit;

namespace {

const fs::path kPlayers = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/first_weights/gan_players.pt";

sg::Gan small_gan() {
  auto config = sg::small_size();
  config.channels = 8;
  return sg::Gan(config);
}

}  // namespace

TEST_CASE(
    "layers under either of PyTorch's spectral norms give a discriminator's weights and singular vectors") {
  const auto gan = small_gan();
  const auto report = app::load_first_weights(*gan, {.file = kPlayers}, sg::players_of(gan));
  CHECK(report.names.surplus.empty());
  const auto theirs = lt::load_torch_checkpoint(kPlayers, "discriminator").tensors;
  const auto ours = lt::state_dict(gan->discriminator);
  for (const std::string end : {".weight", ".norm.u", ".norm.v"})
    for (const std::string layer : {"convolutions.0", "convolutions.1"})
      CHECK(report.has("discriminator." + layer + end));
  CHECK(ours.at("convolutions.0.weight").equal(theirs.at("convolutions.0.parametrizations.weight.original")));
  CHECK(ours.at("convolutions.0.norm.v").equal(theirs.at("convolutions.0.parametrizations.weight.0._v")));
  CHECK(ours.at("convolutions.1.weight").equal(theirs.at("convolutions.1.weight_orig")));
  CHECK(ours.at("convolutions.1.norm.u").equal(theirs.at("convolutions.1.weight_u")));
  CHECK(gan->generator->output->bias.item<float>() == 0.25f);
}

TEST_CASE("weights without singular vectors get their own, so that their norm is 1 from the first step") {
  const auto gan = small_gan();
  lt::TensorMap tensors{{"discriminator.output.weight", at::randn({1, 8}) * 7},
                        {"discriminator.hidden.weight", at::randn({8, 4})}};
  const auto given = tensors.at("discriminator.output.weight");
  sg::translate_players(gan, tensors);
  REQUIRE(tensors.contains("discriminator.output.norm.u"));
  const auto sigma = at::dot(tensors.at("discriminator.output.norm.u"),
                             at::mv(given, tensors.at("discriminator.output.norm.v")));
  CHECK(sigma.item<double>() == Approx(given.norm().item<double>()).epsilon(1e-4));
  CHECK(sg::name_from_spectral_norm("a.weight_v") == "a.norm.v");
  CHECK(sg::name_from_spectral_norm("a.weight") == "a.weight");
}

TEST_CASE("names of transformers' ViT are a ViT's, and its own stay") {
  CHECK(sv::name_from_classifier("vit.layernorm.bias") == "backbone.norm.bias");
  CHECK(sv::name_from_classifier("vit.encoder.layer.3.attention.attention.query.weight") ==
        "backbone.blocks.3.query.weight");
  CHECK(sv::name_from_classifier("classifier.weight") == "head.weight");
  lt::TensorMap tensors{{"backbone.norm.bias", at::ones({1})}, {"classifier.bias", at::ones({2})}};
  CHECK(sv::translate_from_classifier(tensors).empty());
  CHECK(tensors.contains("backbone.norm.bias"));
  CHECK(tensors.contains("head.bias"));
}
