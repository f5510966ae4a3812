// SPDX-License-Identifier: MIT
// The reference values: tests/parity/audio_griffin_lim.py.
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/operators_called.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "unit/audio/signals.hpp"

#include <spectrogram_gan_vit/sound/griffin_lim.hpp>
#include <spectrogram_gan_vit/sound/mel_inverse.hpp>

#include <cmath>
#include <limits>

using looptorch::UsageError;
using looptorch::audio::MelSpectrogram;
using looptorch::audio::MelSpectrogramOptions;
using looptorch::audio::MelUnit;
using spectrogram_gan::GriffinLim;
using spectrogram_gan::MelInverse;

namespace {

/// The settings of the music emotion recipe.
constexpr MelSpectrogramOptions kMusic{.min_hz = 20, .max_hz = 8000, .unit = MelUnit::power};

at::Tensor music() { return signals::as_samples(signals::music(2 * 22050, 22050)); }

at::Tensor filters() { return looptorch::audio::slaney_mel_filters(128, 2048, 22050, 20, 8000); }

double recorded(const char* name) { return reference::tensors("audio_griffin_lim").at(name).item<double>(); }

double distance(const at::Tensor& actual, const at::Tensor& wanted) {
  return ((actual - wanted).norm() / wanted.norm()).item<double>();
}

}  // namespace

TEST_CASE("the inverse of a mel spectrogram has that mel spectrogram, more nearly than librosa's") {
  const at::Tensor mel_MF = MelSpectrogram(kMusic)(music());
  const at::Tensor magnitude_KF = MelInverse(kMusic)(mel_MF);
  REQUIRE(magnitude_KF.sizes() == at::IntArrayRef{1025, mel_MF.size(1)});
  CHECK(magnitude_KF.ge(0).all().item<bool>());
  const at::Tensor again_MF = filters().matmul(magnitude_KF.square());
  CHECK(distance(again_MF, mel_MF) < 0.5 * recorded("mel.spectrum_distance"));
  const at::Tensor apart = (10 * ((again_MF + 1e-10) / (mel_MF + 1e-10)).log10()).abs();
  CHECK(apart.mean().item<double>() < 0.2 * recorded("mel.spectrum_decibels"));
  CHECK(magnitude_KF.slice(0, 744).eq(0).all().item<bool>());  // beyond 8000 Hz
}

TEST_CASE("a mel spectrogram becomes sound that has it, as nearly as librosa's") {
  const at::Tensor mel_MF = MelSpectrogram(kMusic)(music());
  const at::Tensor samples_T = GriffinLim()(MelInverse(kMusic)(mel_MF), 0, 2 * 22050);
  CHECK(distance(MelSpectrogram(kMusic)(samples_T), mel_MF) < recorded("mel.sound_distance"));
}

TEST_CASE("z-scores, as a generator draws them, become a file whose z-scores are those") {
  const looptorch::testing::TemporaryFolder folder;
  MelSpectrogramOptions options = kMusic;
  options.unit = MelUnit::z_score;
  const at::Tensor z_MF = MelSpectrogram(options)(music());
  MelSpectrogramOptions decibels = options;
  decibels.unit = MelUnit::decibels;
  const at::Tensor magnitude_KF = MelInverse(decibels)(z_MF * 15 - 40);
  const at::Tensor samples_T = GriffinLim()(magnitude_KF, 1);
  looptorch::audio::encode(folder / "drawn.wav", {0.5 * samples_T / samples_T.abs().max(), 22050});
  const auto sound = looptorch::audio::decode(folder / "drawn.wav");
  CHECK(sound.sample_rate == 22050);
  const at::Tensor again_MF = MelSpectrogram(options)(sound.samples_T);
  REQUIRE(again_MF.sizes() == z_MF.sizes());
  CHECK((again_MF * z_MF).mean().item<double>() > 0.9);  // their correlation
  CHECK((again_MF - z_MF).abs().mean().item<double>() < 0.2);
}

TEST_CASE("each iteration brings the mel power nearer") {
  const at::Tensor mel_MF = MelSpectrogram(kMusic)(music());
  double last = 1;
  for (const std::int64_t iterations : {1, 3, 10, 30, 100}) {
    const at::Tensor magnitude_KF = MelInverse(kMusic, iterations)(mel_MF);
    const double now = distance(filters().matmul(magnitude_KF.square()), mel_MF);
    CHECK(now < last);
    last = now;
  }
  CHECK(last < 0.005);
}

