// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/reference.hpp"

#include <konkanivani/augment.hpp>

#include <cmath>
#include <limits>
#include <numbers>
#include <set>

using konkanivani::mix_at_snr;
using konkanivani::NoiseMixer;
using konkanivani::SpeedPerturbation;
using looptorch::UsageError;

namespace {

at::Tensor tone(double hz, std::int64_t count) {
  return (torch::arange(count, torch::kDouble) * (2 * std::numbers::pi * hz / 16000)).sin().to(torch::kFloat);
}

double snr_db(const at::Tensor& clean, const at::Tensor& noisy) {
  return 10 * std::log10((clean.square().mean() / (noisy - clean).square().mean()).item<double>());
}

}  // namespace

TEST_CASE("a speed makes a tone as much higher as the clip gets shorter") {
  const double factor = GENERATE(0.9, 1.1, 1.07, 2.0);
  CAPTURE(factor);
  const at::Tensor faster_T = SpeedPerturbation({factor})(tone(440, 16000), 3);
  REQUIRE(faster_T.numel() == std::int64_t(std::ceil(16000 / factor - 1e-9)));
  CHECK(reference::difference(faster_T.slice(0, 200, -200),
                              tone(440 * factor, faster_T.numel()).slice(0, 200, -200)) < 1e-4);
}

TEST_CASE("every speed is drawn, by the seed alone; 1 changes nothing") {
  const SpeedPerturbation perturb;
  const at::Tensor samples_T = tone(440, 990);
  std::set<std::int64_t> lengths;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const at::Tensor perturbed_T = perturb(samples_T, seed);
    CHECK(perturbed_T.equal(perturb(samples_T, seed)));
    if (perturbed_T.numel() == 990) CHECK(perturbed_T.equal(samples_T));
    lengths.insert(perturbed_T.numel());
  }
  CHECK(lengths == std::set<std::int64_t>{900, 990, 1100});
  CHECK(perturb(torch::zeros({2, 990}), 1).size(0) == 2);
}

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

TEST_CASE("a mixer draws noise, place and distance from the seed, and repeats short noise") {
  torch::manual_seed(2);
  const at::Tensor samples_T = tone(300, 5000), before_T = samples_T.clone();
  const NoiseMixer mix({torch::randn({700}), torch::randn({50'000})}, 5, 15);
  std::set<bool> is_periodic;
  double lowest = 99, highest = -99;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const at::Tensor noisy_T = mix(samples_T, seed);
    REQUIRE(noisy_T.equal(mix(samples_T, seed)));
    lowest = std::min(lowest, snr_db(samples_T, noisy_T));
    highest = std::max(highest, snr_db(samples_T, noisy_T));
    const at::Tensor added_T = noisy_T - samples_T;
    is_periodic.insert(torch::allclose(added_T.slice(0, 700), added_T.slice(0, 0, -700), 1e-3, 1e-5));
  }
  CHECK(lowest > 5 - 1e-3);
  CHECK(lowest < 6);
  CHECK(highest < 15 + 1e-3);
  CHECK(highest > 14);
  CHECK(is_periodic == std::set<bool>{false, true});
  CHECK_FALSE(mix(samples_T, 1).equal(mix(samples_T, 2)));
  CHECK(samples_T.equal(before_T));
  CHECK(mix(torch::zeros({0}), 1).numel() == 0);
}

TEST_CASE("what cannot be augmented is refused with its values") {
  const at::Tensor samples_T = torch::ones({10});
  CHECK_THROWS_WITH(SpeedPerturbation({1.0, 0.0}), "SpeedPerturbation: factor 0 is not between 0.1 and 10");
  CHECK_THROWS_AS(SpeedPerturbation({std::nan("")}), UsageError);
  CHECK_THROWS_AS(SpeedPerturbation(std::vector<double>{}), UsageError);
  CHECK_THROWS_WITH(
      mix_at_snr(samples_T, torch::ones({11}), 5),
      "mix_at_snr: expected float32 samples and noise of one shape [..., T], got CPUFloatType [10] and "
      "CPUFloatType [11] at 5 dB");
  CHECK_THROWS_AS(mix_at_snr(samples_T, samples_T, std::numeric_limits<double>::infinity()), UsageError);
  CHECK_THROWS_WITH(NoiseMixer({}, 0, 1), "NoiseMixer: no noise to draw from");
  CHECK_THROWS_WITH(NoiseMixer({torch::zeros({0})}, 0, 1),
                    "NoiseMixer: expected float32 noise [N] that is not empty, got CPUFloatType [0]");
  CHECK_THROWS_WITH(NoiseMixer({samples_T}, 3, 2), "NoiseMixer: cannot draw from 3 to 2 dB");
  CHECK_THROWS_AS(NoiseMixer({samples_T}, 3, 5)(torch::ones({1, 10}), 0), UsageError);
}
