// SPDX-License-Identifier: MIT
// Tests whisper/audio: sound_levels
#include "support/precompiled.hpp"

#include <whisper/audio/sound_levels.hpp>
#include <whisper/audio/voice_activity.hpp>

#include <cmath>
#include <vector>

using whisper::find_speech, whisper::FrameSpan, whisper::pack_speech, whisper::SoundLevels;

namespace {

/// Levels of a noise that varies by 2 dB around `floor`, with speech at `floor + above` in the spans.
std::vector<float> levels(size_t frames, const std::vector<FrameSpan>& speech, float floor,
                          float above = 30) {
  std::vector<float> result(frames);
  for (size_t i = 0; i < frames; ++i) result[i] = floor + 2 * std::sin(0.7F * static_cast<float>(i));
  for (const auto& span : speech)
    for (auto i = span.begin; i < span.end; ++i) result[static_cast<size_t>(i)] += above;
  return result;
}

void check_found(const std::vector<FrameSpan>& found, const std::vector<FrameSpan>& spoken) {
  REQUIRE(found.size() == spoken.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].begin <= spoken[i].begin);
    CHECK(found[i].begin >= spoken[i].begin - 30);
    CHECK(found[i].end >= spoken[i].end);
    CHECK(found[i].end <= spoken[i].end + 50);
  }
}

}  // namespace

TEST_CASE("Speech is found above quiet and loud noise alike, with its margins") {
  const std::vector<FrameSpan> spoken{{300, 700}, {900, 1200}, {2500, 2600}};
  for (const float floor : {-80.F, -50.F, -35.F})
    check_found(find_speech(levels(4000, spoken, floor)), spoken);
}

TEST_CASE("The noise floor follows a noise that grows") {
  const std::vector<FrameSpan> spoken{{300, 700}, {4000, 4400}};
  auto sound = levels(6000, {spoken[0]}, -70);
  const auto later = levels(6000, {spoken[1]}, -45, 20);
  std::copy(later.begin() + 3000, later.end(), sound.begin() + 3000);
  auto found = find_speech(sound);
  // Where the noise sets in it may pass for speech until its window of 10 s holds nothing else.
  std::erase_if(found, [](const FrameSpan& span) { return span.begin > 2900 && span.end < 3600; });
  check_found(found, spoken);
}

TEST_CASE("Short pauses belong to the speech around them, short bursts are no speech") {
  const auto found = find_speech(levels(2000, {{300, 500}, {530, 700}, {1500, 1502}}, -60));
  check_found(found, {{300, 700}});
  CHECK(find_speech(levels(2000, {}, -60)).empty());
  CHECK(find_speech({}).empty());
  CHECK(find_speech(std::vector<float>(500, SoundLevels::kSilence)).empty());
}

TEST_CASE("Far below the loud parts nothing is speech, however quiet the rest is") {
  auto sound = levels(3000, {{300, 900}}, -110, 90);
  for (size_t i = 2000; i < 2200; ++i) sound[i] = -80;  // 60 dB below, 30 dB above the rest
  check_found(find_speech(sound), {{300, 900}});
}

TEST_CASE("Chunks hold all speech, are no longer than asked for, and in order") {
  const auto sound = levels(30'000, {}, -60);
  const std::vector<FrameSpan> speech{{0, 1000},    {1100, 2900},   {3100, 3400},
                                      {5000, 5100}, {9000, 18'000}, {18'050, 18'500}};
  const auto chunks = pack_speech(speech, 3000, sound);
  CHECK(chunks.front() == FrameSpan{0, 2900});
  CHECK(chunks[1] == FrameSpan{3100, 5100});
  for (size_t i = 0; i < chunks.size(); ++i) {
    CHECK(chunks[i].size() > 0);
    CHECK(chunks[i].size() <= 3000);
    if (i > 0) CHECK(chunks[i].begin >= chunks[i - 1].end);
  }
  for (const auto& span : speech) {
    auto reached = span.begin;
    for (const auto& chunk : chunks)
      if (chunk.begin <= reached) reached = std::max(reached, chunk.end);
    CHECK(reached >= span.end);
  }
}

TEST_CASE("Speech without a pause is cut where it is quietest") {
  auto sound = levels(8000, {{0, 8000}}, -60);
  for (size_t i = 2195; i < 2205; ++i) sound[i] -= 15;
  const auto chunks = pack_speech({{0, 4000}}, 3000, sound);
  REQUIRE(chunks.size() == 2);
  CHECK(std::abs(chunks[0].end - 2200) <= 6);
  CHECK(chunks[1] == FrameSpan{chunks[0].end, 4000});
}

TEST_CASE("Levels are those of the samples, whatever blocks they come in") {
  SoundLevels whole, parts;
  const auto samples =
      at::cat({at::full({160}, 1.F), at::full({160}, -0.1F), at::zeros({160}), at::ones({100})});
  whole.add(samples);
  for (const auto& part : samples.split(77)) parts.add(part.contiguous());
  CHECK(whole.decibels() == parts.decibels());
  REQUIRE(whole.decibels().size() == 3);  // the rest waits
  CHECK(whole.decibels()[0] == Approx(0).margin(1e-4));
  CHECK(whole.decibels()[1] == Approx(-20).margin(1e-4));
  CHECK(whole.decibels()[2] == SoundLevels::kSilence);
}
