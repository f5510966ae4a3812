// SPDX-License-Identifier: MIT
// Words, their alignment and their times by cases; openai_transcribe_test.cpp compares them with
// openai-whisper's on speech.
// Tests whisper/transcription: time_warping, word_alignment, word_split
#include "support/precompiled.hpp"

#include <looptorch/base/files/atomic_file.hpp>

#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/transcription/word_times.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace whisper_test;
using looptorch::testing::TemporaryFolder;
using whisper::AlignedWord, whisper::Segment, whisper::WarpedPoint, whisper::Word;

namespace {

/// The least sum of a path to (token, time), by trying all.
double cheapest(const at::Tensor& costs, int64_t token, int64_t time) {
  if (token < 0 || time < 0) return std::numeric_limits<double>::infinity();
  const double here = costs[token][time].item<double>();
  if (token == 0 && time == 0) return here;
  return here + std::min({cheapest(costs, token - 1, time - 1), cheapest(costs, token - 1, time),
                          cheapest(costs, token, time - 1)});
}

std::vector<std::string> texts_of(const std::vector<whisper::WordTokens>& words) {
  std::vector<std::string> texts;
  for (const auto& word : words) texts.push_back(word.text);
  return texts;
}

AlignedWord aligned(const std::string& text, double start, double end, size_t tokens = 1) {
  return {text, std::vector<int64_t>(tokens, 5), start, end, 0.5};
}

Segment segment(double start, double end, size_t tokens) {
  return {.seek = 1000, .start = start, .end = end, .text = "x", .tokens = std::vector<int64_t>(tokens, 5)};
}

/// `window` with the words' times set; tokens from 100 on are no text.
std::vector<Segment> timed(std::vector<Segment> segments, const std::vector<AlignedWord>& words,
                           double last_speech = 0) {
  whisper::set_word_times(segments, words, last_speech, 100);
  return segments;
}

}  // namespace

TEST_CASE("A warped path is connected, ends at both ends, and none is cheaper") {
  torch::manual_seed(3);
  for (const auto& [tokens, times] : {std::pair{1, 1}, {1, 5}, {5, 1}, {4, 6}, {6, 4}, {3, 7}}) {
    const auto costs = at::rand({tokens, times}, at::kDouble) - 0.5;
    const auto path = whisper::warp_times(costs);
    CHECK(path.front() == WarpedPoint{0, 0});
    CHECK(path.back() == WarpedPoint{tokens - 1, times - 1});
    double sum = 0;
    for (size_t i = 0; i < path.size(); ++i) {
      sum += costs[path[i].token][path[i].time].item<double>();
      if (i == 0) continue;
      const auto token = path[i].token - path[i - 1].token, time = path[i].time - path[i - 1].time;
      CHECK((token | time) == 1);
      CHECK((token >= 0 && time >= 0));
    }
    CHECK(sum == Approx(cheapest(costs, tokens - 1, times - 1)).margin(1e-5));
  }
}

TEST_CASE("Words are split at blanks and punctuation, or at characters") {
  const auto tokenizer = whisper::load_tokenizer(kParity / "small_tokenizer.json");
  const auto end = tokenizer.size();
  const auto split = [&](const std::string& text, const std::string& language) {
    return texts_of(whisper::split_words(tokenizer, tokenizer.encode(text), language, end));
  };
  CHECK(split("he said: well-known, isn't", "en") ==
        std::vector<std::string>{"he", " said", ":", " well", "-known", ",", " isn", "'t"});
  const std::string chinese = "\xE4\xBD\xA0\xE5\xA5\xBD\xE5\x90\x97";
  CHECK(split(chinese, "zh") ==
        std::vector<std::string>{chinese.substr(0, 3), chinese.substr(3, 3), chinese.substr(6)});
  CHECK(split(chinese, "en") == std::vector<std::string>{chinese});
  // Two bytes of a character, and then another: as in openai-whisper the first fault is a word, and what
  // follows waits in vain.
  auto cut = tokenizer.encode(chinese.substr(0, 3));
  const auto bytes = tokenizer.bytes_of(cut);
  if (cut.size() == 3) {
    cut.pop_back();
    const auto more = tokenizer.encode("a");
    cut.insert(cut.end(), more.begin(), more.end());
    std::string joined;
    for (const auto& word : whisper::split_at_characters(tokenizer, cut)) joined += word.text;
    CHECK(joined == "\xEF\xBF\xBD");
  }
}

