// SPDX-License-Identifier: MIT
// Tests whisper/clips: manifest_lines
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>
#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <whisper/clips/corpus.hpp>

#include <sstream>
#include <string>
#include <vector>

using Catch::Contains;
using Catch::Matchers::StartsWith;
using looptorch::Utterance;
using looptorch::audio::ClipOutside;
using looptorch::testing::TemporaryFolder;

namespace {

/// A folder with a recording of 2 s.
struct Folder : TemporaryFolder {
  Folder() { looptorch::audio::encode(*this / "talk.wav", {at::sin(at::arange(32000) * 0.1) / 2, 16000}); }
  void write(const char* name, const std::string& text) const {
    looptorch::write_file_atomically(*this / name, text);
  }
  [[nodiscard]] Utterance segment(double start, double end) const {
    return {.audio_filepath = *this / "talk.wav", .text = "hello", .start = start, .end = end};
  }
};

}  // namespace

TEST_CASE("A segment that ends or begins after its recording's end is wrong before it is packed") {
  const Folder folder;
  const auto check = whisper::detail::check_segments({});
  CHECK_NOTHROW(check(folder.segment(0.5, 2)));
  CHECK_NOTHROW(check(folder.segment(0.5, 2.09)));
  CHECK_THROWS_AS(check(folder.segment(0.5, 2.2)), ClipOutside);
  CHECK_THROWS_AS(check(folder.segment(2.5, 3)), ClipOutside);
  CHECK_NOTHROW(check({.audio_filepath = folder / "talk.wav", .text = "hello", .duration = 9}));
  folder.write("broken.wav", "RIFF");  // found with the other clips
  auto broken = folder.segment(0, 1);
  broken.audio_filepath = folder / "broken.wav";
  CHECK_NOTHROW(check(broken));
  const auto first = whisper::detail::check_segments(
      [](const Utterance&) { throw looptorch::ManifestError("in no language"); });
  CHECK_THROWS_WITH(first(folder.segment(0.5, 2.2)), "in no language");
}

TEST_CASE("What was skipped as lists were read is known by its line, and so are clips and windows") {
  const Folder folder;
  folder.write("train.jsonl", R"({"audio_filepath": "talk.wav", "text": "one", "start": 0, "end": 0.5})"
                              "\n\nno line\n"
                              R"({"audio_filepath": "talk.wav", "text": "two", "start": 0.5, "end": 1})"
                              "\n"
                              R"({"audio_filepath": "talk.wav", "text": "three", "start": 1, "end": 3})"
                              "\n"
                              R"({"audio_filepath": "talk.wav", "text": "whole"})");
  folder.write("talk.json", R"([{"text": "first", "start": 0, "duration": 1},
                                {"text": "x", "start": 1, "duration": 1},
                                {"text": "behind", "start": 5, "duration": 1}])");
  std::ostringstream log;
  whisper::ManifestLines lines, segments;
  const auto manifest = (folder / "train.jsonl").string(), transcript = (folder / "talk.json").string();
  const auto read = whisper::read_utterances(folder / "train.jsonl", false, log,
                                             whisper::detail::check_segments({}), false, &lines);
  REQUIRE(read.size() == 3);
  REQUIRE(lines.skipped().size() == 2);
  CHECK_THAT(lines.skipped()[0], StartsWith(manifest + ":3: "));
  CHECK_THAT(lines.skipped()[1], StartsWith(manifest + ":5: ") && Contains("the clip ends at 3 s"));
  CHECK(lines(read[0]) == " (" + manifest + ":1)");
  CHECK(lines(read[1]) == " (" + manifest + ":4)");
  CHECK(lines(read[2]) == " (" + manifest + ":6)");
  CHECK(lines(folder.segment(0.25, 0.75)) == " (" + manifest + ":1 and 2 more)");  // the whole file, too
  CHECK(lines({.audio_filepath = folder / "other.wav", .text = ""}).empty());

  const auto kept = whisper::read_transcripts(folder / "talk.json", {}, false, log, {}, &segments);
  REQUIRE(kept.size() == 1);
  CHECK(segments(kept[0]) == " (" + transcript + ":1)");
  REQUIRE(segments.skipped().size() == 2);
  CHECK_THAT(segments.skipped()[0], StartsWith(transcript + ":3: "));
  CHECK(segments.skipped()[1] == transcript + ":2: its text has 1 characters, fewer than 3");

  whisper::SkippedItems skipped;
  const auto usable = whisper::keep_usable(
      read, {.workers = 0}, skipped,
      [](const Utterance& clip) {
        if (clip.text == "two") throw looptorch::Error("talk.wav: is silent");
        return 0.5;
      },
      lines);
  CHECK(usable.size() == 2);
  CHECK(skipped.list() == "talk.wav: is silent (" + manifest + ":4)\n");
}
