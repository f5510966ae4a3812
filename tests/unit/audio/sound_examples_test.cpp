// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/audio/sound_examples.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

using looptorch::Example, looptorch::SoundExample, looptorch::audio::SoundExamples,
    looptorch::audio::TitledClip, looptorch::testing::TemporaryFolder;

namespace {

TitledClip tone(const std::filesystem::path& file, double seconds, std::int64_t rate = 16000) {
  const auto count = static_cast<std::int64_t>(seconds * static_cast<double>(rate));
  looptorch::audio::encode(file, {at::sin(at::arange(count, at::kFloat) * 0.3F) * 0.5, rate});
  return {file.stem(), {.audio_filepath = file, .text = ""}};
}

std::vector<std::string> titles(const std::vector<Example>& examples) {
  std::vector<std::string> titles;
  for (const auto& example : examples) titles.push_back(std::get<SoundExample>(example).title);
  return titles;
}

}  // namespace

TEST_CASE("Sound of a report: clips are played whole, as far as the limit goes") {
  const TemporaryFolder folder;
  const auto a = tone(folder / "a.wav", 2), b = tone(folder / "b.wav", 3),
             c = tone(folder / "c.wav", 0.5, 8000);
  SoundExamples sounds(3);
  std::vector<Example> examples;
  sounds.add_to(examples, {a, b, c, {"gone", {.audio_filepath = folder / "gone.wav", .text = ""}}});
  REQUIRE(titles(examples) == std::vector<std::string>{"a", "c"});  // b does not fit beside a
  const auto& first = std::get<SoundExample>(examples[0]);
  CHECK(first.sample_rate == 16000);
  REQUIRE(first.samples.size() == 32000);
  CHECK(first.samples[1] == Approx(0.5 * std::sin(0.3)).margin(1e-4));
  CHECK(std::get<SoundExample>(examples[1]).samples.size() == 8000);  // at the same rate

  auto part = b;
  part.clip.start = 1, part.clip.end = 1.25;
  std::vector<Example> other;
  sounds.add_to(other, {part});
  REQUIRE(titles(other) == std::vector<std::string>{"b"});
  CHECK(std::get<SoundExample>(other[0]).samples.size() == 4000);
}

TEST_CASE("Sound of a report: files are read once, and added after what is there") {
  const TemporaryFolder folder;
  const std::vector<TitledClip> clips{tone(folder / "a.wav", 1)};
  SoundExamples sounds;
  std::vector<Example> once, again{looptorch::TextExample{"a", {}}};
  sounds.add_to(once, clips);
  std::filesystem::remove(folder / "a.wav");
  sounds.add_to(again, clips);
  REQUIRE((once.size() == 1 && again.size() == 2));
  CHECK(std::get<SoundExample>(again[1]).samples == std::get<SoundExample>(once[0]).samples);
}
