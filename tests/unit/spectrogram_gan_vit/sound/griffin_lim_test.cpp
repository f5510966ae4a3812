// SPDX-License-Identifier: MIT
// The reference values: tests/parity/audio_griffin_lim.py.
// Tests spectrogram_gan_vit/sound: framed_signal
#include "support/precompiled.hpp"

#include "support/reference.hpp"
#include "unit/audio/signals.hpp"

#include <spectrogram_gan_vit/sound/griffin_lim.hpp>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using looptorch::UsageError;
using spectrogram_gan::GriffinLim;
using spectrogram_gan::GriffinLimOptions;

namespace {

at::Tensor music(std::int64_t count, at::ScalarType type = at::kFloat) {
  return signals::as_samples(signals::music(count, 22050), type);
}

struct Case {
  std::string name;
  std::int64_t samples, length;
  GriffinLimOptions options;
};

std::vector<Case> cases() {
  return {{"zero", 12000, 0, {}},
          {"classic", 4000, 4000, {.window = 400, .hop = 160, .iterations = 16, .momentum = 0}},
          {"odd", 3001, 3001, {.window = 255, .hop = 60, .iterations = 8, .momentum = 0.5}},
          {"random", 3000, 3000, {.window = 512, .hop = 128}}};
}

/// 0, or fractions of a turn by the formula of the script.
at::Tensor phases(const std::string& name, const at::Tensor& magnitude_KF) {
  if (name != "random") return torch::zeros_like(magnitude_KF);
  const at::Tensor count = torch::arange(magnitude_KF.numel(), torch::kDouble).view(magnitude_KF.sizes());
  return (2 * std::numbers::pi * (count * 0.6180339887498949).fmod(1)).to(magnitude_KF.scalar_type());
}

double share(const at::Tensor& distance) { return distance.item<double>(); }

}  // namespace

TEST_CASE("sound equals librosa's from the same phases: within 1e-9 in float64, within 1e-3 in float32") {
  const auto& recorded = reference::tensors("audio_griffin_lim");
  for (const auto& [name, samples, length, options] : cases()) {
    for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-9}, {at::kFloat, 1e-3}}) {
      CAPTURE(name, type);
      const GriffinLim griffin_lim(options);
      const at::Tensor magnitude_KF = griffin_lim.magnitude(music(samples, type));
      CHECK(magnitude_KF.size(1) == griffin_lim.frames(samples));
      CHECK(reference::difference(magnitude_KF.slice(1, 0, {}, 7), recorded.at(name + ".magnitude")) <
            1e-2 * tolerance * magnitude_KF.max().item<double>());
      const at::Tensor samples_T = griffin_lim.from_phase(magnitude_KF, phases(name, magnitude_KF), length);
      const at::Tensor& expected_T = recorded.at(name + ".sound");
      REQUIRE(samples_T.sizes() == expected_T.sizes());
      REQUIRE(samples_T.scalar_type() == type);
      CHECK(reference::difference(samples_T, expected_T) < tolerance * expected_T.abs().max().item<double>());
    }
  }
}

TEST_CASE("the distance from the magnitudes falls with the iterations, and faster with momentum") {
  const at::Tensor magnitude_KF = GriffinLim().magnitude(music(22050));
  const auto after = [&magnitude_KF](std::int64_t iterations, double momentum) {
    const GriffinLim griffin_lim({.iterations = iterations, .momentum = momentum});
    return share(griffin_lim.distance(griffin_lim(magnitude_KF, 1), magnitude_KF));
  };
  double last = 1;
  for (const std::int64_t iterations : {0, 1, 2, 4, 8, 16, 32}) {
    const double distance = after(iterations, 0);
    CHECK(distance < last);
    last = distance;
  }
  CHECK(last < 0.3);
  CHECK(after(32, 0.99) < 0.75 * last);
}

TEST_CASE("with its own phases, sound comes back without an iteration, to its last sample") {
  for (const auto& [name, samples, length, options] : cases()) {
    CAPTURE(name);
    const at::Tensor samples_T = music(samples, at::kDouble);
    const std::int64_t half = options.window / 2;
    const at::Tensor padded = torch::constant_pad_nd(samples_T, {half, half});
    const at::Tensor window = torch::hann_window(options.window, torch::kDouble);
    const at::Tensor spectrum_KF =
        torch::fft_rfft(padded.unfold(0, options.window, options.hop) * window).t().contiguous();
    const GriffinLim inverse({.window = options.window, .hop = options.hop, .iterations = 0});
    const at::Tensor back_T = inverse.from_phase(spectrum_KF.abs(), spectrum_KF.angle(), samples);
    CHECK(reference::difference(back_T, samples_T) < 1e-12);
    CHECK(share(inverse.distance(back_T, spectrum_KF.abs())) < 1e-12);
  }
}

