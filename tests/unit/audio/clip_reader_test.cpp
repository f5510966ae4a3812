// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/clip_reader.hpp>
#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <limits>

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using looptorch::Utterance;
using looptorch::audio::ClipReader;
using looptorch::audio::ClipSilent;
using looptorch::audio::ClipTooLong;
using looptorch::audio::decode;
using looptorch::audio::OnLongClip;
using looptorch::testing::TemporaryFolder;

namespace {

std::filesystem::path write_tone(const std::filesystem::path& file, double seconds, double peak = 0.5,
                                 std::int64_t rate = 16000) {
  const auto count = static_cast<std::int64_t>(seconds * static_cast<double>(rate));
  looptorch::audio::encode(file, {at::sin(at::arange(count, at::kFloat) * 0.3F) * peak, rate});
  return file;
}

}  // namespace

TEST_CASE("A clip is what decoding its part of the file gives, at the reader's rate") {
  const TemporaryFolder folder;
  const auto file = write_tone(folder / "a.flac", 3, 0.5, 8000);
  const ClipReader reader({.sample_rate = 16000, .limits = {.max_seconds = 3}});
  CHECK(reader(file).equal(decode(file, {.sample_rate = 16000}).samples_T));
  CHECK(reader(file, 0.5, 2).equal(decode(file, {.sample_rate = 16000, .start = 0.5, .end = 2}).samples_T));
  CHECK(reader(Utterance{.audio_filepath = file, .text = "x", .start = 0.5, .end = 2})
            .equal(reader(file, 0.5, 2)));
  CHECK(reader(Utterance{.audio_filepath = file, .text = "x", .start = 1}).size(0) == 32'000);
  CHECK(reader.options().sample_rate == 16000);
}

TEST_CASE("A clip that is too long is refused by the length that it would have") {
  const TemporaryFolder folder;
  const auto file = write_tone(folder / "long.wav", 40);
  const ClipReader reader({.limits = {.max_seconds = 2, .slack_seconds = 0.05}});
  CHECK_THROWS_AS(reader(file), ClipTooLong);
  CHECK_THROWS_WITH(reader(file), EndsWith("long.wav: lasts 40 s, longer than 2 s"));
  CHECK_THROWS_WITH(reader(file, 5), EndsWith("long.wav: lasts 35 s, longer than 2 s"));
  CHECK_THROWS_WITH(reader(file, 1, 33), EndsWith("long.wav: lasts 32 s, longer than 2 s"));
  CHECK(reader(file, 1, 3.04).size(0) == 32'640);  // within the slack
  CHECK(reader(file, 38).size(0) == 32'000);
}

TEST_CASE("A reader that cuts uses the beginning of a clip that is too long") {
  const TemporaryFolder folder;
  const auto file = write_tone(folder / "long.wav", 5);
  const ClipReader reader({.limits = {.max_seconds = 2, .slack_seconds = 0.05}, .on_long = OnLongClip::cut});
  CHECK(reader(file).equal(decode(file, {.end = 2}).samples_T));
  CHECK(reader(file, 1).equal(decode(file, {.start = 1, .end = 3}).samples_T));
  CHECK(reader(file, 4).size(0) == 16'000);
}

TEST_CASE("A clip whose end or duration lies after its file's end is outside, not shortened") {
  const TemporaryFolder folder;
  const auto file = write_tone(folder / "a.wav", 3.5);
  const OnLongClip on_long = GENERATE(OnLongClip::refuse, OnLongClip::cut);
  const ClipReader reader({.limits = {.max_seconds = 2, .slack_seconds = 0.05}, .on_long = on_long});
  CHECK(reader(file, 3, 3.59).size(0) == 8000);
  CHECK_THROWS_AS(reader(file, 3, 3.65), looptorch::audio::ClipOutside);
  CHECK_THROWS_WITH(reader(file, 3, 20), EndsWith("a.wav: lasts 3.5 s, and the clip ends at 20 s"));
  CHECK_THROWS_AS(reader(file, 0, 20), looptorch::audio::ClipOutside);  // though it is too long as well
  CHECK_THROWS_AS(reader(Utterance{.audio_filepath = file, .text = "x", .duration = 12}),
                  looptorch::audio::ClipOutside);
  const auto brief = write_tone(folder / "b.wav", 1.5);
  CHECK(reader(Utterance{.audio_filepath = brief, .text = "x", .duration = 1.55}).size(0) == 24'000);
  CHECK_THROWS_WITH(reader(Utterance{.audio_filepath = brief, .text = "x", .duration = 1.7}),
                    EndsWith("b.wav: lasts 1.5 s, and its line says that it lasts 1.7 s"));
}

TEST_CASE("A clip that begins after its file's end is outside, and one of less than a sample is no clip") {
  const TemporaryFolder folder;
  const auto file = write_tone(folder / "a.wav", 2, 0.5, 8000);
  const ClipReader reader({.limits = {.max_seconds = 2}});
  for (const auto& [start, end] : {std::pair{12.0, 13.0}, {2.0, 2.05}})
    CHECK_THROWS_AS(reader(file, start, end), looptorch::audio::ClipOutside);
  CHECK_THROWS_AS(reader(file, 12), looptorch::audio::ClipOutside);
  CHECK_THROWS_WITH(reader(file, 12), EndsWith("a.wav: lasts 2 s, and the clip begins at 12 s"));
  CHECK_THROWS_WITH(decode(file, {.start = 12}), EndsWith("a.wav: holds 2 s; no sample lies after 12 s"));
  CHECK_THROWS_AS(reader(file, 1, 1.00001), looptorch::audio::ClipError);
  CHECK_THROWS_WITH(reader(file, 1, 1.00001),
                    EndsWith("a.wav: holds 2 s; no sample lies between 1 s and 1.00001 s"));
  CHECK_THROWS_AS(reader(file, 1.99999), looptorch::audio::ClipError);
  CHECK(reader(file, 1.9999).size(0) == 2);
}

TEST_CASE("Silence, damage and a missing file are errors of their own that name the file") {
  const TemporaryFolder folder;
  const ClipReader reader({});
  CHECK_THROWS_AS(reader(write_tone(folder / "silent.wav", 1, 0)), ClipSilent);
  CHECK_THROWS_WITH(reader(folder / "silent.wav"), EndsWith("silent.wav: is silent"));
  CHECK_THROWS_AS(reader(write_tone(folder / "quiet.wav", 1, 5e-5)), ClipSilent);
  CHECK_NOTHROW(reader(write_tone(folder / "soft.wav", 1, 1e-3)));
  CHECK_NOTHROW(ClipReader({.silence = 0})(folder / "silent.wav"));
  auto samples_T = decode(folder / "soft.wav").samples_T;
  looptorch::audio::encode(folder / "integers.wav", {samples_T * 32767e3, 16'000},
                           {.format = looptorch::audio::SampleFormat::float32});
  CHECK_THROWS_AS(reader(folder / "integers.wav"), looptorch::audio::ClipTooLoud);
  CHECK_THROWS_WITH(
      reader(folder / "integers.wav"),
      Contains("integers.wav: has samples of 32") && Contains("where 1 is full scale; were integers stored"));
  CHECK_NOTHROW(ClipReader({.loudest = 1e9})(folder / "integers.wav"));
  write_tone(folder / "cut.wav", 1);
  std::filesystem::resize_file(folder / "cut.wav", 1000);
  CHECK_THROWS_AS(reader(folder / "cut.wav"), looptorch::audio::AudioError);
  CHECK_THROWS_AS(reader(folder / "none.wav"), looptorch::FileError);
}

TEST_CASE("A reader that could read nothing is refused") {
  using looptorch::UsageError;
  CHECK_THROWS_AS(ClipReader({.sample_rate = 0}), UsageError);
  CHECK_THROWS_AS(ClipReader({.limits = {.max_seconds = 0}}), UsageError);
  CHECK_THROWS_AS(ClipReader({.limits = {.max_seconds = std::numeric_limits<double>::quiet_NaN()}}),
                  UsageError);
  CHECK_THROWS_AS(ClipReader({.limits = {.slack_seconds = -1}}), UsageError);
  CHECK_THROWS_WITH(
      ClipReader({.silence = -1}),
      "ClipReader: clips of up to inf s, give or take 0 s, at 16000 Hz, silent below -1 and no sound above 1000, "
      "cannot be read");
}
