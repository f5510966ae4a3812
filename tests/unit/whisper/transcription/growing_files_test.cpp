// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/transcription/growing_files.hpp>

#include <filesystem>
#include <string>
#include <vector>

using looptorch::read_file;
using looptorch::testing::TemporaryFolder;
using whisper::GrowingFiles, whisper::Segment, whisper::StreamPart, whisper::TranscriptFiles;

namespace {

/// Two windows, of which the second begins within a subtitle of the first.
whisper::Transcription transcript(bool has_words) {
  const auto segment = [&](const std::string& text, double start) {
    Segment made{.start = start, .end = start + 2, .text = " " + text, .tokens = {1, 2}};
    if (has_words)
      made.words = {{" " + text.substr(0, 2), start, start + 1, 0.5},
                    {text.substr(2), start + 1, start + 2, 0.25}};
    return made;
  };
  return {.text = " on\"e two\n\xC3\xA9t\xC3\xA9",
          .segments = {segment("on\"e", 0), segment("two", 2), segment("\xC3\xA9t\xC3\xA9", 4)},
          .language = "en",
          .has_words = has_words};
}

std::vector<StreamPart> parts_of(const whisper::Transcription& whole) {
  const StreamPart first{.name = "-",
                         .segments = {whole.segments[0], whole.segments[1]},
                         .text = whole.text.substr(0, 9),
                         .language = "en",
                         .has_words = whole.has_words};
  auto second = first, last = first;
  second.segments = {whole.segments[2]}, second.text = whole.text.substr(9);
  last.segments.clear(), last.text.clear(), last.is_last = true;
  return {first, second, last};
}

}  // namespace

TEST_CASE("Files that have grown are those that are written at once, to the byte") {
  const TemporaryFolder folder;
  for (const bool has_words : {false, true}) {
    for (const whisper::SubtitleOptions& options : {whisper::SubtitleOptions{},
                                                    {.max_line_width = 9, .max_line_count = 2},
                                                    {.highlight_words = true}}) {
      const auto whole = transcript(has_words);
      const TranscriptFiles files(folder.path(), "all", options);
      GrowingFiles growing(files, "-", has_words);
      for (const auto& part : parts_of(whole)) growing.add(part);
      std::vector<std::string> grown;
      for (const auto& path : growing.paths()) grown.push_back(read_file(path));
      const auto paths = files.write("-", whole);
      REQUIRE(growing.paths() == paths);
      for (std::size_t i = 0; i < paths.size(); ++i) CHECK(grown[i] == read_file(paths[i]));
    }
  }
}

TEST_CASE("What has grown so far is complete: whole lines and subtitles, and no JSON before its end") {
  const TemporaryFolder folder;
  const auto file = [&](const char* format) { return folder / ("stdin." + std::string(format)); };
  looptorch::write_file_atomically(file("srt"), "an older file, which is longer than what comes");
  GrowingFiles growing(TranscriptFiles(folder.path(), "all", {}), "-", false);
  CHECK(read_file(file("vtt")) == "WEBVTT\n\n");
  CHECK(read_file(file("srt")).empty());
  const auto whole = transcript(false);
  const auto parts = parts_of(whole);
  growing.add(parts[0]);
  auto begun = whole;
  begun.segments.pop_back();
  for (const std::string format : {"txt", "srt", "vtt", "tsv"})
    CHECK(read_file(file(format.c_str())) == whisper::text_of(format, begun));
  CHECK_FALSE(std::filesystem::exists(file("json")));
  growing.add(parts[1]);
  growing.add(parts[2]);
  CHECK(looptorch::load_json(file("json")).at("segments").as_array().size() == 3);
}

TEST_CASE("A file that cannot be written is an error that names it") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "stdin.txt");
  CHECK_THROWS_WITH(GrowingFiles(TranscriptFiles(folder.path(), "txt", {}), "-", false),
                    Catch::Contains("stdin.txt: cannot create: "));
  std::filesystem::create_symlink("/dev/full", folder / "stdin.tsv");
  CHECK_THROWS_WITH(GrowingFiles(TranscriptFiles(folder.path(), "tsv", {}), "-", false),
                    Catch::Contains("stdin.tsv: cannot write: No space left"));
}