TEST_CASE("a sine comes back as a sine of its frequency and loudness, from random phases") {
  const double hz = GENERATE(440.0, 3000.0);
  const int seed = GENERATE(1, 2, 3);
  const at::Tensor t = torch::arange(22050, torch::kDouble) / 22050;
  const at::Tensor sine_T = 0.5 * (2 * std::numbers::pi * hz * t).sin();
  const GriffinLim griffin_lim;
  const at::Tensor back_T = griffin_lim(griffin_lim.magnitude(sine_T), std::uint64_t(seed), 22050);
  const at::Tensor power = torch::fft_rfft(back_T).abs().square();  // a value every hertz
  const auto near = std::int64_t(hz);
  CAPTURE(hz, seed);
  CHECK(std::abs(power.argmax().item<std::int64_t>() - near) <= 2);
  CHECK((power.slice(0, near - 20, near + 21).sum() / power.sum()).item<double>() > 0.95);
  CHECK(back_T.square().mean().item<double>() == Approx(0.125).epsilon(0.1));
  CHECK(back_T.abs().max().item<double>() < 0.7);
}

TEST_CASE("the same seed gives the same sound, another one another") {
  const GriffinLim griffin_lim({.window = 512, .hop = 128, .iterations = 3});
  const at::Tensor magnitude_KF = griffin_lim.magnitude(music(4000));
  torch::manual_seed(5);
  const at::Tensor samples_T = griffin_lim(magnitude_KF, 7);
  torch::manual_seed(6);
  const at::Tensor before = torch::rand({3});
  CHECK(griffin_lim(magnitude_KF, 7).equal(samples_T));
  CHECK_FALSE(griffin_lim(magnitude_KF, 8).equal(samples_T));
  torch::manual_seed(6);
  griffin_lim(magnitude_KF, 7);
  CHECK(torch::rand({3}).equal(before));  // the default generator is not drawn from
}

TEST_CASE("clips of a batch sound as each does alone, whatever the leading dimensions") {
  const GriffinLim griffin_lim({.window = 256, .hop = 64, .iterations = 5});
  const at::Tensor samples =
      torch::stack({music(3000), music(3000).flip(0), 0.1 * music(3000)}).view({3, 1, 3000});
  const at::Tensor magnitude = griffin_lim.magnitude(samples);
  REQUIRE(magnitude.sizes() == at::IntArrayRef{3, 1, 129, 47});
  const at::Tensor phase = torch::rand_like(magnitude), back = griffin_lim.from_phase(magnitude, phase, 3000);
  REQUIRE(back.sizes() == at::IntArrayRef{3, 1, 3000});
  CHECK(griffin_lim.distance(back, magnitude).sizes() == at::IntArrayRef{3, 1});
  for (int i = 0; i < 3; ++i) {
    CHECK(magnitude[i][0].equal(griffin_lim.magnitude(samples[i][0])));
    CHECK(back[i][0].equal(griffin_lim.from_phase(magnitude[i][0], phase[i][0], 3000)));
    CHECK(griffin_lim.distance(back, magnitude)[i][0].item<float>() ==
          Approx(griffin_lim.distance(back[i][0], magnitude[i][0]).item<float>()));
  }
  const at::Tensor strided = magnitude.transpose(-1, -2).contiguous().transpose(-1, -2);
  CHECK(griffin_lim.from_phase(strided, phase, 3000).equal(back));
  CHECK(griffin_lim(torch::zeros({0, 129, 5}), 1).sizes() == at::IntArrayRef{0, 256});
}

