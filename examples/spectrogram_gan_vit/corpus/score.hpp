// SPDX-License-Identifier: MIT
// Composes a piece by its traits (traits.hpp): a melody from two motifs over a progression of four chords,
// with bass and drums. Takes microseconds a clip.
#pragma once

#include "dice.hpp"
#include "traits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// The voice of a note.
enum class Part { melody, chords, bass };

/// A tone of a piece.
struct Note {
  Part part;
  double start, length;  ///< s
  double pitch;          ///< MIDI
  double velocity;       ///< 0 to 1
};

/// The instrument of a hit.
enum class Drum { kick, snare, hat };

/// A drum's stroke.
struct Hit {
  Drum drum;
  double start;     ///< s
  double velocity;  ///< 0 to 1
};

/// A composed piece: what is played when, without sound.
struct Score {
  std::vector<Note> notes;
  std::vector<Hit> hits;
};

/// Composes one piece from its traits. Draws from `dice`, so that equal dice give equal pieces.
class Composer {
 public:
  Composer(const Traits& traits, Dice& dice)
      : traits_(traits),
        dice_(dice),
        steps_(kStepsPerBeat * traits.beats),
        step_(60 / traits.tempo / kStepsPerBeat) {}

  /// Returns the bars that fill `seconds`, of which the last one may end later.
  [[nodiscard]] Score compose(double seconds) {
    static constexpr std::array<std::array<int, 4>, 6> kProgressions{
        {{0, 3, 4, 0}, {0, 5, 3, 4}, {0, 4, 5, 3}, {0, 2, 3, 4}, {0, 3, 0, 4}, {0, 6, 5, 4}}};
    const auto& progression = dice_.pick(kProgressions);
    const std::array motifs{draw_motif(), draw_motif()};
    const auto style = static_cast<Style>(dice_.below(3));
    degree_ = nearest_degree(traits_.melody_pitch);
    const double bar_seconds = steps_ * step_;
    for (int bar = 0; bar * bar_seconds < seconds; ++bar) {
      bar_start_ = bar * bar_seconds;
      root_ = progression[static_cast<std::size_t>(bar % 4)];
      add_melody(motifs[bar % 8 == 4 || bar % 8 == 5 ? 1 : 0]);
      add_chord(style);
      add_bass();
      if (traits_.drums > 0.02) add_drums();
    }
    return std::move(score_);
  }

 private:
  static constexpr int kStepsPerBeat = 4;  // sixteenths
  enum class Style { block, broken, pulse };

  struct MotifNote {
    int step, rise;  ///< rise: degrees of the scale from the note before
  };

  /// Draws the rhythm and contour of a bar.
  std::vector<MotifNote> draw_motif() {
    const double busy = traits_.activity;
    std::vector<MotifNote> motif;
    for (int step = 0; step < steps_; ++step) {
      const double probability = step == 0       ? 1
                                 : step % 4 == 0 ? 0.4 + 0.6 * busy
                                 : step % 2 == 0 ? 0.9 * busy
                                                 : std::max(0.0, busy - 0.55);
      if (dice_.chance(probability)) motif.push_back({step, static_cast<int>(dice_.below(7)) - 3});
    }
    return motif;
  }

  /// Returns the MIDI pitch of a degree of the scale, counted from 0; an octave has 7 degrees.
  [[nodiscard]] double pitch(int degree) const {
    return traits_.tonic + 12 * (degree / 7) + scale_of(traits_.mode)[static_cast<std::size_t>(degree % 7)];
  }

  [[nodiscard]] int nearest_degree(double wanted) const {
    int best = 0;
    for (int degree = 0; degree < 77; ++degree) {
      if (std::abs(pitch(degree) - wanted) < std::abs(pitch(best) - wanted)) best = degree;
    }
    return best;
  }

  /// Returns the chord tone (root, third or fifth) that is at most a degree away, else the degree itself.
  [[nodiscard]] int on_chord(int degree) const {
    for (const int near : {degree, degree - 1, degree + 1}) {
      const int above = (near + 7 - root_) % 7;
      if (above == 0 || above == 2 || above == 4) return near;
    }
    return degree;
  }

  void add(Part part, int step, double steps, double pitch, double velocity) {
    const double late = 0.004 * dice_.share();  // players are not exact
    score_.notes.push_back({.part = part,
                            .start = bar_start_ + step * step_ + late,
                            .length = steps * step_ * traits_.gate,
                            .pitch = pitch,
                            .velocity = velocity * dice_.real(0.85, 1)});
  }

