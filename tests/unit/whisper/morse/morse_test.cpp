// SPDX-License-Identifier: MIT
// Morse code: its times by PARIS, and that what is rendered can be read by a decoder that knows nothing of
// how it was made. Tests whisper: headers
// Tests whisper/morse: morse_clips, morse_code, morse_sound, morse_text
#include "support/precompiled.hpp"

#include <whisper/morse/morse_clips.hpp>
#include <whisper/morse/morse_code.hpp>
#include <whisper/morse/morse_sound.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <set>
#include <string>
#include <vector>

namespace {

using looptorch::SplitMix64;

std::vector<morse::Mark> exact(const std::string& text, double words_per_minute) {
  SplitMix64 random(1);
  return morse::keyed(text, {words_per_minute, 0}, random);
}

/// Power of 10 ms around each 2.5 ms at a frequency.
std::vector<double> power_at(const std::vector<float>& samples, double hertz) {
  constexpr std::size_t kStep = 40, kWindow = 4;
  const double angle = 2 * std::numbers::pi * hertz / morse::kSampleRate;
  const double along = std::cos(angle), across = std::sin(angle);
  double cosine = 1, sine = 0;     // turned on from sample to sample
  std::vector<double> real, imag;  // of each step
  const float* sample = samples.data();
  for (std::size_t step = 0; step < samples.size() / kStep; ++step) {
    double re = 0, im = 0;
    for (const float* const end = sample + kStep; sample != end; ++sample) {
      re += *sample * cosine, im += *sample * sine;
      const double turned = cosine * along - sine * across;
      sine = sine * along + cosine * across, cosine = turned;
    }
    real.push_back(re), imag.push_back(im);
  }
  std::vector<double> power;
  for (std::size_t step = 0; step + kWindow <= real.size(); ++step) {
    double re = 0, im = 0;
    for (std::size_t i = step; i < step + kWindow; ++i) re += real[i], im += imag[i];
    power.push_back(re * re + im * im);
  }
  return power;
}

/// Reads clean Morse code of unknown pitch and speed.
std::string read(const std::vector<float>& samples) {
  std::vector<double> power;
  double most = 0;
  for (double hertz = 440; hertz <= 860; hertz += 20) {
    auto here = power_at(samples, hertz);
    double sum = 0;
    for (const double p : here) sum += p;
    if (sum > most) most = sum, power = std::move(here);
  }
  auto sorted = power;
  std::sort(sorted.begin(), sorted.end());
  const double limit = sorted[sorted.size() * 98 / 100] / 5;

  std::vector<std::pair<bool, double>> runs;  // down or up, steps
  for (const double p : power) {
    if (runs.empty() || runs.back().first != (p > limit)) runs.emplace_back(p > limit, 0);
    ++runs.back().second;
  }
  if (!runs.empty() && !runs.front().first) runs.erase(runs.begin());
  // The unit is the mean of the short half of the gaps within characters and dots.
  std::vector<double> lengths;
  for (const auto& [down, steps] : runs) lengths.push_back(steps);
  std::sort(lengths.begin(), lengths.end());
  double unit = lengths[lengths.size() / 4];

  const auto character_of = [](const std::string& code) {
    for (char c = ' '; c <= 'z'; ++c)
      if ((c < 'A' || c > 'Z') && morse::code_of(c) == code) return c;
    return '#';
  };
  std::string text, code;
  for (const auto& [down, steps] : runs) {
    if (down) {
      code += steps > 2 * unit ? '-' : '.';
    } else if (steps > 2 * unit) {
      text += character_of(code);
      code.clear();
      if (steps > 5 * unit) text += ' ';
    }
  }
  if (!code.empty()) text += character_of(code);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace

TEST_CASE("PARIS takes 50 units, whatever the speed", "[morse]") {
  for (const double speed : {5., 15., 20., 40.}) {
    const auto marks = exact("paris paris", speed);
    REQUIRE(marks.size() == 28);
    CHECK(marks[14].begin == Approx(60 / speed));
    CHECK(marks[0].begin == 0);
  }
}

TEST_CASE("dots, dashes and gaps are 1, 3, 1, 3 and 7 units long", "[morse]") {
  const auto marks = exact("so s", 60);  // a unit is 20 ms
  std::vector<int> times;
  for (const auto& mark : marks)
    for (const double at : {mark.begin, mark.end}) times.push_back(static_cast<int>(std::lround(at * 1000)));
  CHECK(times ==
        std::vector<int>{0, 20, 40, 60, 80, 100, 160, 220, 240, 300, 320, 380, 520, 540, 560, 580, 600, 620});
  CHECK(exact("", 20).empty());
  CHECK(exact(" e ", 20).size() == 1);
  CHECK(morse::code_of('Q') == "--.-");
}

TEST_CASE("no two characters share a code", "[morse]") {
  std::set<std::string> codes;
  int known = 0;
  for (int c = 0; c < 128; ++c)
    if (const auto code = morse::code_of(static_cast<char>(c)); !code.empty() && !(c >= 'A' && c <= 'Z'))
      ++known, codes.emplace(code);
  CHECK(known == 49);
  CHECK(codes.size() == 49);
}

TEST_CASE("what cannot be keyed is refused by name", "[morse]") {
  CHECK_THROWS_WITH(exact("a~b", 20), Catch::Contains("\"a~b\": character 2"));
  CHECK_THROWS_AS(exact("a", 0), morse::MorseError);
  CHECK_THROWS_AS(exact("a", std::nan("")), morse::MorseError);
  SplitMix64 random(1);
  CHECK_THROWS_AS(morse::keyed("a", {20, .5}, random), morse::MorseError);
}

TEST_CASE("a hand's lengths scatter as asked", "[morse]") {
  SplitMix64 random(3);
  const double unit = morse::unit_seconds(20);
  double sum = 0, squares = 0;
  const auto marks = morse::keyed(std::string(4000, 'e'), {20, .06}, random);
  for (const auto& mark : marks) {
    const double share = (mark.end - mark.begin) / unit;
    sum += share, squares += share * share;
  }
  const double mean = sum / 4000;
  CHECK(mean == Approx(1).margin(.005));
  CHECK(std::sqrt(squares / 4000 - mean * mean) == Approx(.06).margin(.004));
}

TEST_CASE("what is rendered clean can be read", "[morse]") {
  morse::Clips clips({.seconds = {3, 15}, .conditions = {*morse::find_conditions("clean")}, .noise_share = 0},
                     5);
  int right = 0;
  for (int i = 0; i < 25; ++i) {
    const auto clip = clips.next();
    const std::string decoded = read(clip.samples());
    right += decoded == clip.text;
    INFO(clip.words_per_minute << " words a minute: \"" << decoded << "\", keyed \"" << clip.text << '"');
    CHECK(std::abs(static_cast<int>(decoded.size()) - static_cast<int>(clip.text.size())) <= 1);
  }
  CHECK(right >= 24);
}

TEST_CASE("noise is as strong as the conditions say", "[morse]") {
  auto conditions = *morse::find_conditions("clean");
  conditions.fading = {0, 0}, conditions.drift_hz = {0, 0};
  conditions.snr_db = {10, 10};
  const std::vector<morse::Mark> held{{0, 10}};
  SplitMix64 a(7), b(7);
  const auto noise = morse::render({}, 0, 10, conditions, a),
             both = morse::render(held, 0, 10, conditions, b);
  double of_noise = 0, of_both = 0;
  for (std::size_t i = 0; i < noise.size(); ++i)
    of_noise += noise[i] * noise[i], of_both += both[i] * both[i];
  CHECK(10 * std::log10((of_both - of_noise) / of_noise) == Approx(10).margin(.5));
}

TEST_CASE("characters for beginners fit into short clips, and all of them are keyed") {
  morse::Clips clips({.words_per_minute = {15, 25}, .seconds = {.5, 1.5}, .noise_share = .1, .characters = 3},
                     1);
  std::set<char> keyed;
  int silent = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto clip = clips.next();
    if (clip.text.empty() && ++silent > 0) continue;
    CHECK((clip.text.size() <= 5 && clip.text.front() != ' ' && clip.text.back() != ' '));
    CHECK(clip.start + clip.marks.back().end < clip.seconds);
    CHECK((clip.seconds >= .5 && clip.seconds <= 1.5));
    for (const char c : clip.text) keyed.insert(c);
  }
  CHECK(std::abs(silent - 200) < 60);
  CHECK(keyed.size() == 41);  // 26 letters, 10 digits, 4 signs and the blank
  CHECK_THROWS_WITH(morse::Clips({.words_per_minute = {15, 25}, .seconds = {.1, .5}, .characters = 1}, 1),
                    "no character fits into 0.5 s");
}

TEST_CASE("clips keep their ranges and never repeat a text", "[morse]") {
  morse::Clips clips({.seconds = {3, 12}, .noise_share = .2}, 1),
      again({.seconds = {3, 12}, .noise_share = .2}, 1);
  std::set<std::string> texts, names;
  int silent = 0;
  for (int i = 0; i < 300; ++i) {
    const auto clip = clips.next();
    CHECK(clip.seconds >= 3);
    CHECK(clip.seconds <= 12);
    CHECK(clip.words_per_minute >= 15);
    CHECK(clip.words_per_minute <= 40);
    names.emplace(clip.conditions.name);
    if (clip.text.empty())
      ++silent;
    else
      CHECK((texts.insert(clip.text).second && clip.start + clip.marks.back().end < clip.seconds));
    const auto same = again.next();
    CHECK(same.text == clip.text);
    if (i % 60 == 0) CHECK(same.samples() == clip.samples());
  }
  CHECK(names.size() == 5);
  CHECK(std::abs(silent - 60) < 25);
  CHECK_THROWS_WITH(morse::Clips({.words_per_minute = {5, 6}, .seconds = {3, 8}}, 1),
                    Catch::Contains("23.04 s"));
}
