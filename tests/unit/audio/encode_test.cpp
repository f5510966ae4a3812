// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "signals.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

using namespace looptorch;
using audio::AudioError;
using audio::decode;
using audio::encode;
using audio::SampleFormat;
using Catch::Matchers::StartsWith;
using testing::TemporaryFolder;

namespace {

/// Longer than a block, in steps of 16 bits.
at::Tensor steps() { return signals::as_samples(signals::noise(150'000, 1)); }

}  // namespace

TEST_CASE("samples that a format has come back exactly, with their rate") {
  const TemporaryFolder folder;
  const auto [name, format] =
      GENERATE(std::pair{"a.wav", SampleFormat::pcm16}, std::pair{"a.wav", SampleFormat::pcm24},
               std::pair{"a.wav", SampleFormat::float32}, std::pair{"a.flac", SampleFormat::pcm16},
               std::pair{"A.FLAC", SampleFormat::pcm24}, std::pair{"A.Wav", SampleFormat::pcm16});
  CAPTURE(name, int(format));
  encode(folder / name, {steps(), 22050}, {.format = format});
  const audio::Waveform back = decode(folder / name);
  CHECK(back.sample_rate == 22050);
  CHECK(back.samples_T.equal(steps()));
  CHECK(folder.entries() == 1);
}

TEST_CASE("samples between come back within half a step") {
  const TemporaryFolder folder;
  torch::manual_seed(1);
  const at::Tensor samples_T = torch::rand({5000}) * 1.99 - 0.995;
  const auto apart = [&](const char* name, SampleFormat format) {
    encode(folder / name, {samples_T, 16000}, {.format = format});
    return reference::difference(decode(folder / name).samples_T, samples_T);
  };
  for (const char* name : {"a.wav", "a.flac"}) {
    CHECK(apart(name, SampleFormat::pcm16) <= 0x1p-16);
    CHECK(apart(name, SampleFormat::pcm16) > 0x1p-17);
    CHECK(apart(name, SampleFormat::pcm24) <= 0x1p-24);
  }
  CHECK(apart("a.wav", SampleFormat::float32) == 0);
}

TEST_CASE("what is beyond full scale is clipped, in float32 kept") {
  const TemporaryFolder folder;
  const at::Tensor loud_T = torch::tensor({0.0F, 1.0F, -1.0F, 1.5F, -7.0F, 1e30F});
  encode(folder / "a.wav", {loud_T, 8000});
  CHECK(decode(folder / "a.wav").samples_T.equal(loud_T.clamp(-1, 1 - 0x1p-15)));
  encode(folder / "a.flac", {loud_T, 8000}, {.format = SampleFormat::pcm24});
  CHECK(decode(folder / "a.flac").samples_T.equal(loud_T.clamp(-1, 1 - 0x1p-23)));
  encode(folder / "a.wav", {loud_T, 8000}, {.format = SampleFormat::float32});
  CHECK(decode(folder / "a.wav").samples_T.equal(loud_T));
}

TEST_CASE("strided samples and such with a gradient are written as they are, the same bytes each time") {
  const TemporaryFolder folder;
  const at::Tensor pairs = torch::stack({steps(), -steps()}, 1).requires_grad_();
  const auto format = GENERATE(SampleFormat::pcm16, SampleFormat::float32);
  encode(folder / "a.wav", {pairs.select(1, 1), 16000}, {.format = format});
  CHECK(decode(folder / "a.wav").samples_T.equal(-steps()));
  const std::string first = read_file(folder / "a.wav");
  encode(folder / "a.wav", {-steps(), 16000}, {.format = format});
  CHECK(read_file(folder / "a.wav") == first);
}

TEST_CASE("a file that cannot be written leaves the old one") {
  const TemporaryFolder folder;
  encode(folder / "a.wav", {steps(), 16000});
  at::Tensor bad_T = steps();
  bad_T[777] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(encode(folder / "a.wav", {bad_T, 16000}),
                    (folder / "a.wav").string() + ": sample 777 is not a finite number");
  CHECK_THROWS_AS(encode(folder / "a.wav", {bad_T, 16000}), AudioError);
  CHECK(decode(folder / "a.wav").samples_T.equal(steps()));
  CHECK(folder.entries() == 1);
  CHECK_THROWS_AS(encode(folder / "missing" / "a.wav", {steps(), 16000}), FileError);
  std::filesystem::create_directory(folder / "b.wav");
  CHECK_THROWS_WITH(encode(folder / "b.wav", {steps(), 16000}),
                    (folder / "b.wav").string() + ": exists and is not a regular file");
}

TEST_CASE("a file of a kind, rate or length that cannot be is refused by name") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(encode(folder / "a.mp3", {steps(), 16000}),
                    (folder / "a.mp3").string() + ": audio is written as .wav or .flac");
  CHECK_THROWS_AS(encode(folder / "wav", {steps(), 16000}), UsageError);
  CHECK_THROWS_WITH(encode(folder / "a.flac", {steps(), 16000}, {.format = SampleFormat::float32}),
                    (folder / "a.flac").string() + ": FLAC holds whole numbers only");
  CHECK_THROWS_WITH(encode(folder / "a.wav", {torch::zeros({2, 5}), 16000}),
                    (folder / "a.wav").string() +
                        ": expected 1 to 536870912 float32 samples [T] at 1 to 655350 Hz, got CPUFloatType "
                        "[2, 5] at 16000 Hz");
  const auto refuses = [&folder](const at::Tensor& samples, std::int64_t rate) {
    CHECK_THROWS_AS(encode(folder / "a.wav", {samples, rate}), UsageError);
  };
  refuses(torch::zeros({0}), 16000);
  refuses(torch::zeros({5}, at::kDouble), 16000);
  refuses(at::Tensor(), 16000);
  refuses(torch::zeros({1}).expand({(std::int64_t{1} << 29) + 1}), 16000);
  refuses(torch::zeros({5}), 0);
  refuses(torch::zeros({5}), 655351);
  CHECK(folder.entries() == 0);
}