TEST_CASE("a flat spectrum is found at once, where filters cover it") {
  const at::Tensor mel_MF = filters().sum(1, true).expand({128, 3}) * 4;
  const at::Tensor magnitude_KF = MelInverse(kMusic, 1)(mel_MF);
  const at::Tensor covered_K = filters().sum(0).gt(0);
  CHECK(reference::difference(magnitude_KF, 2 * covered_K.unsqueeze(1).expand({1025, 3})) < 1e-5);
}

TEST_CASE("decibels give what their power gives; relative to the maximum, at another loudness") {
  const at::Tensor samples_T = music(), mel_MF = MelSpectrogram(kMusic)(samples_T);
  MelSpectrogramOptions decibels = kMusic;
  decibels.unit = MelUnit::decibels;
  const at::Tensor relative_KF = MelInverse(decibels)(MelSpectrogram(decibels)(samples_T));
  decibels.relative_to_max = false;
  const at::Tensor absolute_KF = MelInverse(decibels)(MelSpectrogram(decibels)(samples_T));
  CHECK(distance(absolute_KF, MelInverse(kMusic)(mel_MF)) < 1e-3);
  CHECK(distance(relative_KF * mel_MF.max().sqrt(), absolute_KF) < 1e-3);
}

TEST_CASE("mel spectrograms of a batch are inverted as each alone, silence to silence") {
  const at::Tensor mel_MF = MelSpectrogram(kMusic)(music().slice(0, 0, 9000));
  const MelInverse inverse(kMusic, 5);
  const at::Tensor magnitude =
      inverse(torch::stack({mel_MF, torch::zeros_like(mel_MF), 1e-6 * mel_MF}).unsqueeze(1));
  REQUIRE(magnitude.sizes() == at::IntArrayRef{3, 1, 1025, mel_MF.size(1)});
  CHECK(torch::allclose(magnitude[0][0], inverse(mel_MF), 1e-4, 1e-7));
  CHECK(magnitude[1].eq(0).all().item<bool>());
  CHECK(torch::allclose(magnitude[2][0], 1e-3 * inverse(mel_MF), 1e-4, 1e-9));
  CHECK_FALSE(inverse(mel_MF.clone().requires_grad_()).requires_grad());
}

TEST_CASE("the matmuls of a mel inverse are made without TF32") {
  const MelInverse inverse({.window = 400, .hop = 160, .mel_bins = 40}, /*iterations=*/3);
  const OperatorsCalled called;
  (void)inverse(torch::zeros({40, 5}));
  CHECK(called.count("aten::matmul") == 5);
  CHECK(called.count_with_tf32("aten::matmul") == 0);
}

TEST_CASE("wrong options and values of a mel inverse are refused with their values") {
  MelSpectrogramOptions options = kMusic;
  options.unit = MelUnit::z_score;
  CHECK_THROWS_WITH(
      MelInverse(options),
      "MelInverse: z-scores lack their mean and deviation; give decibels, z * deviation + mean");
  CHECK_THROWS_WITH(MelInverse(kMusic, 0), "MelInverse: 0 iterations; needed is at least 1");
  CHECK_THROWS_AS(MelInverse({.hop = 0}), UsageError);
  const MelInverse inverse(kMusic);
  CHECK_THROWS_WITH(inverse(torch::ones({80, 9})),
                    "MelInverse: expected float32 values [..., 128, F], got CPUFloatType [80, 9]");
  CHECK_THROWS_AS(inverse(torch::ones({128})), UsageError);
  CHECK_THROWS_AS(inverse(torch::ones({128, 9}, at::kDouble)), UsageError);
  CHECK_THROWS_AS(inverse(at::Tensor()), UsageError);
  for (const double bad : {-1.0, double(NAN), double(INFINITY)})
    CHECK_THROWS_WITH(inverse(torch::full({128, 2}, bad)),
                      "MelInverse: some values are negative power, or power that is not finite");
  options.unit = MelUnit::decibels;
  CHECK(MelInverse(options)(torch::full({128, 2}, -INFINITY)).eq(0).all().item<bool>());
  CHECK_THROWS_AS(MelInverse(options)(torch::full({128, 2}, 1000.0)), UsageError);
}
