// SPDX-License-Identifier: MIT
// The flags of whisper_transcribe and of decoding: openai-whisper's spellings, and flags that would do
// nothing.
#include "support/precompiled.hpp"

#include "../random_recognizer.hpp"
#include "support/parse_words.hpp"

#include <whisper/transcription/transcribe_options.hpp>

#include <string>
#include <utility>
#include <vector>

using Catch::Matchers::Contains;

namespace {

whisper::TranscribeOptions parsed(std::vector<std::string> words, const std::string& file = "a.wav") {
  whisper::TranscribeOptions options;
  looptorch::app::CommandLine line("whisper_transcribe", "");
  add_flags(line, options);
  words.insert(words.end(), {"--model=m", file});
  const bool runs = looptorch::testing::parse_words(line, std::move(words));
  REQUIRE(runs);
  return options;
}

}  // namespace

TEST_CASE("a folder for transcripts gets files of all formats, unless one is given") {
  CHECK(parsed({}).output_format.empty());
  CHECK(parsed({"--output_dir", "out"}).output_format == "all");
  CHECK(parsed({"--output_dir", "out", "--output_format", "srt"}).output_format == "srt");
}

TEST_CASE("flags of a transcription that would do nothing are refused") {
  const auto refused = [](std::vector<std::string> words, const std::string& why) {
    CHECK_THROWS_WITH(parsed(std::move(words)), Contains(why));
  };
  refused({"--patience", "2"}, "--patience has no effect without --beam-size");
  refused({"--length-penalty", "0.5", "--no-fallback"}, "--length-penalty has no effect where one text");
  refused({"--length-penalty", "0.5", "--best-of", "1"}, "--length-penalty has no effect where one text");
  for (const auto& [flag, value] :
       {std::pair("sample-rate", "8000"), {"channels", "2"}, {"sample-format", "f32le"}})
    refused({std::string("--") + flag, value}, std::string("--") + flag + " has no effect on files");
  CHECK_NOTHROW(parsed({"--sample-rate", "8000", "--channels", "2"}, "-"));
  CHECK_NOTHROW(parsed({"--patience", "2", "--length-penalty", "0.5", "--beam-size", "5"}));
  CHECK_NOTHROW(parsed({"--length-penalty", "0.5"}));  // of the fallback's texts
}

TEST_CASE("openai-whisper's spellings of defaults are understood") {
  CHECK(parsed({"--fp16", "False"}).precision == "fp32");
  CHECK(parsed({"--fp16", "True"}).precision == "fp16");
  CHECK(parsed({"--fp16"}).precision == "fp16");
  CHECK(parsed({"--language", "English"}).language == "en");
  auto recognizer = whisper_test::random_recognizer();
  recognizer.decoding.suppress = {3};
  const auto before = recognizer.decoding.previous;
  parsed({"--suppress_tokens", "-1", "--initial_prompt", "None"}).decoding.apply(recognizer);
  CHECK(recognizer.decoding.suppress == std::vector<std::int64_t>{3});
  CHECK(recognizer.decoding.previous == before);
}
