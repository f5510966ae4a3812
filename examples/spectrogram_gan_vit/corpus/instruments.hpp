// SPDX-License-Identifier: MIT
// Synthesises the notes and drums of the songs that emotion_corpus makes. A note repeats one period of a wave
// at the note's pitch; the instrument decides the wave's overtones, and how the loudness changes over time. A
// note costs 2 ns a sample.
#pragma once

#include "dice.hpp"
#include "traits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numbers>
#include <span>
#include <vector>

namespace spectrogram_gan {

inline constexpr double kSynthRate = 22050;  // Hz

[[nodiscard]] inline double hertz(double pitch) { return 440 * std::exp2((pitch - 69) / 12); }

/// One period, band-limited for the notes of one octave.
class WaveTable {
 public:
  static constexpr int kBits = 10;
  static constexpr std::size_t kSize = std::size_t{1} << kBits;

  /// Makes the wave from `overtone(h)`, the strength of the h-th harmonic, counted from 1. The period's mean
  /// square is 1.
  template <class Overtone>
  WaveTable(double highest_pitch, Overtone overtone) {
    constexpr double kHighest = 10'000;  // Hz
    const auto count = static_cast<std::size_t>(
        std::clamp(kHighest / hertz(highest_pitch), 1.0, static_cast<double>(kSize) / 4));
    std::array<double, kSize> sum{};
    double power = 0;
    for (std::size_t h = 1; h <= count; ++h) {
      const double strength = overtone(static_cast<double>(h));
      if (strength < 1e-5) continue;
      power += strength * strength / 2;
      // Spreads the phases, so that overtones do not add up to a click.
      const auto shift = (h * h * (kSize / 8)) % kSize;
      for (std::size_t i = 0; i < kSize; ++i) sum[i] += strength * sine((h * i + shift) % kSize);
    }
    for (std::size_t i = 0; i < kSize; ++i) wave_[i] = static_cast<float>(sum[i] / std::sqrt(power));
    wave_[kSize] = wave_[0];
  }

  /// Returns the value at a phase; 2^32 are a period.
  [[nodiscard]] float at(std::uint32_t phase) const {
    const float* const wave = wave_.data() + (phase >> (32 - kBits));
    const auto part = static_cast<float>(phase << kBits) * 0x1p-32F;
    return wave[0] + part * (wave[1] - wave[0]);
  }

 private:
  static double sine(std::size_t i) {
    static const auto kSine = [] {
      std::array<double, kSize> values{};
      for (std::size_t k = 0; k < kSize; ++k)
        values[k] = std::sin(2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(kSize));
      return values;
    }();
    return kSine[i];
  }

  std::array<float, kSize + 1> wave_{};
};

/// The envelope and vibrato of a timbre's notes.
struct NoteShape {
  double attack;   ///< s
  double decay;    ///< s until a struck note has fallen to 37 %; 0: the note is held
  double release;  ///< s
  double vibrato;  ///< semitones
};

/// An instrument of one clip. Makes a wave once for each octave.
class Instrument {
 public:
  Instrument(Timbre timbre, const Traits& traits)
      : timbre_(timbre), slope_(2.6 - 2.1 * traits.brightness), attack_(traits.attack) {}

  /// Adds a note of `seconds`, and its release, to `out`. The note begins at the first sample of `out`.
  void play(double pitch, double seconds, double gain, std::span<float> out) {
    const auto shape = note_shape(pitch);
    const auto& wave = table(pitch);
    const auto whole = static_cast<std::size_t>((seconds + shape.release) * kSynthRate);
    const std::size_t count = std::min(out.size(), whole);
    std::uint32_t phase = 0;
    float level = 0;
    for (std::size_t first = 0; first < count; first += kBlock) {
      const double t = static_cast<double>(first) / kSynthRate;
      const double bend = shape.vibrato * std::sin(2 * std::numbers::pi * 5.5 * t);
      const auto step = static_cast<std::uint32_t>(hertz(pitch + bend) / kSynthRate * 0x1p32);
      const auto next = static_cast<float>(gain * envelope(shape, t + kBlock / kSynthRate, seconds));
      const float rise = (next - level) / static_cast<float>(kBlock);
      float* sample = out.data() + first;
      for (const float* const end = out.data() + std::min(count, first + kBlock); sample != end;
           phase += step)
        *sample++ += (level += rise) * wave.at(phase);
      level = next;
    }
  }

 private:
  static constexpr std::size_t kBlock = 32;

