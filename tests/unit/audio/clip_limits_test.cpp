// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

using looptorch::Utterance;
using looptorch::audio::ClipError;
using looptorch::audio::ClipLengths;
using looptorch::audio::ClipLimits;
using looptorch::audio::ClipOutside;
using looptorch::audio::ClipTooLong;
using looptorch::testing::TemporaryFolder;

static_assert(std::is_base_of_v<ClipError, ClipTooLong> && std::is_base_of_v<looptorch::Error, ClipError>);

TEST_CASE("A clip may be as long as its limit and slack, and is refused by its file and both lengths") {
  const ClipLimits limits{.max_seconds = 2, .slack_seconds = 0.25};
  CHECK_NOTHROW(limits.check("a.wav", 2.25));
  CHECK_THROWS_AS(limits.check("a.wav", 2.5), ClipTooLong);
  CHECK_THROWS_WITH(limits.check("a.wav", 2.5), "a.wav: lasts 2.5 s, longer than 2 s");
  CHECK_THROWS_WITH((ClipLimits{.max_seconds = 30, .called = "the 30 s of a model"}.check("b.wav", 31)),
                    "b.wav: lasts 31 s, longer than the 30 s of a model");
  CHECK(ClipLimits{}.allow(1e9));
}

TEST_CASE("A header gives a clip's length, that of its part of a recording, or what is wrong") {
  const TemporaryFolder folder;
  looptorch::audio::encode(folder / "a.wav", {at::full({24'032}, 0.01F), 8000});
  const ClipLengths seconds_of;
  const auto clip = [&](std::optional<double> start, std::optional<double> end) {
    return Utterance{
        .audio_filepath = folder / "a.wav", .text = "a", .duration = 3, .start = start, .end = end};
  };
  CHECK(seconds_of(clip({}, {})) == 3.004);
  CHECK(seconds_of(clip(1, {})) == Approx(2.004));
  CHECK(seconds_of(clip(1, 2.5)) == 1.5);
  CHECK_THROWS_AS(seconds_of(clip(5, 6)), ClipOutside);
  CHECK_THROWS_WITH(seconds_of(clip(5, 6)),
                    Catch::Matchers::EndsWith("a.wav: lasts 3.004 s, and the clip begins at 5 s"));
  CHECK_THROWS_AS(seconds_of(clip(0.5, 0.50001)), looptorch::audio::ClipError);
  CHECK_THROWS_WITH(seconds_of(clip(0.5, 0.50001)),
                    Catch::Matchers::EndsWith("a.wav: no sample lies between 0.5 s and 0.50001 s"));
  CHECK(seconds_of(clip(0.5, 0.500125)) == Approx(0.000125));
  std::filesystem::resize_file(folder / "a.wav", 20'000);
  CHECK_THROWS_AS(seconds_of(clip({}, {})), looptorch::audio::AudioError);
  CHECK_THROWS_AS(seconds_of({.audio_filepath = folder / "none.wav", .text = "a"}), looptorch::FileError);
}

TEST_CASE(
    "A clip that ends more than a tenth of a second behind its file is outside, a rounded end is the file's") {
  const TemporaryFolder folder;
  looptorch::audio::encode(folder / "a.wav", {at::full({24'000}, 0.01F), 8000});
  const ClipLengths seconds_of;
  Utterance clip{.audio_filepath = folder / "a.wav", .text = "a", .start = 1, .end = 3.1};
  CHECK(seconds_of(clip) == 2);
  clip.end = 3.11;
  CHECK_THROWS_AS(seconds_of(clip), ClipOutside);
  CHECK_THROWS_WITH(seconds_of(clip),
                    Catch::Matchers::EndsWith("a.wav: lasts 3 s, and the clip ends at 3.11 s"));
  Utterance whole{.audio_filepath = folder / "a.wav", .text = "a", .duration = 3.1};
  CHECK(seconds_of(whole) == 3);
  whole.duration = 12;
  CHECK_THROWS_AS(seconds_of(whole), ClipOutside);
  CHECK_THROWS_WITH(seconds_of(whole),
                    Catch::Matchers::EndsWith("a.wav: lasts 3 s, and its line says that it lasts 12 s"));
  whole.duration = 0.5;  // too short: the file is decoded
  CHECK(seconds_of(whole) == 3);
}

TEST_CASE("A recording that is cut into clips is looked at once, by whichever thread comes first") {
  const TemporaryFolder folder;
  looptorch::audio::encode(folder / "a.wav", {at::full({16'000}, 0.01F), 8000});
  const ClipLengths seconds_of;
  const Utterance first{.audio_filepath = folder / "a.wav", .text = "a", .start = 0, .end = 1};
  const Utterance second{.audio_filepath = folder / "a.wav", .text = "b", .start = 1.5};
  CHECK(seconds_of(first) == 1);
  std::filesystem::remove(folder / "a.wav");
  std::vector<double> seconds(4);
  {
    std::vector<std::jthread> threads;
    for (double& one : seconds) threads.emplace_back([&] { one = seconds_of(second); });
  }
  CHECK(seconds == std::vector<double>(4, 0.5));
}
