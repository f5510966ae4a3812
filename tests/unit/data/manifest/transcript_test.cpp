// SPDX-License-Identifier: MIT
// Tests data/manifest: transcript_reader
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/transcript.hpp>

#include "support/temporary_folder.hpp"
#include "support/wide_text.hpp"

#include <fstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using namespace looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

/// A folder with a recording, and transcripts of it.
struct Corpus : TemporaryFolder {
  Corpus() { std::ofstream(audio) << "audio"; }
  fs::path audio = *this / "talk.wav", json = *this / "talk.json";

  Transcript read(const std::string& contents, const TranscriptOptions& options = {}) const {
    std::ofstream(json, std::ios::binary) << contents;
    return read_transcript(json, audio, options);
  }
  /// What is said about one segment: why it is dropped, what is wrong with it, or "kept".
  std::string verdict(const std::string& segment, const TranscriptOptions& options = {}) const {
    const auto transcript = read("[" + segment + "]", options);
    if (!transcript.drops.empty()) return transcript.drops.front().reason;
    const auto& faults = transcript.manifest.faults;
    return faults.empty() ? "kept" : "wrong: " + faults.front().reason;
  }
};

using Faults = std::vector<ManifestFault>;

}  // namespace

TEST_CASE("a transcript's segments become utterances of one recording, with start and end") {
  const Corpus corpus;
  const auto transcript = corpus.read(
      R"([{"text": "turn left", "start": 0, "duration": 2.5},
          {"start": 2.5, "duration": 4, "text": "  नमस्कार\n सगळ्यांक ", "speaker": 7, "language": "mr"}])");
  CHECK(transcript.drops.empty());
  CHECK(transcript.describe_drops().empty());
  CHECK(transcript.manifest.faults.empty());
  CHECK(transcript.manifest.path == corpus.json);
  CHECK((transcript.manifest.utterances ==
         std::vector<Utterance>{{.audio_filepath = corpus.audio, .text = "turn left", .start = 0, .end = 2.5},
                                {.audio_filepath = corpus.audio,
                                 .text = "नमस्कार सगळ्यांक",
                                 .start = 2.5,
                                 .end = 6.5,
                                 .language = "mr"}}));
}

TEST_CASE("a program's own check makes a segment wrong before it can be dropped") {
  const Corpus corpus;
  const auto check = [](const Utterance& segment) {
    if (segment.language != "mr") throw ManifestError("is not Marathi");
  };
  const auto verdict = [&](const std::string& language) {
    return corpus.verdict(R"({"text": "a", "start": 0, "duration": 2, "language": ")" + language + "\"}",
                          {.check = check});
  };
  CHECK(verdict("de") == "wrong: is not Marathi");
  CHECK(verdict("mr") == "its text has 1 characters, fewer than 3");
}

TEST_CASE("what is too short, too long or too quiet is dropped, at the limits kept") {
  const Corpus corpus;
  const auto lasting = [&](const std::string& seconds) {
    return corpus.verdict(R"({"text": "abc", "start": 0.1, "duration": )" + seconds + "}");
  };
  CHECK(lasting("0.99") == "lasts 0.99 s, less than 1 s");
  CHECK(lasting("0") == "lasts 0 s, less than 1 s");
  CHECK(lasting("1") == "kept");
  CHECK(lasting("30") == "kept");
  CHECK(lasting("30.5") == "lasts 30.5 s, more than 30 s");

  const auto saying = [&](const std::string& text) {
    return corpus.verdict(R"({"text": ")" + text + R"(", "start": 1, "duration": 2})");
  };
  CHECK(saying("ab") == "its text has 2 characters, fewer than 3");
  CHECK(saying(" a \\n ") == "its text has 1 characters, fewer than 3");
  CHECK(saying("") == "its text has 0 characters, fewer than 3");
  CHECK(saying("की") == "its text has 2 characters, fewer than 3");
  CHECK(saying("abc") == "kept");
  CHECK(saying("काय") == "kept");

  const auto peaking = [&](double peak) {
    return corpus.verdict(R"({"text": "abc", "start": 1, "duration": 2})",
                          {.peak = [peak](const Utterance&) { return peak; }});
  };
  CHECK(peaking(0.0099) == "its peak is 0.0099, less than 0.01");
  CHECK(peaking(0.01) == "kept");
}