TEST_CASE("Running medians mirror the ends of a row") {
  const std::vector<float> row{9, 1, 2, 8, 3, 7, 4, 4, 5, 0};
  std::vector<float> sums(row.size(), 1);
  whisper::detail::add_median(row.data(), std::ssize(row), sums.data());
  const auto size = std::ssize(row);
  for (int64_t at = 0; at < size; ++at) {
    std::vector<float> around;
    for (int64_t i = at - 3; i <= at + 3; ++i)
      around.push_back(row[static_cast<size_t>(i < 0 ? -i : i >= size ? 2 * size - 2 - i : i)]);
    std::sort(around.begin(), around.end());
    CHECK(sums[static_cast<size_t>(at)] == 1 + around[3]);
  }
  float short_sums[3] = {0, 0, 0};
  whisper::detail::add_median(row.data(), 3, short_sums);
  CHECK(short_sums[0] == 9);  // fewer values than half a window stay
}

TEST_CASE("Punctuation joins its word, and segments take their words and their ends") {
  const auto segments = timed(
      {segment(10, 11, 5), segment(11, 13, 2)},
      {aligned(" \"", 0.2, 0.2), aligned("Well", 0.2, 0.5), aligned(",", 0.5, 0.5), aligned(" yes", 0.6, 0.9),
       aligned("!", 0.9, 0.9), aligned(" No", 1.4, 1.7), aligned(".", 1.7, 1.7)});
  REQUIRE(segments[0].words.size() == 2);
  CHECK(segments[0].words[0].text == " \"Well,");
  CHECK(segments[0].words[0].start == 10.2);
  CHECK(segments[0].words[1].text == " yes!");
  CHECK(segments[0].words[1].probability == 0.5);
  REQUIRE(segments[1].words.size() == 1);
  CHECK(segments[1].words[0].text == " No.");
  CHECK(segments[0].start == 10.2);
  CHECK(segments[0].end == 10.9);
  CHECK(segments[1].start == 11.4);
  CHECK(whisper::last_end(segments) == 11.7);
  CHECK(whisper::last_end({}) == 0);
}

TEST_CASE("Long words at the ends of sentences and after pauses are cut to twice the usual") {
  // The median is 0.3 s: the sign lasts 0.6 at most, and so does the word after it.
  const auto sign =
      timed({segment(10, 30, 5)}, {aligned(" a", 0, 0.3), aligned(" b", 0.3, 0.6), aligned(".", 0.6, 4),
                                   aligned(" c", 4, 4.3), aligned(" d", 4.3, 4.6)});
  CHECK(sign[0].words[1].text == " b.");
  const auto behind =
      timed({segment(10, 30, 5)}, {aligned(" a", 0, 0.3), aligned(" b", 0.3, 0.6), aligned("?", 0.6, 0.7),
                                   aligned(" c", 0.7, 4.3), aligned(" d", 4.3, 4.6)});
  CHECK(behind[0].words[2].start == 13.7);
  // The first word begins 3.3 s before its end, after a pause.
  const auto pause =
      timed({segment(10, 15, 3)}, {aligned(" a", 0, 3.3), aligned(" b", 3.3, 3.6), aligned(" c", 3.6, 3.9)});
  CHECK(pause[0].words[0].start == Approx(12.7));
  CHECK(pause[0].start == Approx(12.7));
  // Right after other speech it may be long.
  const auto close = timed({segment(10, 15, 3)},
                           {aligned(" a", 0, 3.3), aligned(" b", 3.3, 3.6), aligned(" c", 3.6, 3.9)}, 12.5);
  CHECK(close[0].words[0].start == 10);
}

TEST_CASE(
    "A folder's alignment heads are read; without them the last half of the layers follows the speech") {
  const TemporaryFolder folder;
  whisper::WhisperConfig config;
  config.decoder_layers = 3, config.decoder_attention_heads = 2;
  const auto write = [&](const std::string& json) {
    looptorch::write_file_atomically(folder / "generation_config.json", json);
  };
  write("{}");
  CHECK(whisper::load_alignment_heads(folder.path(), config) ==
        whisper::AlignmentHeads{{1, {0, 1}}, {2, {0, 1}}});
  write(R"({"alignment_heads": [[2, 1], [0, 0], [2, 0]]})");
  CHECK(whisper::load_alignment_heads(folder.path(), config) ==
        whisper::AlignmentHeads{{0, {0}}, {2, {1, 0}}});
  write(R"({"alignment_heads": [[3, 0]]})");
  CHECK_THROWS_WITH(
      whisper::load_alignment_heads(folder.path(), config),
      Catch::Contains("generation_config.json: alignment head [3, 0] of 3 layers with 2 heads"));
  write(R"({"alignment_heads": []})");
  CHECK_THROWS_AS(whisper::load_alignment_heads(folder.path(), config), whisper::GenerationConfigError);
  write(R"({"alignment_heads": [["a"]]})");
  CHECK_THROWS_AS(whisper::load_alignment_heads(folder.path(), config), whisper::GenerationConfigError);
}