TEST_CASE("frames in many blocks give what they give in one") {
  const GriffinLim griffin_lim({.window = 64, .hop = 16, .iterations = 4});
  const std::int64_t samples = 120'000;  // 7501 frames
  const at::Tensor magnitude_KF = griffin_lim.magnitude(music(samples, at::kDouble));
  const at::Tensor phase_KF = torch::zeros_like(magnitude_KF);
  const at::Tensor whole_T = griffin_lim.from_phase(magnitude_KF, phase_KF, samples);
  const at::Tensor end_T =
      griffin_lim.from_phase(magnitude_KF.slice(1, 5000), phase_KF.slice(1, 5000), samples - 80'000);
  CHECK(reference::difference(whole_T.slice(0, 80'000 + 2000), end_T.slice(0, 2000)) < 1e-12);
  CHECK(share(griffin_lim.distance(whole_T, magnitude_KF)) < 0.5);
}

TEST_CASE("any length with that many frames can be asked for, no other") {
  const GriffinLim even({.window = 400, .hop = 100, .iterations = 1});
  const at::Tensor magnitude_KF = torch::rand({201, 9});
  for (const std::int64_t length : {800, 801, 899}) CHECK(even(magnitude_KF, 1, length).size(0) == length);
  CHECK(even(magnitude_KF, 1).size(0) == 800);
  CHECK_THROWS_WITH(even(magnitude_KF, 1, 900), "GriffinLim: 9 frames are no 900 samples but 800 to 899");
  CHECK_THROWS_AS(even(magnitude_KF, 1, 799), UsageError);
  CHECK_THROWS_AS(even(magnitude_KF, 1, -1), UsageError);
  CHECK_THROWS_WITH(even(torch::rand({201, 1}), 1),
                    "GriffinLim: one frame says nothing of the length; it must be given, 1 to 99 samples");
  CHECK_THROWS_WITH(even(torch::rand({201, 1}), 1, 100), EndsWith("1 frames are no 100 samples but 1 to 99"));
  CHECK(even(torch::rand({201, 1}), 1, 1).size(0) == 1);
  const GriffinLim odd({.window = 255, .hop = 60, .iterations = 1});
  CHECK(odd(torch::rand({128, 4}), 1).size(0) == 181);
  CHECK(odd(torch::rand({128, 4}), 1, 240).size(0) == 240);
  CHECK_THROWS_AS(odd(torch::rand({128, 4}), 1, 180), UsageError);
}

TEST_CASE("silence stays silence, and magnitudes are left as they were") {
  const GriffinLim griffin_lim({.window = 128, .hop = 32});
  const at::Tensor silence_T = griffin_lim(torch::zeros({65, 10}), 1);
  CHECK(silence_T.eq(0).all().item<bool>());
  CHECK(share(griffin_lim.distance(silence_T, torch::zeros({65, 10}))) == 0);
  const at::Tensor magnitude_KF = torch::rand({65, 10}).requires_grad_();
  const at::Tensor before = magnitude_KF.detach().clone();
  CHECK_FALSE(griffin_lim(magnitude_KF, 1).requires_grad());
  CHECK(magnitude_KF.equal(before));
}

TEST_CASE("wrong options and magnitudes of Griffin-Lim are refused with their values") {
  CHECK_THROWS_WITH(
      GriffinLim({.window = 400, .hop = 201}),
      "GriffinLim: windows of 400 every 201 samples; a window is at least 2, a hop 1 to half of it");
  CHECK_THROWS_AS(GriffinLim({.hop = 0}), UsageError);
  CHECK_THROWS_AS(GriffinLim({.window = 1, .hop = 1}), UsageError);
  CHECK_THROWS_WITH(GriffinLim({.momentum = 1.5}),
                    "GriffinLim: 32 iterations with a momentum of 1.5; needed are at least 0, and 0 to 1");
  CHECK_THROWS_AS(GriffinLim({.momentum = -0.1}), UsageError);
  CHECK_THROWS_AS(GriffinLim({.momentum = std::nan("")}), UsageError);
  CHECK_THROWS_AS(GriffinLim({.iterations = -1}), UsageError);

  const GriffinLim griffin_lim({.window = 400, .hop = 100});
  CHECK_THROWS_WITH(griffin_lim(torch::rand({200, 9}), 1),
                    "GriffinLim: expected float magnitudes [..., 201, F], got CPUFloatType [200, 9]");
  CHECK_THROWS_AS(griffin_lim(torch::rand({201}), 1), UsageError);
  CHECK_THROWS_AS(griffin_lim(torch::rand({201, 0}), 1), UsageError);
  CHECK_THROWS_AS(griffin_lim(torch::ones({201, 9}, at::kLong), 1), UsageError);
  CHECK_THROWS_AS(griffin_lim(at::Tensor(), 1), UsageError);
  for (const double bad : {-0.5, double(NAN), double(INFINITY)}) {
    at::Tensor magnitude_KF = torch::rand({201, 9});
    magnitude_KF[3][4] = bad;
    CHECK_THROWS_WITH(griffin_lim(magnitude_KF, 1), "GriffinLim: some magnitudes are negative or not finite");
  }
  CHECK_THROWS_WITH(
      griffin_lim.from_phase(torch::rand({201, 9}), torch::rand({201, 8})),
      StartsWith("GriffinLim: expected phases like the magnitudes, CPUFloatType [201, 9], got"));
  CHECK_THROWS_AS(griffin_lim.from_phase(torch::rand({201, 9}), torch::rand({201, 9}, at::kDouble)),
                  UsageError);
  CHECK_THROWS_AS(griffin_lim.from_phase(torch::rand({201, 9}), at::Tensor()), UsageError);
  CHECK_THROWS_WITH(griffin_lim.distance(torch::rand({800}), torch::rand({201, 8})),
                    "GriffinLim: the sound has magnitudes [201, 9], not [201, 8]");
  CHECK_THROWS_AS(griffin_lim.magnitude(torch::ones({5}, at::kShort)), UsageError);
  CHECK_THROWS_AS(griffin_lim.magnitude(torch::ones({0})), UsageError);
  CHECK_THROWS_AS(GriffinLim({.window = 3, .hop = 1}).magnitude(torch::ones({1})), UsageError);
}