TEST_CASE("the limits can be chosen") {
  const Corpus corpus;
  const TranscriptOptions options{.min_characters = 5, .min_seconds = 2, .max_seconds = 3};
  CHECK(corpus.verdict(R"({"text": "four", "start": 0, "duration": 2})", options) ==
        "its text has 4 characters, fewer than 5");
  CHECK(corpus.verdict(R"({"text": "fives", "start": 0, "duration": 1.5})", options) ==
        "lasts 1.5 s, less than 2 s");
  CHECK(corpus.verdict(R"({"text": "fives", "start": 0, "duration": 3.5})", options) ==
        "lasts 3.5 s, more than 3 s");

  const TranscriptOptions any_length{.min_seconds = 0, .peak = [](const Utterance&) { return 1.0; }};
  CHECK(corpus.verdict(R"({"text": "abc", "start": 1, "duration": 0.1})", any_length) == "kept");
  CHECK(corpus.verdict(R"({"text": "abc", "start": 1, "duration": 0})", any_length) == "lasts 0 s");
}

TEST_CASE("the peak is asked for the segment's own part, and only where nothing else drops it") {
  const Corpus corpus;
  std::vector<Utterance> asked;
  const TranscriptOptions options{.peak = [&](const Utterance& utterance) {
    asked.push_back(utterance);
    return 0.0;
  }};
  (void)corpus.read(
      R"([{"text": "a", "start": 0, "duration": 2}, {"text": "abc", "start": 4, "duration": 2}])", options);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].audio_filepath == corpus.audio);
  CHECK(asked[0].start == 4.0);
  CHECK(asked[0].end == 6.0);
}

TEST_CASE("drops and wrong segments are counted and listed with file and line") {
  const Corpus corpus;
  const auto transcript = corpus.read(
      "\xef\xbb\xbf[\n"
      "  {\"text\": \"] \\\" , [{ kept\", \"start\": 0, \"duration\": 2},\n"
      "  {\n    \"text\": \"ab\",\n    \"start\": 0, \"duration\": 2, \"words\": [[1], {}]\n  }\n"
      "  , 7, {\"text\": \"abc\", \"start\": 0},\n\n"
      "  {\"text\": \"abc\", \"start\": 0, \"duration\": 60}]\n");
  CHECK(transcript.manifest.utterances.size() == 1);
  CHECK((transcript.drops ==
         Faults{{3, "its text has 2 characters, fewer than 3"}, {9, "lasts 60 s, more than 30 s"}}));
  CHECK((transcript.manifest.faults ==
         Faults{{7, "expected a JSON object, found an integer"}, {7, "\"duration\" is missing"}}));
  const auto path = corpus.json.string();
  CHECK(transcript.describe_drops(1) ==
        "2 segments are dropped:\n" + path + ":3: its text has 2 characters, fewer than 3\n...");
  CHECK(transcript.manifest.describe_faults(1) ==
        "2 lines are wrong:\n" + path + ":7: expected a JSON object, found an integer\n...");
}

TEST_CASE("each fault of a segment says what is wrong") {
  const Corpus corpus;
  const auto [segment, reason] = GENERATE(table<std::string, std::string>({
      {R"([])", "expected a JSON object, found an array"},
      {R"({"start": 0, "duration": 2})", "\"text\" is missing"},
      {R"({"text": "abc", "duration": 2})", "\"start\" is missing"},
      {R"({"text": 5, "start": 0, "duration": 2})", "\"text\" must be a string, found an integer"},
      {R"({"text": "abc", "start": "0", "duration": 2})", "\"start\" must be a number, found a string"},
      {R"({"text": "abc", "start": null, "duration": 2})", "\"start\" must be a number, found null"},
      {R"({"text": "abc", "start": -1, "duration": 2})", "\"start\" is -1 s; it must not be negative"},
      {R"({"text": "abc", "start": 1e20, "duration": 2})",
       "\"start\" is 1e+20 s, too late for a duration of 2 s"},
      {R"({"text": "abc", "start": 0, "duration": -2})", "\"duration\" is -2 s; it must not be negative"},
  }));
  CHECK(corpus.verdict(segment) == "wrong: " + reason);
  CHECK_THROWS_WITH(corpus.verdict(segment, {.strict = true}), corpus.json.string() + ":1: " + reason);
}

TEST_CASE("strict does not stop at what is dropped; audio that cannot be read is a fault") {
  const Corpus corpus;
  CHECK(corpus.verdict(R"({"text": "a", "start": 0, "duration": 2})", {.strict = true}) ==
        "its text has 1 characters, fewer than 3");
  const auto unreadable = [](const Utterance&) -> double { throw Error("talk.wav: ends at 3 s"); };
  const std::string segment = R"({"text": "abc", "start": 9, "duration": 2})";
  CHECK(corpus.verdict(segment, {.peak = unreadable}) == "wrong: talk.wav: ends at 3 s");
  CHECK_THROWS_WITH(corpus.verdict(segment, {.peak = unreadable, .strict = true}),
                    corpus.json.string() + ":1: talk.wav: ends at 3 s");
}

