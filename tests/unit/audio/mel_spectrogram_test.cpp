// SPDX-License-Identifier: MIT
// The reference values: tests/parity/audio_mel_spectrogram.py.
// Tests audio/mel: device_constant, frame_blocks, mel_filters, mel_frames, mel_power
#include "support/precompiled.hpp"

#include <looptorch/audio/mel_spectrogram.hpp>

#include "signals.hpp"
#include "support/default_type.hpp"
#include "support/reference.hpp"

#include <cmath>
#include <limits>
#include <string>

using looptorch::UsageError;
using looptorch::audio::MelSpectrogram;
using looptorch::audio::MelSpectrogramOptions;
using looptorch::audio::MelUnit;

namespace {

at::Tensor music(std::int64_t count, double rate) { return signals::as_samples(signals::music(count, rate)); }

struct Case {
  std::string name;
  at::Tensor samples_T;
  MelSpectrogramOptions options;
  std::int64_t frames;
};

std::vector<Case> cases() {
  return {{"music", music(30 * 22050, 22050), {.min_hz = 20, .max_hz = 8000}, 1292},
          {"speech",
           signals::as_samples(signals::noise(20001, 2)),
           {.sample_rate = 16000, .window = 400, .hop = 160, .mel_bins = 40},
           126},
          {"odd",
           signals::as_samples(signals::noise(7000, 0)),
           {.sample_rate = 8000, .window = 255, .hop = 100, .mel_bins = 96, .min_hz = 50, .max_hz = 3800},
           70}};
}

at::Tensor kept(const at::Tensor& mel_MF) {
  return torch::cat({mel_MF.slice(1, 0, {}, 50), mel_MF.slice(1, 0, 3), mel_MF.slice(1, -3)}, 1);
}

}  // namespace

TEST_CASE("a mel spectrogram does not depend on the default type") {
  const at::Tensor samples_T = music(8000, 22050);
  const auto unit = GENERATE(MelUnit::power, MelUnit::decibels, MelUnit::z_score);
  const MelSpectrogramOptions options{.unit = unit};
  const at::Tensor expected_MF = MelSpectrogram(options)(samples_T);
  const auto type = GENERATE(at::kDouble, at::kHalf, at::kBFloat16);
  const DefaultType other(type);
  CHECK(MelSpectrogram(options)(samples_T).equal(expected_MF));
}

TEST_CASE("mel spectrograms equal librosa's within 1e-4, in every unit") {
  for (Case example : cases()) {
    const auto compare = [&](const std::string& unit) {
      const auto& [name, samples_T, options, frames] = example;
      CAPTURE(name, unit);
      const MelSpectrogram spectrogram(options);
      const at::Tensor mel_MF = spectrogram(samples_T);
      REQUIRE(mel_MF.sizes() == at::IntArrayRef{options.mel_bins, frames});
      CHECK(spectrogram.frames(samples_T.numel()) == frames);
      const auto& recorded = reference::tensors("audio_mel_spectrogram");
      const std::string key = name + "." + unit;
      const double scale = unit == "power" ? mel_MF.max().item<double>() : 1;
      CHECK(reference::difference(kept(mel_MF), recorded.at(key + ".frames")) / scale < 1e-4);
      CHECK(reference::difference(mel_MF.to(torch::kDouble).sum(1), recorded.at(key + ".sums")) /
                (scale * double(frames)) <
            1e-4);
    };
    example.options.unit = MelUnit::power;
    compare("power");
    example.options.unit = MelUnit::decibels;
    compare("decibels");
    example.options.unit = MelUnit::z_score;
    compare("zscore");
    example.options.unit = MelUnit::decibels;
    example.options.relative_to_max = false;
    example.options.range_db = 30;
    compare("absolute_30");
  }
}

