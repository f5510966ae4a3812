// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/audio/sample_stream.hpp>

#include "signals.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

using Catch::Contains;
using looptorch::audio::AudioError, looptorch::audio::decode, looptorch::audio::SampleStream;
using looptorch::testing::TemporaryFolder;

namespace {

at::Tensor all_of(SampleStream stream, std::int64_t block) {
  std::vector<at::Tensor> parts;
  for (auto part = stream.next(block); part.numel() > 0; part = stream.next(block)) parts.push_back(part);
  CHECK(stream.position() == stream.length());
  return at::cat(parts);
}

}  // namespace

TEST_CASE("Blocks of a stream are what decoding the file at once gives, at its rate and others") {
  const TemporaryFolder folder;
  for (const char* name : {"a.wav", "a.flac"}) {
    const auto file = folder / name;
    looptorch::audio::encode(file, {signals::as_samples(signals::music(50'001, 22050)), 22050});
    for (const std::int64_t rate : {0, 22050, 16000, 44100, 8000}) {
      const auto whole_T = decode(file, {.sample_rate = rate}).samples_T;
      for (const std::int64_t block : {777, 16000, 100'000}) {
        CAPTURE(name, rate, block);
        const auto streamed_T = all_of(SampleStream(file, rate), block);
        REQUIRE(streamed_T.sizes() == whole_T.sizes());
        CHECK((streamed_T - whole_T).abs().max().item<double>() <= (rate == 0 || rate == 22050 ? 0 : 1e-6));
      }
    }
  }
}

TEST_CASE("A stream knows its length, and says nothing behind its end") {
  const TemporaryFolder folder;
  looptorch::audio::encode(folder / "a.wav", {at::full({1000}, 0.5F), 8000});
  SampleStream stream(folder / "a.wav", 16000);
  CHECK(stream.sample_rate() == 16000);
  CHECK(stream.length() == 2000);
  CHECK(stream.next(1500).numel() == 1500);
  CHECK(stream.position() == 1500);
  CHECK(stream.next(1500).numel() == 500);
  CHECK(stream.next(1500).numel() == 0);
  SampleStream rest(folder / "a.wav");
  CHECK(rest.next(100).numel() == 100);
  CHECK(rest.next(std::numeric_limits<std::int64_t>::max()).numel() == rest.length() - 100);
  CHECK(SampleStream(folder / "a.wav").sample_rate() == 8000);
}

TEST_CASE("A stream refuses what decode refuses") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(SampleStream(folder / "absent.wav"), looptorch::FileError);
  const auto samples = signals::as_samples(signals::music(30'000, 8000));
  looptorch::audio::encode(folder / "whole.wav", {samples, 8000});
  const auto bytes = looptorch::read_file(folder / "whole.wav");
  looptorch::write_file_atomically(folder / "cut.wav", bytes.substr(0, 20'000));
  CHECK_THROWS_WITH(SampleStream(folder / "cut.wav"), Contains("cut.wav: cut off"));
  CHECK_THROWS_AS(SampleStream(folder / "whole.wav", -1), looptorch::UsageError);

  // A FLAC that is cut announces its length all the same.
  looptorch::audio::encode(folder / "whole.flac", {samples, 8000});
  const auto packed = looptorch::read_file(folder / "whole.flac");
  looptorch::write_file_atomically(folder / "cut.flac", packed.substr(0, packed.size() / 2));
  SampleStream cut(folder / "cut.flac");
  CHECK_THROWS_AS(all_of(std::move(cut), 4000), AudioError);

  looptorch::audio::encode(folder / "float.wav", {samples, 8000}, {looptorch::audio::SampleFormat::float32});
  auto raw = looptorch::read_file(folder / "float.wav");
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(raw.data() + raw.size() - (30'000 - 25'000) * sizeof(float), &nan, sizeof nan);
  looptorch::write_file_atomically(folder / "nan.wav", raw);
  SampleStream stream(folder / "nan.wav");
  CHECK(stream.next(20'000).numel() == 20'000);
  CHECK_THROWS_WITH(stream.next(10'000), Contains("nan.wav: sample 25000 is not a finite number"));
}
