// SPDX-License-Identifier: MIT
// Renders a score as sound: mixes all voices and drums to one channel, adds the echoes of a room, and sets
// the loudness that the traits (traits.hpp) ask for. A clip of 30 s takes about 30 ms.
#pragma once

#include "dice.hpp"
#include "instruments.hpp"
#include "score.hpp"
#include "traits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spectrogram_gan {

namespace detail {

// Loops over samples use pointers, which are fast even without optimisation, as tests are compiled.

/// Adds the echoes of a feedback delay of `seconds` (a damped comb filter) to `echoes`.
inline void add_echoes(std::span<const float> samples, double seconds, float feedback, float* echoes) {
  std::vector<float> line(static_cast<std::size_t>(seconds * kSynthRate));
  float *const begin = line.data(), *const end = begin + line.size(), *cell = begin, held = 0;
  for (const float *sample = samples.data(), *const last = sample + samples.size(); sample != last;) {
    held += 0.6F * (*cell - held);  // walls absorb high frequencies
    *echoes++ += *cell;
    *cell = *sample++ + feedback * held;
    if (++cell == end) cell = begin;
  }
}

/// Mixes in the echoes of a room, with weight `share`.
inline void add_room(std::span<float> samples, double share) {
  std::vector<float> echoes(samples.size());
  add_echoes(samples, 0.0297, 0.72F, echoes.data());
  add_echoes(samples, 0.0371, 0.70F, echoes.data());
  add_echoes(samples, 0.0411, 0.68F, echoes.data());
  add_echoes(samples, 0.0437, 0.66F, echoes.data());
  const auto wet = static_cast<float>(share);
  const float* echo = echoes.data();
  for (float *sample = samples.data(), *const end = sample + samples.size(); sample != end; ++sample)
    *sample += wet * (0.5F * *echo++ - *sample);
}

/// Scales to a root mean square of `decibels` relative to full scale; soft-clips values near full scale.
inline void set_level(std::span<float> samples, double decibels) {
  double power = 0;
  float *const begin = samples.data(), *const end = begin + samples.size();
  for (const float* sample = begin; sample != end; ++sample) power += static_cast<double>(*sample) * *sample;
  power /= static_cast<double>(std::max<std::size_t>(samples.size(), 1));
  if (power == 0) return;
  const auto gain = static_cast<float>(std::pow(10, decibels / 20) / std::sqrt(power));
  for (float* sample = begin; sample != end; ++sample) {
    const float wanted = gain * *sample, square = wanted * wanted;
    *sample = wanted / std::sqrt(std::sqrt(1 + square * square));
  }
}

/// Fades a clip's beginning and end, which avoids clicks.
inline void fade(std::span<float> samples) {
  const auto count = std::min(samples.size() / 2, static_cast<std::size_t>(0.01 * kSynthRate));
  for (std::size_t i = 0; i < count; ++i) {
    const float part = static_cast<float>(i) / static_cast<float>(count);
    samples[i] *= part;
    samples[samples.size() - 1 - i] *= part;
  }
}

class Mixer {
 public:
  Mixer(const Traits& traits, std::size_t samples, Dice& dice)
      : traits_(traits),
        samples_(samples),
        instruments_{Instrument(traits.lead, traits), Instrument(traits.accompaniment, traits),
                     Instrument(Timbre::piano, traits)},
        drums_(traits, dice) {}

  /// Plays a note. If the music is rough, plays it twice, out of tune.
  void play(const Note& note) {
    static constexpr std::array kGains{0.30, 0.14, 0.26};  // by part
    const auto out = from(note.start);
    const auto part = static_cast<std::size_t>(note.part);
    const double gain = kGains[part] * note.velocity;
    instruments_[part].play(note.pitch, note.length, gain, out);
    if (note.part != Part::bass && traits_.roughness > 0.05)
      instruments_[part].play(note.pitch + 0.15 + 0.35 * traits_.roughness, note.length,
                              gain * traits_.roughness, out);
  }

  void play(const Hit& hit) {
    drums_.play(static_cast<std::size_t>(hit.drum), 0.5 * hit.velocity, from(hit.start));
  }

  [[nodiscard]] std::vector<float> finish() {
    add_room(samples_, traits_.room);
    fade(samples_);
    set_level(samples_, traits_.level);
    return std::move(samples_);
  }

 private:
  std::span<float> from(double seconds) {
    const auto first = static_cast<std::size_t>(seconds * kSynthRate);
    return std::span(samples_).subspan(std::min(first, samples_.size()));
  }

  const Traits& traits_;
  std::vector<float> samples_;
  std::array<Instrument, 3> instruments_;  ///< by part
  DrumKit drums_;
};

}  // namespace detail

/// Returns music of `seconds` at 22.05 kHz, within (-1, 1), with the given traits. The same seed gives the
/// same piece.
[[nodiscard]] inline std::vector<float> perform(const Traits& traits, double seconds, std::uint64_t seed) {
  Dice dice(seed);
  const auto score = Composer(traits, dice).compose(seconds);
  detail::Mixer mixer(traits, static_cast<std::size_t>(std::llround(seconds * kSynthRate)), dice);
  for (const auto& note : score.notes) mixer.play(note);
  for (const auto& hit : score.hits) mixer.play(hit);
  return mixer.finish();
}

}  // namespace spectrogram_gan
