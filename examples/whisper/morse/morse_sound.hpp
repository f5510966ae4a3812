// SPDX-License-Identifier: MIT
// Synthesises Morse code as heard in a receiver: a keyed tone that drifts and fades, in the noise of a narrow
// filter, with other stations and crackling. The same seed gives the same samples.
#pragma once

#include <looptorch/base/random.hpp>

#include "morse_code.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace morse {

inline constexpr double kSampleRate = 16'000;

/// A range from which a clip draws.
struct Between {
  double low = 0, high = 0;
  [[nodiscard]] double draw(looptorch::SplitMix64& random) const {
    return low + (high - low) * random.uniform();
  }
};

/// The conditions of reception.
struct Conditions {
  std::string_view name;
  Between jitter;         ///< Jitter of the key's times; see Keying.
  Between snr_db;         ///< Power of the held tone over that of the noise in the filter.
  Between fading;         ///< Share of the amplitude that is lost at the deepest point of slow fading.
  Between drift_hz;       ///< How far the tone wanders over the clip.
  int most_stations = 0;  ///< Other stations in the filter.
  double clicks = 0;      ///< Crackles a second.
};

/// Conditions from a practice tape to a weak station on a far island.
inline constexpr std::array<Conditions, 5> kConditions{{
    {"clean", {.02, .03}, {28, 40}, {0, .05}, {0, 2}, 0, 0},
    {"good", {.02, .05}, {15, 25}, {.1, .3}, {0, 8}, 0, .2},
    {"fair", {.03, .06}, {8, 15}, {.2, .5}, {0, 20}, 1, .5},
    {"poor", {.03, .08}, {3, 8}, {.3, .7}, {0, 40}, 2, 1.5},
    {"expedition", {.02, .08}, {0, 6}, {.5, .85}, {0, 30}, 4, 2},
}};

/// Returns the conditions of that name, or null.
[[nodiscard]] inline const Conditions* find_conditions(std::string_view name) {
  const auto found = std::find_if(kConditions.begin(), kConditions.end(),
                                  [&](const auto& each) { return each.name == name; });
  return found == kConditions.end() ? nullptr : &*found;
}

namespace detail {

/// Adds a tone keyed by `marks`, from `start` seconds on, with raised-cosine flanks of 5 ms.
class KeyedTone {
 public:
  KeyedTone(double hertz, double amplitude, double drift_hz, double fading, looptorch::SplitMix64& random)
      : hertz_(hertz),
        amplitude_(amplitude),
        drift_hz_(drift_hz),
        fading_(fading),
        phase_(turn(random)),
        drift_phase_(turn(random)),
        fading_phase_(turn(random)),
        fading_hertz_(Between{.05, .4}.draw(random)) {}

  void add(std::span<float> samples, std::span<const Mark> marks, double start) const {
    std::size_t mark = 0;
    double phase = phase_;
    const double seconds = static_cast<double>(samples.size()) / kSampleRate;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double now = static_cast<double>(i) / kSampleRate;
      const double drift = drift_hz_ / 2 * std::sin(drift_phase_ + std::numbers::pi * now / seconds);
      phase += 2 * std::numbers::pi * (hertz_ + drift) / kSampleRate;
      while (mark < marks.size() && now - start >= marks[mark].end + kFlank) ++mark;
      if (mark == marks.size()) return;
      const double level =
          flank(now - start - marks[mark].begin) * flank(marks[mark].end + kFlank - now + start);
      if (level == 0) continue;
      const double fade =
          fading_ / 2 * (1 + std::sin(fading_phase_ + 2 * std::numbers::pi * fading_hertz_ * now));
      samples[i] += static_cast<float>(amplitude_ * level * (1 - fade) * std::sin(phase));
    }
  }

 private:
  static constexpr double kFlank = .005;

  static double turn(looptorch::SplitMix64& random) { return 2 * std::numbers::pi * random.uniform(); }
  /// Rises from 0 to 1 within a flank.
  static double flank(double seconds) {
    const double share = std::clamp(seconds / kFlank, 0.0, 1.0);
    return .5 - .5 * std::cos(std::numbers::pi * share);
  }

