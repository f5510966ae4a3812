// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/exported/exported_model.hpp>

#include "support/temporary_folder.hpp"
#include "unit/whisper/reference.hpp"

#include <whisper/formats/torch_export.hpp>

#include <cstdint>

namespace {

whisper::Whisper small_model() {
  auto config = whisper_test::tiny_model()->config();
  config.max_source_positions = 30;
  torch::manual_seed(3);
  whisper::Whisper model(config);
  model->eval();
  return model;
}

}  // namespace

TEST_CASE("Encoder and decoder are two files that compute what the model does, at other sizes too") {
  auto model = small_model();
  const auto& config = model->config();
  const looptorch::testing::TemporaryFolder folder;
  whisper::save_torch_export(folder.path(), model);
  CHECK(folder.entries() == 2);
  const torch::NoGradGuard no_grad;
  looptorch::ExportedModel encoder(folder / "encoder.pt2"), decoder(folder / "decoder.pt2");
  CHECK(encoder->inputs().at(0).name == "mel");
  CHECK(decoder->inputs().at(0).name == "tokens");
  CHECK(decoder->inputs().at(1).name == "states");
  for (const auto& [clips, positions, tokens] : {std::tuple{1, 3, 1}, std::tuple{3, 30, 12}}) {
    const auto mel = at::randn({clips, config.num_mel_bins, 2 * positions});
    const auto states = model->encoder()(mel);
    CHECK(torch::allclose(encoder->forward(mel).at(0), states, 1e-4, 1e-5));
    const auto ids = at::randint(config.vocab_size, {clips, tokens}, at::kLong);
    const auto scores = model->decoder()->logits(model->decoder()(ids, states));
    CHECK(torch::allclose(decoder->forward(ids, states).at(0), scores, 1e-4, 1e-5));
  }
  const auto too_long = at::zeros({1, 13}, at::kLong);
  CHECK_THROWS_AS(decoder->forward(too_long, at::zeros({1, 3, 16})), looptorch::UsageError);
}

TEST_CASE(
    "A folder whose export ended early has no decoder, not that of another model beside a new encoder") {
  auto model = small_model();
  const looptorch::testing::TemporaryFolder folder;
  whisper::save_torch_export(folder.path(), model);
  model->decoder()->named_parameters()["embed_positions.weight"].set_data(at::zeros({0, 16}));
  CHECK_THROWS(whisper::save_torch_export(folder.path(), model));
  CHECK(folder.entries() == 1);
}
