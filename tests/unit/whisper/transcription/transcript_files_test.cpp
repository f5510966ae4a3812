// SPDX-License-Identifier: MIT
// Tests whisper/transcription: subtitle_lines, transcript_texts
// Tests whisper/text: python_text
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>

#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/transcription/transcript_files.hpp>

#include <filesystem>
#include <string>
#include <vector>

using namespace whisper_test;
using looptorch::testing::TemporaryFolder;
using whisper::SubtitleOptions, whisper::text_of, whisper::Transcription, whisper::TranscriptFiles;

namespace {

/// A recorded result of openai-whisper.
Transcription recorded_result(const std::string& setting) {
  const auto json = looptorch::load_json(kParity / "whisper_long.json").at(setting);
  Transcription result{json.at("text").as_string(), {}, json.at("language").as_string()};
  for (const auto& from : json.at("segments").as_array()) {
    whisper::Segment segment{.seek = from.at("seek").as_int(),
                             .start = from.at("start").as_number(),
                             .end = from.at("end").as_number(),
                             .text = from.at("text").as_string(),
                             .tokens = {},
                             .temperature = from.at("temperature").as_number(),
                             .average_log_probability = from.at("avg_logprob").as_number(),
                             .compression_ratio = from.at("compression_ratio").as_number(),
                             .no_speech_probability = from.at("no_speech_prob").as_number()};
    for (const auto& id : from.at("tokens").as_array()) segment.tokens.push_back(id.as_int());
    for (const auto& word : from.get("words", looptorch::Json::array()).as_array())
      segment.words.push_back({word.at("word").as_string(), word.at("start").as_number(),
                               word.at("end").as_number(), word.at("probability").as_number()});
    result.segments.push_back(std::move(segment));
  }
  result.has_words = json.at("segments").at(std::size_t{0}).contains("words");
  return result;
}

std::string recorded_file(const std::string& name) {
  return looptorch::read_file(kParity / "whisper_long" / name);
}

}  // namespace

TEST_CASE("Texts, subtitles, tables and JSON are openai-whisper's, byte for byte") {
  for (const std::string name : {"plain", "odd"}) {
    CAPTURE(name);
    const auto result = recorded_result(name == "plain" ? "default" : name);
    for (const std::string format : {"txt", "srt", "vtt", "tsv"})
      CHECK(text_of(format, result) == recorded_file(name + "." + format));
    CHECK(whisper::json_of(result) == recorded_file(name + ".json"));
  }
}

TEST_CASE("Words become subtitles as openai-whisper's writers make them of words") {
  const auto result = recorded_result("words");
  CHECK(whisper::json_of(result) == recorded_file("words.json"));
  CHECK(text_of("srt", result) == recorded_file("words.srt"));
  CHECK(text_of("srt", result, {.max_line_width = 42, .max_line_count = 2}) == recorded_file("lines.srt"));
  CHECK(text_of("vtt", result, {.max_line_width = 30}) == recorded_file("width.vtt"));
  CHECK(text_of("vtt", result, {.max_words_per_line = 4}) == recorded_file("few.vtt"));
  CHECK(text_of("vtt", result, {.max_line_width = 42, .max_line_count = 1, .highlight_words = true}) ==
        recorded_file("lit.vtt"));
  const SubtitleOptions narrow{.max_line_width = 12, .max_line_count = 2, .highlight_words = true};
  const auto odd = recorded_result("odd_words");
  CHECK(text_of("srt", odd, narrow) == recorded_file("odd_words.srt"));
  CHECK(text_of("vtt", odd, narrow) == recorded_file("odd_words.vtt"));
}

TEST_CASE("A transcript without segments gives empty files of each kind") {
  const Transcription empty{"", {}, "en"};
  CHECK(text_of("txt", empty).empty());
  CHECK(text_of("srt", empty).empty());
  CHECK(text_of("vtt", empty) == "WEBVTT\n\n");
  CHECK(text_of("tsv", empty) == "start\tend\ttext\n");
  CHECK(whisper::json_of(empty) == R"({"text": "", "segments": [], "language": "en"})");
}

TEST_CASE("Files are named after the recording, in a folder that is made") {
  const TemporaryFolder folder;
  const auto result = recorded_result("default");
  const TranscriptFiles all(folder / "new/folder", "all", {});
  const auto written = all.write("talks/first.talk.wav", result);
  REQUIRE(written.size() == 5);
  for (const auto& path : written) CHECK(std::filesystem::is_regular_file(path));
  CHECK(looptorch::read_file(folder / "new/folder/first.talk.srt") == recorded_file("plain.srt"));
  const TranscriptFiles one(folder / "one", "tsv", {});
  CHECK(one.write("-", result) == std::vector<std::filesystem::path>{folder / "one/stdin.tsv"});
  CHECK(one.write("-", result).size() == 1);  // again, over the first
}

TEST_CASE("Recordings whose files would replace each other's are refused") {
  CHECK_NOTHROW(TranscriptFiles::require_distinct({"a.wav", "b.wav", "-"}));
  CHECK_THROWS_WITH(TranscriptFiles::require_distinct({"x/a.wav", "b.wav", "y/a.flac"}),
                    "x/a.wav and y/a.flac would be written to the same files: a.*");
}
