// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../reference.hpp"

#include <whisper/transcription/segments.hpp>

#include <string>
#include <vector>

using namespace whisper_test;
using whisper::Segment, whisper::SegmentSplitter, whisper::WindowSegments;

namespace {

using Ids = std::vector<int64_t>;

constexpr int64_t kEnd = 295, kFirst = 1000;  // end of text; the timestamp of 0 s

/// The timestamp of a time in seconds.
int64_t at_second(double seconds) { return kFirst + std::llround(seconds * 50); }

whisper::Tokenizer small_tokenizer() { return whisper::load_tokenizer(kParity / "small_tokenizer.json"); }

WindowSegments split(const Ids& tokens, whisper::WindowSpan place = {0, 3000}) {
  const auto tokenizer = small_tokenizer();
  whisper::DecodingOptions decoding;
  decoding.end_of_text = kEnd;
  decoding.special.no_timestamps = kFirst - 1;
  return SegmentSplitter(tokenizer, decoding)({.text = {},
                                               .language = {},
                                               .tokens = tokens,
                                               .average_log_probability = -0.5,
                                               .no_speech_probability = 0.25,
                                               .compression_ratio = 1.5,
                                               .temperature = 0.2},
                                              place);
}

Ids join(std::initializer_list<Ids> parts) {
  Ids all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Ids kHello = small_tokenizer().encode("hello"), kWorld = small_tokenizer().encode(" world");

}  // namespace

TEST_CASE("Pairs of timestamps end segments, and the next window begins at the last pair") {
  const auto window = split(
      join({{at_second(0)}, kHello, {at_second(2.4), at_second(2.5)}, kWorld, {at_second(5), at_second(5)}}),
      {.seek = 1234, .frames = 3000});
  REQUIRE(window.segments.size() == 2);
  const auto &first = window.segments[0], &second = window.segments[1];
  CHECK(first.seek == 1234);
  CHECK(first.start == 12.34);
  CHECK(first.end == 12.34 + 120 * 0.02);
  CHECK(first.text == "hello");
  CHECK(first.tokens == join({{at_second(0)}, kHello, {at_second(2.4)}}));
  CHECK(first.average_log_probability == -0.5);
  CHECK(first.no_speech_probability == 0.25);
  CHECK(first.compression_ratio == 1.5);
  CHECK(first.temperature == 0.2);
  CHECK(second.start == 12.34 + 125 * 0.02);
  CHECK(second.text == " world");
  CHECK(window.advance == 500);
  CHECK_FALSE(window.ends_in_silence);
}

TEST_CASE("What follows the last pair is left to the next window") {
  const auto window = split(join({{at_second(0)}, kHello, {at_second(2), at_second(2)}, kWorld}));
  REQUIRE(window.segments.size() == 1);
  CHECK(window.segments[0].text == "hello");
  CHECK(window.advance == 200);
}

TEST_CASE("A single timestamp at the end says that nothing follows") {
  const auto window =
      split(join({{at_second(0)}, kHello, {at_second(2), at_second(2)}, kWorld, {at_second(4)}}), {0, 2900});
  REQUIRE(window.segments.size() == 2);
  CHECK(window.segments[1].end == Approx(4));
  CHECK(window.advance == 2900);
  CHECK(window.ends_in_silence);
}

TEST_CASE("Without a pair the window is one segment, up to its last timestamp or its own end") {
  const auto timed = split(join({{at_second(1)}, kHello, {at_second(3)}}), {100, 2000});
  REQUIRE(timed.segments.size() == 1);
  CHECK(timed.segments[0].start == 1);
  CHECK(timed.segments[0].end == Approx(4));
  CHECK(timed.advance == 2000);
  CHECK(timed.ends_in_silence);
  for (const auto& tokens : {kHello, join({{at_second(0)}, kHello})}) {
    const auto open = split(tokens, {100, 2000});
    REQUIRE(open.segments.size() == 1);
    CHECK(open.segments[0].end == 21);
    CHECK(open.segments[0].text == "hello");
    CHECK(open.advance == 2000);
    CHECK_FALSE(open.ends_in_silence);
  }
  CHECK(split({}).segments[0].text.empty());
}

TEST_CASE("A window shorter than the last timestamp ends where it ends") {
  const auto tokens = join({{at_second(0)}, kHello, {at_second(6), at_second(6)}});
  CHECK(split(tokens, {0, 500}).advance == 500);
}

TEST_CASE("Text that was decoded without timestamps may hold a pair of them all the same") {
  const auto window = split(join({kHello, {at_second(2), at_second(2)}, kWorld}), {100, 3000});
  REQUIRE(window.segments.size() == 1);
  CHECK(window.segments[0].start == 1);
  CHECK(window.segments[0].end == 3);
}

TEST_CASE("Segments without duration or text are emptied") {
  std::vector<Segment> segments(3);
  for (auto& segment : segments)
    segment = {.start = 1, .end = 2, .text = " word", .tokens = {1}, .words = {{}}};
  segments[1].end = 1;
  segments[2].text = " \xE3\x80\x80\n";  // an ideographic space
  whisper::clear_empty(segments);
  CHECK(segments[0].text == " word");
  for (const size_t i : {1, 2}) {
    CHECK(segments[i].text.empty());
    CHECK(segments[i].tokens.empty());
    CHECK(segments[i].words.empty());
  }
}
