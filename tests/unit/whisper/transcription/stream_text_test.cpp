// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../random_recognizer.hpp"

#include <whisper/transcription/sliding_windows.hpp>
#include <whisper/transcription/stream_text.hpp>

#include <cstddef>
#include <string>
#include <vector>

using whisper::SegmentTexts, whisper::ShownText;

TEST_CASE("The texts of a stream's parts are that of the whole, wherever its characters are cut") {
  const auto recognizer = whisper_test::random_recognizer();
  const auto ids = recognizer.tokenizer.encode(" \xE4\xBB\x8A\xE6\x97\xA5 a\xC3\xA9 \xF0\x9F\x8E\xB5!");
  REQUIRE(ids.size() > 8);  // so small a vocabulary has bytes
  for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
    for (std::size_t end = cut; end <= ids.size(); ++end) {  // the last character may be cut off
      whisper::Transcription whole;
      const auto from = ids.begin();
      whole.segments.push_back({.tokens = {from, from + std::ptrdiff_t(cut)}});
      whole.segments.push_back({.tokens = {from + std::ptrdiff_t(cut), from + std::ptrdiff_t(end)}});
      whole.segments[0].tokens.insert(whole.segments[0].tokens.begin(), 400);  // a timestamp
      join_text(whole, recognizer);
      SegmentTexts texts(recognizer);
      auto text = texts.add({whole.segments[0]});
      CHECK(looptorch::find_invalid_utf8(text) == std::string::npos);
      text += texts.add({whole.segments[1]});
      CHECK(text + texts.finish() == whole.text);
      CHECK(texts.finish().empty());
    }
  }
}

TEST_CASE("A text is shown as it grows, without white space at its ends") {
  ShownText text;
  CHECK(text.add(" ").empty());
  CHECK(text.add(" \t").empty());
  CHECK(text.add("  good  ") == "good");
  CHECK(text.add("").empty());
  CHECK(text.add(" morning\xE3\x80\x80") == "   morning");
  CHECK(text.add(".") == "\xE3\x80\x80.");
  CHECK(text.add("  ").empty());
}
