// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/clips/packed_windows.hpp>

#include <algorithm>
#include <string>
#include <vector>

using looptorch::Utterance;
using whisper::PackOptions, whisper::WindowTexts;

namespace {

Utterance segment(const std::string& text, double start, double end, const std::string& language = "en") {
  return {.audio_filepath = "talk.wav", .text = text, .start = start, .end = end, .language = language};
}

std::string times(const whisper::WindowText& text) {
  std::string all;
  for (const auto& each : text.segments)
    all += looptorch::message(all.empty() ? "" : ", ", each.text, " ", each.begin, "..", each.end);
  return all;
}

struct Packed {
  std::vector<Utterance> windows;
  WindowTexts texts;

  explicit Packed(std::vector<Utterance> segments, const PackOptions& options = {}) {
    const auto letters = [](const Utterance& each) { return static_cast<int64_t>(each.text.size()); };
    windows = whisper::pack_windows(std::move(segments), options, texts, letters);
  }
  [[nodiscard]] const whisper::WindowText& text(size_t window) const {
    const auto* text = texts.find(windows[window]);
    REQUIRE(text);
    return *text;
  }
  /// The windows as "1..4 a b", a line each.
  [[nodiscard]] std::string lines() const {
    std::string all;
    for (const auto& each : windows)
      all += looptorch::message(*each.start, "..", *each.end, " ", each.text, "\n");
    return all;
  }
};

}  // namespace

TEST_CASE("Segments are packed into windows of at most 30 s, with their times and the text before") {
  const Packed packed({segment("a", 0.5, 10), segment("b", 10, 20.25), segment("c", 20.5, 29),
                       segment("d", 29, 33), segment("e", 34.5, 40)});
  CHECK(packed.lines() == "0..29 a b c\n29..40 d e\n");  // the lead of 1 s ends where the text before does
  CHECK(times(packed.text(0)) == "a 0.5..10, b 10..20.25, c 20.5..29");
  CHECK(packed.text(0).previous.empty());
  CHECK(times(packed.text(1)) == "d 0..4, e 5.5..11");
  CHECK(packed.text(1).previous == "a b c");
  CHECK_FALSE(packed.windows[0].duration);
}

TEST_CASE("A window ends before a pause that may hold untold speech, and begins a second before its text") {
  const Packed packed({segment("a", 5, 6), segment("b", 8, 9), segment("c", 11.5, 12), segment("d", 50, 51)});
  CHECK(packed.lines() == "4..9 a b\n10.5..12 c\n49..51 d\n");
  CHECK(packed.text(1).previous == "a b");
  CHECK(packed.text(1).segments.front().begin == 1);
  CHECK(packed.text(2).previous.empty());  // too long ago
  CHECK(Packed({segment("a", 0.25, 30), segment("b", 30, 59.5)}).lines() == "0..30 a\n30..59.5 b\n");
  CHECK(Packed({segment("a", 254.3, 254.8), segment("b", 255.3, 259.3)}, {.max_seconds = 6}).windows.size() ==
        1);
  CHECK(Packed({segment("b", 29, 58.5)}).lines() == "28.5..58.5 b\n");  // 30 s with a shorter lead
}

TEST_CASE("A window holds as many tokens as decoding writes, and one language") {
  const PackOptions few{.max_tokens = 3};
  CHECK(Packed({segment("aa", 0, 1), segment("b", 1, 2), segment("c", 2, 3)}, few).lines() ==
        "0..2 aa b\n2..3 c\n");
  CHECK(Packed({segment("aaaa", 0, 1), segment("b", 1, 2)}, few).lines() == "0..1 aaaa\n1..2 b\n");
  const Packed mixed({segment("ja", 0, 1, "de"), segment("yes", 1, 2), segment("no", 2, 3)});
  CHECK(mixed.lines() == "0..1 ja\n1..3 yes no\n");
  CHECK(mixed.text(1).previous.empty());
  CHECK(Packed({segment("今日は", 0, 1, "ja"), segment("いい", 1, 2, "ja")}).windows[0].text == "今日はいい");
}

