// SPDX-License-Identifier: MIT
// The reference values: tests/parity/audio_resample.py. Pure tones need none: their samples at any rate are
// known.
#include "support/precompiled.hpp"

#include <looptorch/audio/resample.hpp>

#include "support/reference.hpp"

#include <cmath>
#include <numbers>
#include <string>
#include <utility>

using Catch::Matchers::EndsWith;
using looptorch::UsageError;
using looptorch::audio::resample;
using looptorch::audio::Resampler;
using Rates = std::pair<std::int64_t, std::int64_t>;

namespace {

at::Tensor tone(double hz, std::int64_t rate, std::int64_t count, double phase = 0.4) {
  return (torch::arange(count, torch::kDouble) * (2 * std::numbers::pi * hz / double(rate)) + phase).sin();
}

at::Tensor noise(std::int64_t count) {
  at::Tensor samples_T = torch::empty({count});
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = 1664525 * state + 1013904223;
    samples_T.data_ptr<float>()[i] = float((int(state >> 16) - 32768)) / 32768;
  }
  return samples_T;
}

/// The loudest sample in dB of full scale, without what the ends disturb.
double peak_db(const at::Tensor& samples_T, std::int64_t end) {
  return 20 * std::log10(samples_T.slice(0, end, -end).abs().max().item<double>());
}

constexpr std::int64_t kEnd = 1200;  // longer than the filter at any of the rates below

}  // namespace

TEST_CASE("noise comes out as from scipy's polyphase filter with these coefficients, at the ends too") {
  const auto [from, to] = GENERATE(Rates{44100, 16000}, Rates{16000, 44100}, Rates{48000, 16000},
                                   Rates{8000, 16000}, Rates{22050, 16000}, Rates{16000, 14545});
  CAPTURE(from, to);
  const at::Tensor& expected_N =
      reference::tensors("audio_resample").at(std::to_string(from) + "_" + std::to_string(to));
  const at::Tensor samples_N = resample(noise(1000), from, to);
  REQUIRE(samples_N.sizes() == expected_N.sizes());
  CHECK(reference::difference(samples_N, expected_N) < 1e-4);
}

TEST_CASE("a tone in the band is the same tone at the new rate, without delay, within -80 dB") {
  const auto [from, to] = GENERATE(Rates{44100, 16000}, Rates{16000, 44100}, Rates{48000, 16000},
                                   Rates{8000, 48000}, Rates{16000, 17600}, Rates{48000, 44100});
  const double share = GENERATE(0.0, 0.01, 0.3, 0.77, 0.9);
  const double hz = share * double(std::min(from, to)) / 2;
  CAPTURE(from, to, hz);
  const Resampler resampler(from, to);
  const at::Tensor samples_N = resampler(tone(hz, from, 2 * from).to(torch::kFloat));
  CHECK(peak_db(samples_N - tone(hz, to, samples_N.numel()), kEnd) < -80);
}

TEST_CASE("a tone beyond the new band leaves an alias below -80 dB") {
  const auto [from, to] =
      GENERATE(Rates{44100, 16000}, Rates{48000, 16000}, Rates{48000, 44100}, Rates{17600, 16000});
  const double nyquist = double(to) / 2, above = double(from) / 2 - nyquist;
  const double hz = nyquist + GENERATE(0.0, 0.01, 0.1, 0.5, 0.99) * above;
  CAPTURE(from, to, hz);
  CHECK(peak_db(resample(tone(hz, from, 2 * from).to(torch::kFloat), from, to), kEnd) < -80);
}

TEST_CASE("a sweep from the new band's edge to the old one's leaves nothing above -80 dB") {
  const double from = 44100, low = 8000, high = 22050, seconds = 2;
  const at::Tensor t = torch::arange(std::int64_t(from * seconds), torch::kDouble) / from;
  const at::Tensor sweep_T = (2 * std::numbers::pi * (low * t + (high - low) / (2 * seconds) * t * t)).sin();
  CHECK(peak_db(resample(sweep_T.to(torch::kFloat), 44100, 16000), kEnd) < -80);
}

TEST_CASE("the images of a tone lie below -80 dB: up and down again gives the tone") {
  const double hz = GENERATE(100.0, 3600.0);
  const at::Tensor samples_T = tone(hz, 8000, 16000).to(torch::kFloat);
  CHECK(peak_db(resample(resample(samples_T, 8000, 44100), 44100, 8000) - samples_T, kEnd) < -80);
}

