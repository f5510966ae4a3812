// SPDX-License-Identifier: MIT
// The sizes were recorded from zlib by tests/parity/deflate_size.py.
// Tests whisper/decoding/repetition: deflate_codes
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/random.hpp>

#include <whisper/decoding/repetition/deflate_size.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace {

const looptorch::Json& recorded_sizes() {
  static const auto json = looptorch::load_json(std::filesystem::path(LOOPTORCH_SOURCE_DIR) /
                                                "tests/parity/data/deflate_size.json");
  return json;
}

/// The script's `drawn`: words of a few letters; every second text repeats words.
std::string drawn_text(std::uint64_t seed) {
  looptorch::SplitMix64 draw(seed);
  const auto letters = 2 + draw.next() % 60, count = 1 + draw.next() % 400;
  std::vector<std::string> words;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (seed % 2 == 1 && !words.empty() && draw.next() % 3 != 0) {
      words.push_back(words[words.size() - 1 - draw.next() % std::min<std::size_t>(words.size(), 9)]);
      continue;
    }
    std::string word;
    for (auto left = 1 + draw.next() % 6; left > 0; --left)
      word += static_cast<char>(65 + draw.next() % letters);
    words.push_back(word);
  }
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

TEST_CASE("A text's compressed size is zlib's") {
  for (const auto& entry : recorded_sizes().at("texts").as_array()) {
    const auto& text = entry.at("text").as_string();
    CAPTURE(text);
    CHECK(static_cast<std::int64_t>(whisper::deflate_size(text)) == entry.at("size").as_int());
  }
}

TEST_CASE("The sizes of four hundred drawn texts are zlib's") {
  const auto& sizes = recorded_sizes().at("drawn").as_array();
  REQUIRE(sizes.size() == 400);
  for (std::size_t seed = 0; seed < sizes.size(); ++seed) {
    CAPTURE(seed);
    CHECK(static_cast<std::int64_t>(whisper::deflate_size(drawn_text(seed))) == sizes[seed].as_int());
  }
}

TEST_CASE("Bytes without any order are stored as they are") {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  CHECK(whisper::deflate_size(bytes) == 267);  // zlib's: 5 bytes about the block, 6 about the whole
}

TEST_CASE("A repeated sentence has a ratio above Whisper's 2.4, a plain one far below") {
  std::string repeated;
  for (int i = 0; i < 12; ++i) repeated += "I'm going to go to the next one. ";
  CHECK(whisper::compression_ratio(repeated) > 8);
  CHECK(whisper::compression_ratio("The weather would change before the evening.") < 1.1);
  CHECK(whisper::compression_ratio("") == 0);
}
