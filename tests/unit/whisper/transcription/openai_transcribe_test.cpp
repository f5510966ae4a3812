// SPDX-License-Identifier: MIT
// With the weights of tiny.en: the segments, tokens and words that tests/parity/whisper_long.py recorded from
// openai-whisper's `transcribe` for a recording of two minutes.
// Tests whisper/transcription: segments, sliding_windows, word_times
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>

#include "../reference.hpp"

#include <whisper/decoding/decoding_flags.hpp>
#include <whisper/transcription/sliding_windows.hpp>
#include <whisper/transcription/transcribe_options.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace whisper_test;

namespace {

std::vector<int64_t> ids(const looptorch::Json& json) {
  std::vector<int64_t> list;
  for (const auto& id : json.as_array()) list.push_back(id.as_int());
  return list;
}

whisper::Transcription transcribe(const std::filesystem::path& folder, const std::string& setting) {
  auto recognizer = whisper::load_recognizer(folder);
  whisper::DecodingFlags options;
  options.timestamps = setting != "untimed";
  if (setting == "prompted" || setting == "carried")
    options.initial_prompt = "An interview with Edward, the lighthouse keeper.";
  if (setting == "prompted") options.beam_size = 2;
  options.apply(recognizer);
  whisper::TranscriptionPlan plan{.condition_on_previous_text = setting != "unconditioned"};
  plan.carry_initial_prompt = setting == "carried";
  if (setting == "clips") plan.clips = whisper::parse_clips("3.3,21,30.504,58,95");
  if (setting == "carried") plan.clips = whisper::parse_clips("0,12,16,28,95,113");
  if (setting == "words") plan.word_heads = whisper::load_alignment_heads(folder, recognizer.model->config());
  whisper::Recording recording(kParity / "whisper_long.opus", 80, "long");
  return whisper::SlidingWindows(recognizer, plan)(recording);
}

void compare_words(const std::vector<whisper::Word>& words, const looptorch::JsonArray& expected) {
  REQUIRE(words.size() == expected.size());
  for (size_t i = 0; i < words.size(); ++i) {
    CAPTURE(words[i].text);
    CHECK(words[i].text == expected[i].at("word").as_string());
    CHECK(words[i].start == Approx(expected[i].at("start").as_number()).margin(0.0201));
    CHECK(words[i].end == Approx(expected[i].at("end").as_number()).margin(0.0201));
    CHECK(words[i].probability == Approx(expected[i].at("probability").as_number()).margin(2e-3));
  }
}

void compare(const std::string& setting) {
  const auto folder = real_model_folder();
  if (!folder) return;
  const auto expected = looptorch::load_json(kParity / "whisper_long.json").at(setting);
  const auto transcription = transcribe(*folder, setting);
  CHECK(transcription.language == "en");
  CHECK(transcription.text == expected.at("text").as_string());
  const auto& segments = expected.at("segments").as_array();
  REQUIRE(transcription.segments.size() == segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& segment = transcription.segments[i];
    const auto& theirs = segments[i];
    CAPTURE(setting, i, segment.text);
    CHECK(segment.seek == theirs.at("seek").as_int());
    CHECK(segment.text == theirs.at("text").as_string());
    CHECK(segment.tokens == ids(theirs.at("tokens")));
    const double margin = setting == "words" ? 0.0201 : 0;
    CHECK(segment.start == Approx(theirs.at("start").as_number()).margin(margin).epsilon(0));
    CHECK(segment.end == Approx(theirs.at("end").as_number()).margin(margin).epsilon(0));
    CHECK(segment.temperature == 0);
    CHECK(segment.average_log_probability == Approx(theirs.at("avg_logprob").as_number()).margin(2e-3));
    CHECK(segment.no_speech_probability == Approx(theirs.at("no_speech_prob").as_number()).margin(2e-3));
    CHECK(segment.compression_ratio == Approx(theirs.at("compression_ratio").as_number()));
    if (setting == "words") compare_words(segment.words, theirs.at("words").as_array());
  }
}

}  // namespace

TEST_CASE("A recording of minutes has openai-whisper's segments, tokens and words") { compare("words"); }

TEST_CASE("So it has without word times, without the text before, with a prompt, without timestamps") {
  if (std::getenv("LOOPTORCH_WHISPER_LONG") == nullptr) return;  // half a minute each; ctest -C long sets it
  for (const char* setting : {"default", "unconditioned", "prompted", "untimed"}) compare(setting);
}

TEST_CASE(
    "Parts of a recording are transcribed as openai-whisper transcribes them, and so with its prompt carried") {
  if (std::getenv("LOOPTORCH_WHISPER_LONG") == nullptr) return;
  for (const char* setting : {"clips", "carried"}) compare(setting);
}