TEST_CASE("length is ceil(T * to / from), for the shortest clips too") {
  const auto [from, to] = GENERATE(Rates{44100, 16000}, Rates{16000, 44100}, Rates{3, 1}, Rates{1, 3},
                                   Rates{16000, 15999}, Rates{192000, 8000});
  const Resampler resampler(from, to);  // made once: the filter of 16000 to 15999 is long
  for (const std::int64_t count : {0, 1, 2, 3, 4, 440, 441, 442, 1000}) {
    CAPTURE(from, to, count);
    const std::int64_t expected = std::int64_t(std::ceil(double(count) * double(to) / double(from)));
    CHECK(resampler(torch::ones({count})).sizes() == at::IntArrayRef{expected});
    CHECK(resampler.length(count) == expected);
  }
}

TEST_CASE("beyond its ends a clip is silence, and a constant stays what it is between them") {
  const at::Tensor samples_N = resample(torch::full({9000}, 0.5F), 44100, 16000);
  CHECK(torch::allclose(samples_N.slice(0, 60, -60), torch::full({3146}, 0.5F), 0, 1e-6));
  const at::Tensor click_T = torch::zeros({441 * 9});
  click_T[441 * 4] = 1;
  const at::Tensor click_N = resample(click_T, 44100, 16000);
  CHECK(click_N.argmax().item<int64_t>() == 160 * 4);
  CHECK(reference::difference(click_N.slice(0, 160 * 4 - 60, 160 * 4 + 61),
                              click_N.slice(0, 160 * 4 - 60, 160 * 4 + 61).flip(0)) < 1e-6);
  CHECK(click_N.slice(0, 0, 160 * 4 - 60).eq(0).all().item<bool>());
  CHECK(click_N.slice(0, 160 * 4 + 61).eq(0).all().item<bool>());
}

TEST_CASE("clips of a batch do not touch each other") {
  const at::Tensor samples_BT = noise(6 * 5000).view({2, 3, 5000});
  const Resampler resampler(22050, 16000);
  const at::Tensor samples_BN = resampler(samples_BT);
  REQUIRE(samples_BN.sizes() == at::IntArrayRef{2, 3, 3629});
  CHECK(samples_BN.is_contiguous());
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      CHECK(reference::difference(samples_BN[i][j], resampler(samples_BT[i][j])) < 1e-6);
  const at::Tensor strided_TB = samples_BT.view({6, 5000}).t().contiguous();
  CHECK(resampler(strided_TB.t()).equal(samples_BN.view({6, 3629})));
  CHECK(resampler(torch::zeros({0, 5000})).sizes() == at::IntArrayRef{0, 3629});
}

TEST_CASE("equal rates give the samples, and samples are left as they were") {
  const at::Tensor samples_T = noise(1000), before_T = samples_T.clone();
  CHECK(resample(samples_T, 16000, 16000).is_same(samples_T));
  CHECK_FALSE(resample(samples_T.clone().requires_grad_(), 16000, 8000).requires_grad());
  resample(samples_T, 16000, 8000);
  CHECK(samples_T.equal(before_T));
}

TEST_CASE("wrong rates and samples are refused with their values") {
  CHECK_THROWS_WITH(resample(noise(10), 0, 16000), "Resampler: cannot resample from 0 Hz to 16000 Hz");
  CHECK_THROWS_AS(resample(noise(10), 16000, -1), UsageError);
  CHECK_THROWS_WITH(
      Resampler(192000, 191999),
      "Resampler: from 192000 Hz to 191999 Hz takes a filter of more than 16777216 coefficients; go by "
      "a rate between, or by one with a larger common divisor");
  CHECK_THROWS_AS(Resampler(std::numeric_limits<std::int64_t>::max(), 1), UsageError);
  CHECK_THROWS_AS(Resampler(1, std::numeric_limits<std::int64_t>::max()), UsageError);
  CHECK_THROWS_AS(Resampler(100'000, 1), UsageError);
  CHECK_THROWS_WITH(resample(torch::zeros({2, 5}, at::kShort), 16000, 8000),
                    EndsWith("expected float32 samples [..., T], got CPUShortType [2, 5]"));
  CHECK_THROWS_AS(resample(torch::tensor(1.0F), 16000, 8000), UsageError);
  CHECK_THROWS_AS(resample(at::Tensor(), 16000, 8000), UsageError);
}