  void add_melody(const std::vector<MotifNote>& motif) {
    constexpr int kReach = 4;  // degrees to either side of the middle
    const int middle = nearest_degree(traits_.melody_pitch);
    for (std::size_t i = 0; i < motif.size(); ++i) {
      const auto [step, rise] = motif[i];
      const int end = i + 1 < motif.size() ? motif[i + 1].step : steps_;
      degree_ += rise;
      if (std::abs(degree_ - middle) > kReach) degree_ -= 2 * rise;
      degree_ = std::clamp(degree_, middle - kReach, middle + kReach);
      const bool is_strong = step % 8 == 0;
      if (is_strong) degree_ = on_chord(degree_);
      add(Part::melody, step, end - step, pitch(degree_), is_strong ? 1 : 0.8);
    }
  }

  /// Returns root, third and fifth, each in the octave next to the middle of the accompaniment.
  [[nodiscard]] std::array<double, 3> chord() const {
    const double middle = 48 + 0.6 * (traits_.melody_pitch - 57);
    std::array<double, 3> pitches{pitch(root_), pitch(root_ + 2), pitch(root_ + 4)};
    for (auto& tone : pitches) tone -= 12 * std::round((tone - middle) / 12);
    std::sort(pitches.begin(), pitches.end());
    return pitches;
  }

  void add_chord(Style style) {
    const auto tones = chord();
    const int every = traits_.activity < 0.3 ? steps_ : traits_.activity < 0.65 ? 8 : 4;
    const int stride = style == Style::block    ? every
                       : style == Style::broken ? std::max(1, every / 4)
                                                : every / 2;
    std::size_t next = 0;
    for (int step = 0; step < steps_; step += stride) {
      const int length = std::min(stride, steps_ - step);
      if (style == Style::broken) {
        static constexpr std::array<std::size_t, 4> kOrder{0, 1, 2, 1};
        add(Part::chords, step, length, tones[kOrder[next++ % 4]], 1);
      } else {
        for (const double tone : tones) add(Part::chords, step, length, tone, step == 0 ? 0.8 : 0.65);
      }
    }
    if (dice_.chance(traits_.roughness)) {  // a semitone against the chord
      const double tone = tones[dice_.below(3)];
      add(Part::chords, 0, steps_, dice_.chance(0.5) ? tone + 1 : tone + 11, traits_.roughness);
    }
  }

  void add_bass() {
    const double lowest = 33 + 0.35 * (traits_.melody_pitch - 57);
    double tone = pitch(root_);
    tone -= 12 * std::floor((tone - lowest) / 12);
    const int every = traits_.activity < 0.4 ? steps_ : traits_.activity < 0.75 ? 8 : 4;
    for (int step = 0; step < steps_; step += every)
      add(Part::bass, step, std::min(every, steps_ - step), tone, step == 0 ? 1 : 0.8);
  }

  void hit(Drum drum, int step, double velocity) {
    score_.hits.push_back({drum, bar_start_ + step * step_, velocity * traits_.drums * dice_.real(0.8, 1)});
  }

  void add_drums() {
    const int hats = traits_.activity > 0.6 ? 2 : 4;
    for (int step = 0; step < steps_; ++step) {
      const int beat = step / kStepsPerBeat;
      const bool is_beat = step % kStepsPerBeat == 0;
      if (is_beat && (traits_.beats == 3 ? beat == 0 : beat % 2 == 0)) hit(Drum::kick, step, 1);
      if (is_beat && (traits_.beats == 3 ? beat > 0 : beat % 2 == 1)) hit(Drum::snare, step, 0.8);
      if (step % hats == 0) hit(Drum::hat, step, is_beat ? 0.6 : 0.4);
      if (step % 4 == 2 && dice_.chance(0.3 * traits_.activity)) hit(Drum::kick, step, 0.7);
    }
  }

  const Traits& traits_;
  Dice& dice_;
  int steps_;    ///< steps in a bar
  double step_;  ///< s that a step lasts
  Score score_;
  double bar_start_ = 0;
  int root_ = 0;    ///< a degree: that of the bar's chord
  int degree_ = 0;  ///< a degree: that of the melody's last note
};

}  // namespace spectrogram_gan
