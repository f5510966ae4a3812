// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/whisper/reference.hpp"

#include <whisper/clips/encoded_clips.hpp>

#include <vector>

using whisper::ClipEncoder;
using whisper::ClipMels;
using whisper::EncodedClips;

namespace {

/// Two clips of 0.3 s, and how a tiny model transcribes them.
struct Clips {
  Clips() {
    for (const double pitch : {0.1, 0.3}) {
      const auto file = folder / (std::to_string(pitch) + ".wav");
      looptorch::audio::encode(file, {0.4 * (at::arange(4800, at::kFloat) * pitch).sin(), 16000});
      utterances.push_back({.audio_filepath = file, .text = "a", .duration = 0.3});
    }
  }
  [[nodiscard]] ClipMels mels() const { return {utterances, {.mel_bins = 6, .max_seconds = 0.4}}; }

  looptorch::testing::TemporaryFolder folder;
  std::vector<looptorch::Utterance> utterances;
};

}  // namespace

TEST_CASE("A clip's states are those that the encoder gives for its frames, on the CPU without gradients") {
  const Clips clips;
  auto model = whisper_test::tiny_model();
  const EncodedClips encoded(clips.mels(), ClipEncoder(model));
  CHECK(encoded.size() == 2);
  CHECK(encoded.path(1) == clips.utterances[1].audio_filepath);
  CHECK(encoded.identity(1) == clips.mels().identity(1));
  CHECK(encoded.identity(0) != encoded.identity(1));
  for (const std::int64_t i : {0, 1}) {
    const auto states = encoded.get(i);
    CHECK(states.sizes() == at::IntArrayRef({20, 16}));
    CHECK_FALSE(states.requires_grad());
    CHECK(torch::allclose(states, model->encoder()(clips.mels().get(i).unsqueeze(0))[0], 1e-4, 1e-5));
  }
}

TEST_CASE("With autocast the encoder computes in its type, and nothing of it stays behind") {
  const Clips clips;
  auto model = whisper_test::tiny_model();
  const auto mel = clips.mels().get(0);
  const auto wide = ClipEncoder(model)(mel), narrow = ClipEncoder(model, at::kBFloat16)(mel);
  CHECK_FALSE(narrow.to(at::kFloat).equal(wide));
  CHECK(torch::allclose(narrow.to(at::kFloat), wide, 0.1, 0.1));
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST_CASE("The identity is that of the encoder's weights and type, not of the decoder's") {
  auto model = whisper_test::tiny_model();
  const auto identity = ClipEncoder(model).identity();
  CHECK(ClipEncoder(whisper_test::tiny_model()).identity() == identity);
  CHECK(ClipEncoder(model, at::kFloat).identity() == identity);
  CHECK(ClipEncoder(model, at::kBFloat16).identity() != identity);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->decoder()->parameters()) parameter.add_(1);
  CHECK(ClipEncoder(model).identity() == identity);
  model->encoder()->parameters().back().view(-1)[0] += 1e-3;
  CHECK(ClipEncoder(model).identity() != identity);
}
