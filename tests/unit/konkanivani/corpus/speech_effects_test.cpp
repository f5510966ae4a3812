// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <konkanivani/corpus/speech_effects.hpp>

#include <cmath>
#include <limits>
#include <numbers>

using konkanivani::mix_at_snr;
using looptorch::UsageError;

namespace {

at::Tensor tone(double hz, std::int64_t count) {
  return (torch::arange(count, torch::kDouble) * (2 * std::numbers::pi * hz / 16000)).sin().to(torch::kFloat);
}

double snr_db(const at::Tensor& clean, const at::Tensor& noisy) {
  return 10 * std::log10((clean.square().mean() / (noisy - clean).square().mean()).item<double>());
}

}  // namespace

TEST_CASE("noise lies as far below each clip as asked") {
  torch::manual_seed(1);
  const double distance = GENERATE(-10.0, 0.0, 20.0);
  const at::Tensor clips_BT = torch::stack({tone(300, 4000), tone(500, 4000) * 0.01});
  const at::Tensor noise_BT = torch::randn({2, 4000}), noisy_BT = mix_at_snr(clips_BT, noise_BT, distance);
  for (int clip = 0; clip < 2; ++clip) {
    CHECK(snr_db(clips_BT[clip], noisy_BT[clip]) == Approx(distance).margin(1e-3));
    const at::Tensor added_T = noisy_BT[clip] - clips_BT[clip];
    const at::Tensor gain = added_T.norm() / noise_BT[clip].norm();
    CHECK(torch::allclose(added_T, noise_BT[clip] * gain, 1e-3, 1e-5));
  }
}

TEST_CASE("silent noise and silent clips change nothing") {
  const at::Tensor samples_T = tone(300, 1000), silence_T = torch::zeros({1000});
  CHECK(mix_at_snr(samples_T, silence_T, 10).equal(samples_T));
  CHECK(mix_at_snr(silence_T, samples_T, 10).equal(silence_T));
  CHECK(mix_at_snr(silence_T, silence_T, 10).equal(silence_T));
}

TEST_CASE("the quietest and the loudest noise give finite samples at the distance, or count as silent") {
  const at::Tensor samples_T = tone(300, 1000), noise_T = torch::randn({1000});
  for (const double scale : {1e-12, 1e-6, 1e10, 1e25})
    CHECK(snr_db(samples_T, mix_at_snr(samples_T, noise_T * scale, 10)) == Approx(10).margin(1e-2));
  for (const double scale : {1e-16, 1e-20, 1e-30, 1e-42})
    CHECK(mix_at_snr(samples_T, noise_T * scale, 10).equal(samples_T));
  CHECK(mix_at_snr(samples_T, noise_T, -1e4).equal(samples_T));
  CHECK(mix_at_snr(samples_T * 1e25, noise_T, 10).isfinite().all().item<bool>());
}

TEST_CASE("what cannot be mixed is refused with its values") {
  const at::Tensor samples_T = torch::ones({10});
  CHECK_THROWS_WITH(
      mix_at_snr(samples_T, torch::ones({11}), 5),
      "mix_at_snr: expected float32 samples and noise of one shape [..., T], got CPUFloatType [10] and "
      "CPUFloatType [11] at 5 dB");
  CHECK_THROWS_AS(mix_at_snr(samples_T, samples_T, std::numeric_limits<double>::infinity()), UsageError);
}
