// SPDX-License-Identifier: MIT
// Chooses how a song of emotion_corpus sounds for a given emotion: tempo, mode, register, loudness,
// brightness, roughness and articulation, as in the literature (README.md has the sources). Each of
// these traits depends on the emotion but is drawn with noise, so that no single one reveals the label.
#pragma once

#include "dice.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace spectrogram_gan {

/// The valence and arousal of a piece, both in [-1, 1].
struct Emotion {
  double valence = 0, arousal = 0;
};

/// The modes of the white keys, from the happiest to the saddest. The first two have a major third.
enum class Mode { ionian, mixolydian, dorian, aeolian, phrygian };

inline constexpr std::array<std::string_view, 5> kModeNames{"ionian", "mixolydian", "dorian", "aeolian",
                                                            "phrygian"};

/// Semitones above the tonic.
using Scale = std::array<int, 7>;

[[nodiscard]] inline const Scale& scale_of(Mode mode) {
  static constexpr std::array<Scale, 5> kScales{{{0, 2, 4, 5, 7, 9, 11},
                                                 {0, 2, 4, 5, 7, 9, 10},
                                                 {0, 2, 3, 5, 7, 9, 10},
                                                 {0, 2, 3, 5, 7, 8, 10},
                                                 {0, 1, 3, 5, 7, 8, 10}}};
  return kScales[static_cast<std::size_t>(mode)];
}

/// An instrument: the shape of its overtones and of its notes.
enum class Timbre { piano, harp, strings, organ, flute, clarinet, marimba };

struct Traits {
  double tempo = 100;  ///< beats a minute
  Mode mode = Mode::ionian;
  int tonic = 0;             ///< pitch class, 0 is C
  double melody_pitch = 67;  ///< MIDI pitch around which the melody moves; 60 is the middle C
  double level = -20;        ///< root mean square, dB below full scale
  double brightness = 0.5;   ///< 0: overtones fall off steeply; 1: hardly
  double roughness = 0;      ///< 0: pure; 1: clusters, and voices out of tune by half a semitone
  double attack = 0.05;      ///< s, for notes that are not struck
  double gate = 0.8;         ///< sounding part of a note; 1 is legato
  double activity = 0.5;     ///< 0: at most a note a beat; 1: sixteenths
  double drums = 0;          ///< loudness
  int beats = 4;             ///< a bar
  double room = 0.2;         ///< share of echoes
  Timbre lead = Timbre::piano, accompaniment = Timbre::strings;
};

namespace detail {

[[nodiscard]] inline Mode draw_mode(double valence, Dice& dice) {
  const double pleasant = valence + 0.15 * dice.bell();
  static constexpr std::array kLeast{0.4, 0.05, -0.2, -0.6};  // by mode, the last one left out
  const auto found =
      std::find_if(kLeast.begin(), kLeast.end(), [&](double least) { return pleasant > least; });
  return static_cast<Mode>(found - kLeast.begin());
}

}  // namespace detail

[[nodiscard]] inline Traits draw_traits(const Emotion& emotion, Dice& dice) {
  const auto [v, a] = emotion;
  const auto around = [&](double mean, double deviation, double low, double high) {
    return std::clamp(mean + deviation * dice.bell(), low, high);
  };
  static constexpr std::array kLeads{Timbre::piano, Timbre::harp,     Timbre::strings,
                                     Timbre::flute, Timbre::clarinet, Timbre::marimba};
  static constexpr std::array kAccompaniments{Timbre::piano, Timbre::harp, Timbre::strings, Timbre::organ};
  Traits traits;
  traits.tempo = 96 * std::exp2(around(0.75 * a + 0.1 * v, 0.1, -1.1, 1.1));
  traits.mode = detail::draw_mode(v, dice);
  traits.tonic = static_cast<int>(dice.below(12));
  traits.melody_pitch = around(67 + 8 * v + 2 * a, 1.2, 54, 80);
  traits.level = around(-23 + 7 * a, 0.8, -32, -14);
  traits.brightness = around(0.5 + 0.4 * a, 0.06, 0, 1);
  traits.roughness = around(0.3 - 0.5 * v + 0.12 * a, 0.06, 0, 1);
  traits.attack = 0.06 * std::exp2(around(-2.2 * a, 0.3, -3.5, 2.5));
  traits.gate = around(0.8 - 0.28 * a, 0.06, 0.4, 1);
  traits.activity = around(0.5 + 0.4 * a, 0.07, 0, 1);
  traits.drums = around(0.2 + 0.7 * a, 0.08, 0, 1);
  traits.beats = dice.chance(0.2) ? 3 : 4;
  traits.room = dice.real(0.08, 0.3);
  traits.lead = dice.pick(kLeads);
  traits.accompaniment = dice.pick(kAccompaniments);
  return traits;
}

}  // namespace spectrogram_gan