  double hertz_, amplitude_, drift_hz_, fading_, phase_, drift_phase_, fading_phase_, fading_hertz_;
};

/// Returns white noise through a second-order band-pass filter, scaled to the power `power`.
[[nodiscard]] inline std::vector<float> band_noise(std::size_t samples, double hertz, double width,
                                                   double power, looptorch::SplitMix64& random) {
  const double w = 2 * std::numbers::pi * hertz / kSampleRate, alpha = std::sin(w) * width / hertz / 2;
  const double b = alpha / (1 + alpha), a1 = -2 * std::cos(w) / (1 + alpha), a2 = (1 - alpha) / (1 + alpha);
  std::vector<float> noise(samples);
  double x1 = 0, x2 = 0, y1 = 0, y2 = 0, sum = 0;
  for (float& sample : noise) {
    const double x = normal(random), y = b * (x - x2) - a1 * y1 - a2 * y2;
    x2 = x1, x1 = x, y2 = y1, y1 = y;
    sum += y * y;
    sample = static_cast<float>(y);
  }
  const double scale = std::sqrt(power / std::max(sum / static_cast<double>(samples), 1e-12));
  for (float& sample : noise) sample = static_cast<float>(sample * scale);
  return noise;
}

/// Adds crackles: bursts of noise that decay within some milliseconds.
inline void add_clicks(std::span<float> samples, double a_second, looptorch::SplitMix64& random) {
  const double seconds = static_cast<double>(samples.size()) / kSampleRate;
  for (double now = 0;;) {
    now -= std::log(1 - random.uniform()) / std::max(a_second, 1e-9);
    if (now >= seconds) return;
    const double height = Between{.3, 1.5}.draw(random), fall = Between{20, 120}.draw(random);  // samples
    double level = height;
    for (auto i = static_cast<std::size_t>(now * kSampleRate); i < samples.size() && level > .01; ++i) {
      samples[i] += static_cast<float>(level * (2 * random.uniform() - 1));
      level *= 1 - 1 / fall;
    }
  }
}

}  // namespace detail

/// Returns samples of `marks` at 16 kHz in [-1, 1], the first mark at `start` seconds. Without marks, returns
/// noise and other stations alone.
[[nodiscard]] inline std::vector<float> render(std::span<const Mark> marks, double start, double seconds,
                                               const Conditions& conditions, looptorch::SplitMix64& random) {
  constexpr double kAmplitude = .3;
  const double hertz = Between{450, 850}.draw(random), width = Between{250, 1200}.draw(random);
  const double power = kAmplitude * kAmplitude / 2 / std::pow(10, conditions.snr_db.draw(random) / 10);
  std::vector<float> samples =
      detail::band_noise(static_cast<std::size_t>(seconds * kSampleRate), hertz, width, power, random);
  detail::KeyedTone(hertz, kAmplitude, conditions.drift_hz.draw(random), conditions.fading.draw(random),
                    random)
      .add(samples, marks, start);
  const auto stations = random.below(static_cast<std::uint64_t>(conditions.most_stations) + 1);
  for (std::uint64_t i = 0; i < stations; ++i) {
    const double away = Between{120, 400}.draw(random) * (random.below(2) == 0 ? 1 : -1);
    const Keying keying{Between{15, 35}.draw(random), .04};
    std::string text;
    while (static_cast<double>(text.size()) * 10 * unit_seconds(keying.words_per_minute) < seconds)
      text += random.below(5) == 0 ? ' ' : static_cast<char>('a' + random.below(26));
    const std::vector<Mark> others = keyed(text, keying, random);
    detail::KeyedTone(hertz + away, kAmplitude * Between{.1, .6}.draw(random), 5, .3, random)
        .add(samples, others, 0);
  }
  if (conditions.clicks > 0) detail::add_clicks(samples, conditions.clicks, random);
  for (float& sample : samples) sample = std::clamp(sample, -1.0F, 1.0F);
  return samples;
}

}  // namespace morse
