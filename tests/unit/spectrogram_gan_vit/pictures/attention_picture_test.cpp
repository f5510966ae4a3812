// SPDX-License-Identifier: MIT
// Tests spectrogram_gan_vit/vit: prediction
#include "support/precompiled.hpp"

#include <spectrogram_gan_vit/pictures/attention_picture.hpp>
#include <spectrogram_gan_vit/pictures/spectrogram_picture.hpp>
#include <spectrogram_gan_vit/vit/prediction.hpp>

#include <cstdint>
#include <string>

using spectrogram_gan::attention_picture;
using spectrogram_gan::picture_of;
using spectrogram_vit::Prediction;

namespace {

std::string remark(double seconds, std::int64_t rate) {
  return spectrogram_vit::remark_on({.seconds = seconds, .sample_rate = rate}, {30, 22050}, 8000);
}

}  // namespace

TEST_CASE("A picture of attention is bright in the patches that were looked at, low pitches below") {
  const auto spectrogram_MF = at::full({16, 64}, 2.5);
  const auto plain = picture_of(spectrogram_MF, 1).to(at::kFloat);
  auto weights = at::zeros({4, 8});
  weights[0][7] = 0.2;  // the lowest pitches, at the end
  const auto pixels = attention_picture(spectrogram_MF, weights, 1).to(at::kFloat);
  REQUIRE(pixels.sizes() == at::IntArrayRef({16, 64, 3}));
  CHECK(pixels[15][63].equal(plain[15][63]));
  CHECK(pixels[0][63].allclose(plain[0][63] / 6, 0, 1));
  CHECK(pixels[15][0].allclose(plain[15][0] / 6, 0, 1));
  CHECK(attention_picture(spectrogram_MF, at::full({4, 8}, 0.01), 1).to(at::kFloat).equal(plain));
  CHECK(attention_picture(spectrogram_MF, at::ones({1, 8})).sizes() == at::IntArrayRef({32, 64, 3}));
  CHECK_THROWS_WITH(attention_picture(spectrogram_MF, at::ones({8})),
                    "attention_picture: expected weights [H, W], got [8]");
}

TEST_CASE("A prediction is a line to read, of CSV, or of JSON, with what was done to the file") {
  const Prediction prediction{
      .file = "a, \"b\".mp3", .valence = -0.25, .arousal = 0.5, .seconds = 12.34, .sample_rate = 8000};
  const auto note = remark(12.34, 8000);
  CHECK(note == "12.3 s, padded to 30 s; resampled from 8000 Hz, so that it has nothing above 4000 Hz");
  CHECK(remark(30, 22050).empty());
  CHECK(remark(30, 44100) == "resampled from 44100 Hz");
  CHECK(remark(2, 22050) == "2.0 s, padded to 30 s");
  CHECK(line_of(prediction, note, "text") == "a, \"b\".mp3\tvalence -0.25\tarousal +0.50\t(" + note + ")");
  auto latin1 = prediction;
  latin1.file = "caf\xe9.mp3";
  CHECK(looptorch::Json::parse(line_of(latin1, "", "json")).at("file").as_string() == "caf\xEF\xBF\xBD.mp3");
  CHECK(line_of(prediction, "", "text") == "a, \"b\".mp3\tvalence -0.25\tarousal +0.50");
  CHECK(line_of(prediction, note, "csv") ==
        "\"a, \"\"b\"\".mp3\",-0.2500,0.5000,12.34,8000,\"" + note + "\"");
  const auto json = looptorch::Json::parse(line_of(prediction, note, "json"));
  CHECK(json.at("file").as_string() == "a, \"b\".mp3");
  CHECK(json.at("valence").as_number() == -0.25);
  CHECK(json.at("sample_rate").as_int() == 8000);
  CHECK(json.at("remark").as_string() == note);
}
