// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/clips/clip_check.hpp>

#include <string>
#include <vector>

using Catch::Contains;
using looptorch::Utterance;
using whisper::ClipCheck, whisper::keep_usable, whisper::SkippedItems, whisper::OnBadAudio;

namespace {

std::vector<Utterance> numbered(int count) {
  std::vector<Utterance> out;
  for (int i = 0; i < count; ++i) out.push_back({.audio_filepath = std::to_string(i), .text = "x"});
  return out;
}

/// Refuses every clip whose number is a multiple of seven.
double measure(const Utterance& utterance) {
  const int number = std::stoi(utterance.audio_filepath.string());
  if (number % 7 == 0) throw whisper::SpeechError(utterance.audio_filepath.string() + ": is a seven");
  return number;
}

}  // namespace

TEST_CASE("Bad clips are skipped and listed in their order, whatever the number of workers") {
  for (const std::int64_t workers : {0, 1, 4}) {
    SkippedItems skipped;
    const auto kept = keep_usable(numbered(50), {.workers = workers}, skipped, measure);
    CHECK(kept.size() == 42);
    for (const auto& utterance : kept)
      CHECK(*utterance.duration == std::stoi(utterance.audio_filepath.string()));
    CHECK(skipped.count() == 8);
    CHECK(skipped.list().starts_with("0: is a seven\n7: is a seven\n14: is a seven\n"));
    CHECK_THAT(skipped.describe({.at_most = whisper::kListedClips}),
               Contains("8 clips are skipped (--on-bad-audio stop ends the run instead):\n"
                        "  0: is a seven\n") &&
                   Contains("  28: is a seven\n  and 3 more\n"));
    CHECK(skipped.describe({.from = 7}) ==
          "1 clip is skipped (--on-bad-audio stop ends the run instead):\n  49: is a seven\n");
    CHECK(skipped.describe({.from = 8}).empty());
    skipped.add("7: is a seven\nand more");
    skipped.add_lines(skipped.list() + "9: was a nine\n");
    CHECK(skipped.count() == 9);
    CHECK(skipped.list().ends_with("49: is a seven\n9: was a nine\n"));
  }
}

TEST_CASE("The first bad clip stops where that is asked for, and so do clips that are all bad") {
  SkippedItems skipped;
  auto utterances = numbered(50);
  utterances.erase(utterances.begin());
  CHECK_THROWS_WITH(keep_usable(utterances, {.workers = 4, .on_bad = OnBadAudio::stop}, skipped, measure),
                    "7: is a seven");
  CHECK_THROWS_AS(keep_usable(utterances, {.on_bad = OnBadAudio::stop}, skipped, measure),
                  whisper::SpeechError);
  const std::vector<Utterance> sevens{{.audio_filepath = "7", .text = "x"},
                                      {.audio_filepath = "14", .text = "x"}};
  CHECK_THROWS_WITH(keep_usable(sevens, {}, skipped, measure), "7: is a seven (no clip of 2 can be used)");
  CHECK(keep_usable({}, {}, skipped, measure).empty());
}

TEST_CASE("Errors that say nothing of the clip are not taken for bad audio") {
  SkippedItems skipped;
  const auto fails = [](const Utterance&) -> double { throw std::runtime_error("no memory"); };
  CHECK_THROWS_WITH(keep_usable(numbered(3), {}, skipped, fails), Contains("no memory"));
  CHECK(skipped.count() == 0);
}
