// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <spectrogram_gan_vit/pictures/attention_picture.hpp>
#include <spectrogram_gan_vit/pictures/line_chart.hpp>
#include <spectrogram_gan_vit/pictures/spectrogram_picture.hpp>
#include <spectrogram_gan_vit/vit/prediction.hpp>

#include <array>
#include <cmath>

using Catch::Contains;
using spectrogram_gan::attention_picture;
using spectrogram_gan::Curve;
using spectrogram_gan::line_chart;
using spectrogram_gan::picture_of;
using spectrogram_vit::Prediction;

namespace {

using Pixel = std::array<int, 3>;
constexpr Pixel kFirst{0, 114, 178}, kSecond{213, 94, 0};

/// The rows in which a column of a picture has a colour, from the top.
std::vector<std::int64_t> rows_of(const at::Tensor& pixels, std::int64_t column, const Pixel& colour) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < pixels.size(0); ++row) {
    bool is_colour = true;
    for (std::size_t c = 0; c < 3; ++c)
      is_colour &= pixels[row][column][static_cast<std::int64_t>(c)].item<int>() == colour[c];
    if (is_colour) rows.push_back(row);
  }
  return rows;
}

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

TEST_CASE("A chart has its curves where the values are, a legend, and no points that are not finite") {
  const auto pixels = line_chart({{"up", {0, 50, 100}, {0, 1, 2}}, {"down", {0, 100}, {2, 0}}},
                                 {.width = 400, .height = 300, .x_name = "step", .title = "a chart"});
  REQUIRE(pixels.sizes() == at::IntArrayRef({300, 400, 3}));
  // 0 to 100 lie on the columns 60 to 380, 0 to 2 on the rows 264 to 50.
  const auto left = rows_of(pixels, 61, kFirst), right = rows_of(pixels, 379, kFirst);
  REQUIRE(!left.empty());
  REQUIRE(!right.empty());
  CHECK(left.back() > 260);
  CHECK(right.front() < 54);
  CHECK(rows_of(pixels, 61, kSecond).back() < 54 + 2);
  CHECK(std::abs(rows_of(pixels, 220, kFirst).front() - 157) < 3);
  CHECK(rows_of(pixels, 70, kFirst).front() < 50);  // the legend's stroke
  // Text is drawn: the title's ink lies above all.
  CHECK((pixels.slice(0, 8, 15).slice(1, 60, 110) < 100).any().item<bool>());

  const double none = std::nan("");
  const auto gap = line_chart({{"up", {0, 50, 100}, {0, none, 2}}}),
             without = line_chart({{"up", {0, 100}, {0, 2}}});
  CHECK(gap.equal(without));
  CHECK_NOTHROW(line_chart({{"one point", {3}, {7}}}));
  CHECK_THROWS_WITH(line_chart({{"none", {0, 1}, {none, none}}}), "line_chart: no curve has a finite point");
  CHECK_THROWS_WITH(line_chart({}), Contains("no curve"));
  CHECK_THROWS_WITH(line_chart({{"odd", {0, 1}, {0}}}), "line_chart: \"odd\" has 2 values of x and 1 of y");
  CHECK_THROWS_WITH(line_chart({{"a", {0}, {0}}}, {.width = 10}), Contains("10 x 400 pixels"));
}

TEST_CASE("Ticks are 1, 2 or 5 times a power of 10 and cover the values") {
  const auto axis = [](double low, double high) {
    const auto [from, to, tick] = spectrogram_gan::detail::axis_of(low, high, 6);
    CHECK(from <= low);
    CHECK(to >= high);
    return std::array{from, to, tick};
  };
  CHECK(axis(0, 1200) == std::array{0.0, 1200.0, 200.0});
  CHECK(axis(-0.3, 0.9)[2] == Approx(0.2));
  CHECK(axis(0, 5)[2] == 1);
  CHECK(axis(3, 3)[1] > 3);
  CHECK(spectrogram_gan::detail::tick_text(-1e-17, 0.2) == "0");
  CHECK(spectrogram_gan::glyph_of('A') == spectrogram_gan::glyph_of('a'));
  CHECK(spectrogram_gan::glyph_of('&') == spectrogram_gan::glyph_of('?'));
}

TEST_CASE("A prediction is a line to read, of CSV, or of JSON, with what was done to the file") {
  const Prediction heard{
      .file = "a, \"b\".mp3", .valence = -0.25, .arousal = 0.5, .seconds = 12.34, .sample_rate = 8000};
  const auto note = remark(12.34, 8000);
  CHECK(note == "12.3 s, padded to 30 s; resampled from 8000 Hz, so that nothing is heard above 4000 Hz");
  CHECK(remark(30, 22050).empty());
  CHECK(remark(30, 44100) == "resampled from 44100 Hz");
  CHECK(remark(2, 22050) == "2.0 s, padded to 30 s");
  CHECK(line_of(heard, note, "text") == "a, \"b\".mp3\tvalence -0.25\tarousal +0.50\t(" + note + ")");
  CHECK(line_of(heard, "", "text") == "a, \"b\".mp3\tvalence -0.25\tarousal +0.50");
  CHECK(line_of(heard, note, "csv") == "\"a, \"\"b\"\".mp3\",-0.2500,0.5000,12.34,8000,\"" + note + "\"");
  const auto json = looptorch::Json::parse(line_of(heard, note, "json"));
  CHECK(json.at("file").as_string() == "a, \"b\".mp3");
  CHECK(json.at("valence").as_number() == -0.25);
  CHECK(json.at("sample_rate").as_int() == 8000);
  CHECK(json.at("remark").as_string() == note);
}
