// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/audio/signals.hpp"

#include <whisper/audio/log_mel_stream.hpp>

#include <cstdint>
#include <filesystem>

using looptorch::audio::LogMel, looptorch::audio::SampleStream;
using looptorch::testing::TemporaryFolder;
using whisper::find_loudest, whisper::LogMelStream;

namespace {

constexpr std::int64_t kRate = 16000, kHop = 160;

LogMelStream stream_of(const std::filesystem::path& file, std::int64_t bins = 80) {
  const auto loudest = find_loudest(SampleStream(file, kRate), bins, [](const at::Tensor&) {});
  return {SampleStream(file, kRate), {.mel_bins = bins, .peak = loudest.log_mel}};
}

}  // namespace

TEST_CASE("Windows of a stream are the frames that LogMel gives for the whole sound") {
  const TemporaryFolder folder;
  // 70 s: three blocks. The loudest second lies late, so that the beginning depends on what follows.
  const std::int64_t count = 70 * kRate + 77;
  auto samples = signals::as_samples(signals::music(count, kRate)) * 0.1;
  samples.narrow(0, 65 * kRate, kRate).mul_(5);
  const auto file = folder / "a.wav";
  looptorch::audio::encode(file, {samples.clone(), kRate});
  const auto decoded_T = looptorch::audio::decode(file, {.sample_rate = kRate}).samples_T;
  for (const std::int64_t bins : {80, 128}) {
    const LogMel log_mel({.mel_bins = bins, .max_samples = count + 30 * kRate});
    const auto whole_MF = log_mel(decoded_T);
    auto frames = stream_of(file, bins);
    for (const std::int64_t first : {0, 0, 1, 2345, 2999, 3000, 6500, 6990}) {
      CAPTURE(bins, first);
      const auto window_MF = frames(first, 3000);
      const auto expected_MF = whole_MF.narrow(1, first, 3000);
      CHECK((window_MF - expected_MF).abs().max().item<double>() < 1e-5);
    }
    CHECK_THROWS_AS(frames(6989, 10), looptorch::UsageError);
    CHECK(frames(7100, 10).equal(frames(7200, 1).expand({bins, 10})));  // silence
  }
}

TEST_CASE("A clip shorter than a window gives LogMel's frames, and its samples are seen once each") {
  const TemporaryFolder folder;
  const auto file = folder / "short.wav";
  looptorch::audio::encode(file, {signals::as_samples(signals::music(150, kRate)), kRate});
  const auto decoded_T = looptorch::audio::decode(file, {.sample_rate = kRate}).samples_T;
  at::Tensor seen_T;
  const auto loudest =
      find_loudest(SampleStream(file, kRate), 80, [&](const at::Tensor& samples) { seen_T = samples; });
  CHECK(seen_T.equal(decoded_T));
  CHECK(loudest.samples == 150);
  CHECK(loudest.sample == decoded_T.abs().max().item<float>());
  CHECK((stream_of(file)(0, 3000) - LogMel()(decoded_T)).abs().max().item<double>() < 1e-5);

  std::int64_t seen = 0;
  looptorch::audio::encode(folder / "long.wav", {at::full({65 * kRate}, 0.25F), kRate});
  const auto even = find_loudest(SampleStream(folder / "long.wav", kRate), 80,
                                 [&](const at::Tensor& samples) { seen += samples.numel(); });
  CHECK(seen == 65 * kRate);
  CHECK(even.sample == 0.25F);
}

TEST_CASE("Digital silence has the features of digital silence") {
  const TemporaryFolder folder;
  looptorch::audio::encode(folder / "silent.wav", {at::zeros({2 * kRate}), kRate});
  CHECK(stream_of(folder / "silent.wav")(0, 10 * kHop).equal(at::full({80, 10 * kHop}, -1.5F)));
}

TEST_CASE("A stream of frames refuses another rate, and to go without a peak") {
  const TemporaryFolder folder;
  looptorch::audio::encode(folder / "a.wav", {at::full({8000}, 0.5F), 8000});
  CHECK_THROWS_WITH(LogMelStream(SampleStream(folder / "a.wav"), {.peak = 1}),
                    Catch::Contains("samples at 8000 Hz with a peak of 1 cannot be made"));
  CHECK_THROWS_AS(LogMelStream(SampleStream(folder / "a.wav", kRate), {}), looptorch::UsageError);
}