  [[nodiscard]] NoteShape note_shape(double pitch) const {
    const double slower = std::exp2((60 - pitch) / 24);  // low strings sound for longer
    switch (timbre_) {
      case Timbre::piano:
        return {0.004, 1.1 * slower, 0.08, 0};
      case Timbre::harp:
        return {0.003, 0.8 * slower, 0.15, 0};
      case Timbre::marimba:
        return {0.002, 0.35 * slower, 0.1, 0};
      case Timbre::strings:
        return {attack_, 0, 0.12, 0.15};
      case Timbre::flute:
        return {0.6 * attack_, 0, 0.06, 0.12};
      case Timbre::clarinet:
        return {0.5 * attack_, 0, 0.05, 0.05};
      case Timbre::organ:
        break;
    }
    return {0.3 * attack_, 0, 0.04, 0};
  }

  /// Returns the envelope at time `t`. It rises within the attack, falls to 0 after the note's end and, for a
  /// struck note, decays throughout.
  static double envelope(const NoteShape& shape, double t, double seconds) {
    const double rise = std::min(1.0, t / shape.attack);
    const double fall = t < seconds ? 1 : std::max(0.0, 1 - (t - seconds) / shape.release);
    return rise * fall * (shape.decay > 0 ? std::exp(-t / shape.decay) : 1);
  }

  [[nodiscard]] double overtone(double h) const {
    const double falling = std::pow(h, -slope_);
    const bool is_odd = std::fmod(h, 2) == 1;
    switch (timbre_) {
      case Timbre::flute:
        return falling * std::pow(h, -1.0);
      case Timbre::clarinet:
        return is_odd ? falling : 0.15 * falling;
      case Timbre::organ:
        return h == 1 || std::fmod(h, 2) == 0 ? std::pow(h, -0.6 * slope_) : 0.2 * falling;
      case Timbre::marimba:
        return h == 1 ? 1 : h == 4 ? 0.6 * std::pow(4, 1 - slope_) : h == 10 ? falling : 0;
      default:
        return falling;
    }
  }

  const WaveTable& table(double pitch) {
    const int octave = static_cast<int>(std::floor(pitch / 12));
    const auto found = tables_.find(octave);
    if (found != tables_.end()) return found->second;
    return tables_.try_emplace(octave, 12 * octave + 12, [this](double h) { return overtone(h); })
        .first->second;
  }

  Timbre timbre_;
  double slope_;  ///< the h-th overtone's strength is h to the power of minus this
  double attack_;
  std::map<int, WaveTable> tables_;
};

/// Drum sounds of a clip, made once.
class DrumKit {
 public:
  DrumKit(const Traits& traits, Dice& dice)
      : kick_(kick(dice.real(45, 60))), snare_(snare(dice.real(170, 230), dice)), hat_(hat(traits, dice)) {}

  void play(std::size_t drum, double gain, std::span<float> out) const {
    const auto& sound = *std::array{&kick_, &snare_, &hat_}[drum];
    const std::size_t count = std::min(out.size(), sound.size());
    const float *from = sound.data(), loudness = static_cast<float>(gain);
    for (float *sample = out.data(), *const end = sample + count; sample != end;)
      *sample++ += loudness * *from++;
  }

 private:
  using Sound = std::vector<float>;

  template <class Sample>
  static Sound make(double seconds, Sample sample) {
    Sound sound(static_cast<std::size_t>(seconds * kSynthRate));
    for (std::size_t i = 0; i < sound.size(); ++i)
      sound[i] = static_cast<float>(sample(static_cast<double>(i) / kSynthRate));
    return sound;
  }

  /// Returns a kick: a sine whose pitch falls to `hz`.
  static Sound kick(double hz) {
    double phase = 0;
    return make(0.25, [&](double t) {
      phase += 2 * std::numbers::pi * (hz + 110 * std::exp(-t / 0.03)) / kSynthRate;
      return 1.6 * std::sin(phase) * std::exp(-t / 0.09);
    });
  }

  static Sound snare(double hz, Dice& dice) {
    return make(0.2, [&](double t) {
      const double tone = std::sin(2 * std::numbers::pi * hz * t) * std::exp(-t / 0.04);
      return 0.7 * tone + 0.9 * dice.real(-1, 1) * std::exp(-t / 0.06);
    });
  }

  /// Returns a hi-hat: noise without its low end, which lasts longer in brighter clips.
  static Sound hat(const Traits& traits, Dice& dice) {
    double before = 0;
    const double decay = 0.015 + 0.03 * traits.brightness;
    return make(0.15, [&](double t) {
      const double noise = dice.real(-1, 1), high = noise - before;
      before = noise;
      return 0.6 * high * std::exp(-t / decay);
    });
  }

  Sound kick_, snare_, hat_;
};

}  // namespace spectrogram_gan