TEST_CASE("a z-score has mean 0 and deviation 1, of each clip for itself; silence gives 0") {
  const MelSpectrogram spectrogram({.unit = MelUnit::z_score});
  const at::Tensor loud_T = music(50'000, 22050), quiet_T = loud_T * 0.01;
  const at::Tensor mel_BMF = spectrogram(torch::stack({loud_T, quiet_T, torch::zeros({50'000})}));
  REQUIRE(mel_BMF.sizes() == at::IntArrayRef{3, 128, 98});
  CHECK(mel_BMF.narrow(0, 0, 2).mean({1, 2}).abs().max().item<float>() < 1e-5);
  CHECK((mel_BMF.narrow(0, 0, 2).var(at::IntArrayRef{1, 2}, false) - 1).abs().max().item<float>() < 1e-4);
  CHECK(mel_BMF[2].eq(0).all().item<bool>());
  CHECK(mel_BMF[0].equal(spectrogram(loud_T)));
  CHECK(mel_BMF[1].equal(spectrogram(quiet_T)));
}

TEST_CASE("decibels fall as the power does, down to the range") {
  const at::Tensor samples_T = music(30'000, 22050);
  const MelSpectrogram absolute(
      {.relative_to_max = false, .range_db = std::numeric_limits<double>::infinity()});
  const at::Tensor full_MF = absolute(samples_T);
  CHECK(reference::difference(absolute(samples_T * 0.1), full_MF - 20) < 1e-3);
  CHECK(absolute(torch::zeros({5000})).eq(-100).all().item<bool>());
  const at::Tensor relative_MF = MelSpectrogram({.range_db = 25})(samples_T);
  CHECK(relative_MF.max().item<float>() == 0);
  CHECK(relative_MF.min().item<float>() == Approx(-25));
  CHECK(reference::difference(relative_MF, (full_MF - full_MF.max()).clamp_min(-25)) < 1e-5);
}

TEST_CASE("samples of a mel spectrogram are left as they were, strided ones are read right") {
  const MelSpectrogram spectrogram;
  const at::Tensor samples_T = music(9000, 22050), before_T = samples_T.clone();
  const at::Tensor mel_MF = spectrogram(samples_T);
  CHECK(samples_T.equal(before_T));
  CHECK(spectrogram(torch::stack({samples_T, before_T}, 1).select(1, 1)).equal(mel_MF));
  CHECK_FALSE(spectrogram(samples_T.clone().requires_grad_()).requires_grad());
  CHECK(spectrogram(torch::ones({1})).sizes() == at::IntArrayRef{128, 1});
}

TEST_CASE("wrong options and samples of a mel spectrogram are refused with their values") {
  CHECK_THROWS_WITH(
      MelSpectrogram({.hop = 0}),
      "MelSpectrogram: 128 mel bins of windows of 2048 every 0 samples at 22050 Hz; each is at least "
      "1, the window 2");
  CHECK_THROWS_AS(MelSpectrogram({.sample_rate = 0}), UsageError);
  CHECK_THROWS_AS(MelSpectrogram({.window = 1}), UsageError);
  CHECK_THROWS_AS(MelSpectrogram({.mel_bins = 0}), UsageError);
  CHECK_THROWS_WITH(MelSpectrogram({.sample_rate = 16000, .min_hz = 20, .max_hz = 8001}),
                    "MelSpectrogram: cannot span 20 to 8001 Hz of 8000 Hz");
  CHECK_THROWS_AS(MelSpectrogram({.min_hz = -1}), UsageError);
  CHECK_THROWS_AS(MelSpectrogram({.min_hz = 500, .max_hz = 500}), UsageError);
  CHECK_THROWS_AS(MelSpectrogram({.max_hz = std::nan("")}), UsageError);
  CHECK_THROWS_WITH(MelSpectrogram({.range_db = 0}),
                    "MelSpectrogram: a range of 0 dB; needed is more than 0");
  CHECK_THROWS_WITH(MelSpectrogram()(torch::zeros({2, 1, 400})),
                    "MelSpectrogram: expected float32 samples [T] or [B, T], got CPUFloatType [2, 1, 400]");
  CHECK_THROWS_AS(MelSpectrogram()(torch::zeros({0})), UsageError);
  CHECK_THROWS_AS(MelSpectrogram()(torch::zeros({5}, at::kDouble)), UsageError);
  CHECK_THROWS_AS(MelSpectrogram()(at::Tensor()), UsageError);
}