TEST_CASE("Segments may come in any order, overlap, and lie in several recordings between whole clips") {
  auto other = segment("x", 0, 3);
  other.audio_filepath = "other.wav";
  const Utterance whole{.audio_filepath = "clip.wav", .text = "whole"};
  const Packed packed({segment("b", 2, 4), other, whole, segment("a", 0, 3), segment("c", 2.5, 2.75)});
  REQUIRE(packed.windows.size() == 3);
  CHECK((packed.windows[0] == whole));
  CHECK_FALSE(packed.texts.find(whole));
  CHECK(packed.windows[1].text == "a b c");
  CHECK(times(packed.text(1)) == "a 0..3, b 3..4, c 4..4");
  CHECK(*packed.windows[1].end == 4);
  CHECK((packed.windows[2].audio_filepath == "other.wav"));
  CHECK(packed.text(2).previous.empty());
}

TEST_CASE("A segment longer than a window stays alone, to be refused by its length") {
  const Packed packed({segment("a", 0, 1), segment("long", 1, 32), segment("b", 32, 33)});
  CHECK(packed.lines() == "0..1 a\n1..32 long\n32..33 b\n");
}

TEST_CASE("A window knows when the segment begins that its longest end cuts off, where one does") {
  const auto cut_off = [](const std::vector<Utterance>& segments, const PackOptions& options = {}) {
    return Packed(segments, options).text(0).cut_off;
  };
  const auto first = segment("a", 10, 37);  // the window begins at 9 s
  CHECK(cut_off({first, segment("b", 38, 40)}) == 29);
  CHECK(cut_off({first, segment("b", 38.5, 80)}) == 29.5);  // longer than a window
  CHECK(cut_off({first, segment("b", 36, 40)}) == 28);      // overlaps
  CHECK_FALSE(cut_off({first}));
  CHECK_FALSE(cut_off({first, segment("b", 38, 39)}));                   // fits
  CHECK_FALSE(cut_off({first, segment("b", 39, 40)}));                   // begins after the window
  CHECK_FALSE(cut_off({first, segment("b", 38.99, 40)}));                // none of its sound is in the window
  CHECK_FALSE(cut_off({segment("a", 10, 35), segment("b", 37.5, 40)}));  // untold speech may come before
  CHECK_FALSE(cut_off({first, segment("b", 38, 40, "de")}));
  CHECK_FALSE(cut_off({first, segment("b", 37, 38.5)}, {.max_tokens = 1}));  // fits but for its tokens
  const Packed all({first, segment("b", 38, 66), segment("c", 67, 70)});
  CHECK(all.lines() == "9..37 a\n37..66 b\n66..70 c\n");
  CHECK(all.text(1).cut_off.has_value() == false);  // 67 s is where it ends
}

TEST_CASE("Windows that end within a segment are given all the sound that their recording has") {
  Packed packed({segment("a", 0, 27), segment("b", 28, 33), segment("c", 40, 68), segment("d", 68.5, 80)});
  REQUIRE(packed.windows.size() == 4);
  const auto until = [](double end) {
    return [end](const Utterance& window) { return std::min(*window.end, end) - *window.start; };
  };
  const auto whole = whisper::whole_sounds(packed.windows, packed.texts, 30, until(1e9));
  REQUIRE(whole.size() == 2);
  CHECK((*whole.at(0).start == 0 && *whole.at(0).end == 30 && *whole.at(0).duration == 30));
  CHECK((*whole.at(2).start == 39 && *whole.at(2).duration == 30));
  CHECK(*whisper::whole_sounds(packed.windows, packed.texts, 30, until(28.5)).at(0).duration == 28.5);
  CHECK(whisper::whole_sounds(packed.windows, packed.texts, 30, until(27.5)).empty());  // the times are wrong
}