TEST_CASE("a file that is no transcript, or has no recording, is an error") {
  const Corpus corpus;
  const auto path = corpus.json.string();
  CHECK(corpus.read("[]").manifest.utterances.empty());
  CHECK_THROWS_WITH(corpus.read("{}"), path + ": expected a JSON array, found an object");
  CHECK_THROWS_AS(corpus.read("[{]"), ManifestError);
  CHECK_THROWS_WITH(corpus.read("\n[{]"), Catch::Contains(path + ": line 2, column 3"));
  CHECK_THROWS_WITH(read_transcript(corpus.json, corpus / "gone.wav"),
                    path + ": audio file " + (corpus / "gone.wav").string() + " does not exist");
  CHECK_THROWS_AS(read_transcript(corpus / "gone.json", corpus.audio), FileError);
}

TEST_CASE("a transcript as large as a disk is refused before it is read") {
  const Corpus corpus;
  (void)corpus.read("[]");
  fs::resize_file(corpus.json, std::uintmax_t{1} << 40);  // sparse
  CHECK_THROWS_AS(read_transcript(corpus.json, corpus.audio), FileError);
}

TEST_CASE("a name with a NUL is no recording") {
  const Corpus corpus;
  (void)corpus.read("[]");
  const fs::path cut = corpus.audio.string() + std::string("\0x", 2);
  CHECK_THROWS_AS(read_transcript(corpus.json, cut), ManifestError);
}

TEST_CASE("the recording of a transcript lies beside it") {
  const Corpus corpus;
  CHECK(recording_of(corpus.json) == corpus.audio);
  std::ofstream(corpus / "other.opus") << "audio";
  CHECK(recording_of(corpus / "other.json") == corpus / "other.opus");
  std::ofstream(corpus / "loud.WAV") << "audio";
  CHECK(recording_of(corpus / "loud.json") == corpus / "loud.WAV");
  CHECK_THROWS_WITH(recording_of(corpus / "none.json"),
                    (corpus / "none.json").string() +
                        ": no recording of this name ends in .wav, .flac, .mp3, .ogg, .opus, .oga, .mp2, "
                        ".aiff, .aif, .au, .caf, .w64 or .sph");
}

TEST_CASE("a transcript saved as a manifest reads back equal") {
  const Corpus corpus;
  const auto utterances =
      corpus.read(R"([{"text": "abc", "start": 0.1, "duration": 2.7}])").manifest.utterances;
  save_manifest(corpus / "talk.jsonl", utterances);
  CHECK((load_manifest(corpus / "talk.jsonl") == utterances));
}

TEST_CASE("a segment's language may stand under NeMo's key, and a transcript in UTF-16 says so") {
  const Corpus corpus;
  const auto transcript =
      corpus.read(R"([{"text": "guten Tag", "start": 0, "duration": 2.5, "lang": "de"}])");
  REQUIRE(transcript.manifest.utterances.size() == 1);
  CHECK(transcript.manifest.utterances[0].language == "de");
  CHECK(corpus.verdict(R"({"text": "guten Tag", "start": 0, "duration": 2, "lang": "de", "language": "en"})")
            .starts_with("wrong: \"language\" is \"en\" and \"lang\" is \"de\""));
  CHECK(corpus.verdict(R"({"text": "a\u0000b", "start": 0, "duration": 2})") ==
        "wrong: \"text\" holds a NUL");
  CHECK_THROWS_WITH(
      corpus.read(looptorch::testing::in_utf16(U"\ufeff[]", false)),
      corpus.json.string() +
          ": line 1, column 1 (byte 0): the text is in UTF-16LE, not UTF-8; convert it: iconv -f UTF-16LE -t UTF-8");
}

TEST_CASE("a recording is found by an equivalent name, as macOS spells it") {
  const TemporaryFolder folder;
  const std::string composed = "caf\u00e9", decomposed = "cafe\u0301";
  std::ofstream(folder / (decomposed + ".ogg")) << "audio";
  CHECK(recording_of(folder / (composed + ".json")) == folder / (decomposed + ".ogg"));
  std::ofstream(folder / "t.json") << R"([{"text": "good morning", "start": 0, "duration": 2.5}])";
  const auto transcript = read_transcript(folder / "t.json", folder / (composed + ".ogg"));
  CHECK(transcript.manifest.utterances.at(0).audio_filepath == folder / (decomposed + ".ogg"));
  std::ofstream(folder / (composed + ".ogg")) << "audio";
  CHECK(recording_of(folder / (composed + ".json")) == folder / (composed + ".ogg"));
}
