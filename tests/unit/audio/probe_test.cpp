// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/audio/probe.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>

using looptorch::audio::probe;
using looptorch::testing::TemporaryFolder;

TEST_CASE("A probe tells what decoding gives, and refuses what shows to be damaged") {
  const TemporaryFolder folder;
  const auto samples_T = at::sin(at::arange(12'345) * 0.1F) * 0.5;
  for (const char* name : {"a.wav", "a.flac"}) {
    looptorch::audio::encode(folder / name, {samples_T, 8000});
    const auto info = probe(folder / name);
    CHECK(info.frames == 12'345);
    CHECK(info.sample_rate == 8000);
    CHECK(info.seconds() == 12'345.0 / 8000);
    CHECK(looptorch::audio::decode(folder / name).samples_T.size(0) == info.frames);
  }
  std::filesystem::resize_file(folder / "a.wav", 1000);
  CHECK_THROWS_AS(probe(folder / "a.wav"), looptorch::audio::AudioError);
  CHECK_THROWS_WITH(probe(folder / "a.wav"), Catch::Contains("cut off"));
  CHECK_THROWS_AS(probe(folder / "none.wav"), looptorch::FileError);
}
