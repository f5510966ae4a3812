// SPDX-License-Identifier: MIT
// Invented words and the silence around them by cases, and by what tests/parity/whisper_silences.py recorded
// from openai-whisper. Tests whisper: headers
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>

#include <whisper/transcription/hallucinations.hpp>
#include <whisper/transcription/transcribe_options.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

using whisper::FrameSpan, whisper::TranscribedWindow, whisper::Segment, whisper::SilenceSkipper;

namespace {

/// A segment of words of 0.3 s each.
Segment spoken(double start, int words, double probability) {
  Segment segment{.seek = 0, .start = start, .end = start + 0.3 * words, .text = " so", .tokens = {1, 2}};
  for (int i = 0; i < words; ++i)
    segment.words.push_back({" so", start + 0.3 * i, start + 0.3 * (i + 1), probability});
  return segment;
}
Segment said(double start, int words = 4) { return spoken(start, words, 0.9); }
Segment invented(double start, int words = 4) { return spoken(start, words, 0.01); }

/// A window of 30 s from 100 s on of a recording of 200 s, after a word that ended at 99.5 s.
constexpr TranscribedWindow kWindow{.place = {10000, 3000}, .recording = 20000, .last_speech = 99.5};

}  // namespace

TEST_CASE("Words that are ordinary are kept, and a window ends with its last word where silence follows") {
  std::vector<Segment> segments{said(100.5), said(104)};
  const auto kept = SilenceSkipper(2)(segments, kWindow, 12000);
  CHECK((segments.size() == 2 && kept.seek == 10520 && !kept.repeats));
  CHECK(SilenceSkipper(25)(segments, kWindow, 12000).seek == 13000);  // 24.8 s are not silent enough
  auto closed = kWindow;
  closed.ends_in_silence = true;
  CHECK(SilenceSkipper(2)(segments, closed, 12000).seek == 12000);
}

TEST_CASE("A window whose first words are invented begins anew after the silence before them") {
  std::vector<Segment> segments{invented(107), said(110)};
  const auto skipped = SilenceSkipper(2)(segments, kWindow, 12000);
  CHECK((skipped.repeats && skipped.seek == 10700));
  segments[0] = invented(101);  // a second of silence is too little
  CHECK_FALSE(SilenceSkipper(2)(segments, kWindow, 12000).repeats);
}

TEST_CASE("Invented words with silence on both sides go with all that follows, others stay") {
  std::vector<Segment> segments{said(100.5), invented(110), said(120)};
  const auto skipped = SilenceSkipper(2)(segments, kWindow, 13000);
  CHECK((segments.size() == 1 && skipped.seek == 11000 && !skipped.repeats));

  segments = {said(100.5), invented(102), said(120)};  // follows at once
  CHECK(SilenceSkipper(2)(segments, kWindow, 13000).seek == 12120);
  CHECK(segments.size() == 3);
  segments = {said(100.5), invented(110), said(112)};  // is followed at once
  (void)SilenceSkipper(2)(segments, kWindow, 13000);
  CHECK(segments.size() == 3);
  segments = {said(100.5), invented(110), invented(112)};  // by more of its kind
  CHECK(SilenceSkipper(2)(segments, kWindow, 13000).seek == 11000);
  CHECK(segments.size() == 1);
}

TEST_CASE("Behind invented words near the recording's end there is nothing to transcribe") {
  std::vector<Segment> segments{said(100.5), invented(127.5)};
  auto window = kWindow;
  window.recording = 13000;
  CHECK(SilenceSkipper(2)(segments, window, 13000).seek == 13000);
  CHECK(segments.size() == 1);
}

TEST_CASE("Segments without words, and windows without segments, are nothing to skip") {
  std::vector<Segment> none, empty{{.start = 100, .end = 101, .text = "", .tokens = {}}};
  CHECK(SilenceSkipper(2)(none, kWindow, 12000).seek == 12000);
  CHECK(SilenceSkipper(2)(empty, kWindow, 12000).seek == 10100);
  CHECK(empty.size() == 1);
}

TEST_CASE("A list of clips is read in pairs, of which the last may have no end") {
  constexpr auto kEnd = std::numeric_limits<std::int64_t>::max();
  CHECK(whisper::parse_clips("").empty());
  CHECK((whisper::parse_clips("0") == std::vector<FrameSpan>{{0, kEnd}}));
  CHECK((whisper::parse_clips("1.505,2.3,4") == std::vector<FrameSpan>{{150, 230}, {400, kEnd}}));
  CHECK_THROWS_WITH(whisper::parse_clips("3,2"), "--clip-timestamps: 2 comes before the time in front of it");
  CHECK_THROWS_WITH(whisper::parse_clips("x,2"), Catch::StartsWith("--clip-timestamps: "));
  CHECK_THROWS_WITH(whisper::parse_clips("-1"), Catch::StartsWith("--clip-timestamps: "));
  CHECK_THROWS_WITH(whisper::parse_clips("1,,2"), Catch::StartsWith("--clip-timestamps: "));
}

TEST_CASE("Windows of words drawn at random continue where openai-whisper's do, and keep what it keeps") {
  const auto windows = looptorch::load_json(std::filesystem::path(LOOPTORCH_SOURCE_DIR) /
                                            "tests/parity/data/whisper_silences.json");
  std::size_t shortened = 0, repeated = 0;
  for (const auto& recorded : windows.as_array()) {
    std::vector<Segment> segments;
    for (const auto& theirs : recorded.at("segments").as_array()) {
      auto& segment = segments.emplace_back(Segment{.start = theirs.at("start").as_number(),
                                                    .end = theirs.at("end").as_number(),
                                                    .text = {},
                                                    .tokens = {}});
      for (const auto& word : theirs.at("words").as_array())
        segment.words.push_back({word.at("word").as_string(), word.at("start").as_number(),
                                 word.at("end").as_number(), word.at("probability").as_number()});
    }
    const auto seek = recorded.at("seek").as_int(), frames = recorded.at("frames").as_int();
    const auto size = segments.size();
    const auto skipped = SilenceSkipper(recorded.at("threshold").as_number())(
        segments,
        {.place = {seek, frames},
         .recording = recorded.at("recording").as_int(),
         .last_speech = recorded.at("last_speech").as_number(),
         .ends_in_silence = recorded.at("ends_in_silence").as_bool()},
        seek + frames);
    CAPTURE(seek, size);
    CHECK(static_cast<std::int64_t>(skipped.repeats ? 0 : segments.size()) == recorded.at("kept").as_int());
    if (recorded.at("next").is_null())
      CHECK(skipped.seek >= recorded.at("recording").as_int());
    else
      CHECK(skipped.seek == recorded.at("next").as_int());
    repeated += skipped.repeats, shortened += !skipped.repeats && segments.size() < size;
  }
  CHECK((windows.as_array().size() > 100 && shortened > 20 && repeated > 20));
}
