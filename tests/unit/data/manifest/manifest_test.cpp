// SPDX-License-Identifier: MIT
// Tests data/manifest: json_fields, json_utterance, manifest_reader, manifest_rows, manifest_writer
// Tests data/manifest: utterance
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/manifest.hpp>

#include "support/temporary_folder.hpp"

#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using namespace looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

/// A folder with audio files a.wav and clips/b.wav, and a manifest.
struct Corpus : TemporaryFolder {
  Corpus() {
    fs::create_directory(*this / "clips");
    std::ofstream(*this / "a.wav") << "audio";
    std::ofstream(*this / "clips/b.wav") << "audio";
  }
  fs::path manifest = *this / "train.jsonl";

  std::vector<Utterance> load(const std::string& contents, ManifestOptions options = {}) const {
    std::ofstream(manifest, std::ios::binary) << contents;
    return load_manifest(manifest, options);
  }

  /// What is said about a manifest whose second line is `line`.
  std::string complaint(const std::string& line) const {
    try {
      load("{\"audio_filepath\": \"a.wav\", \"text\": \"fine\"}\n" + line + "\n");
    } catch (const ManifestError& error) {
      const std::string place = manifest.string() + ":2: ", what = error.what();
      REQUIRE(what.substr(0, place.size()) == place);
      return what.substr(place.size());
    }
    return "accepted";
  }
};

}  // namespace

TEST_CASE("a manifest's lines become utterances, with paths relative to its folder") {
  const Corpus corpus;
  const auto utterances = corpus.load(
      R"({"audio_filepath": "clips/b.wav", "text": "नमस्कार", "duration": 2.5, "start": 1, "end": 3.5, "speaker": "kok", "language": "mr"})"
      "\n\n  \t\r\n"
      R"({"text": "two words", "audio_filepath": "./clips/../a.wav", "tags": ["en"], "speaker": null, "language": null})");
  REQUIRE(utterances.size() == 2);
  CHECK(utterances[0] == Utterance{corpus / "clips/b.wav", "नमस्कार", 2.5, 1, 3.5, "kok", "mr"});
  CHECK(utterances[1] == Utterance{corpus / "a.wav", "two words"});
}

TEST_CASE("a byte order mark, Windows line ends and absolute paths are fine") {
  const Corpus corpus;
  const std::string absolute = (corpus / "a.wav").string();
  const auto utterances =
      corpus.load("\xef\xbb\xbf{\"audio_filepath\": \"" + absolute + "\", \"text\": \"x\"}\r\n");
  REQUIRE(utterances.size() == 1);
  CHECK(utterances[0].audio_filepath == absolute);
}

TEST_CASE("a manifest without utterances, or without a file, is an error") {
  const Corpus corpus;
  CHECK_THROWS_WITH(corpus.load(""), corpus.manifest.string() + ": holds no utterances");
  CHECK_THROWS_WITH(corpus.load("\n \n"), corpus.manifest.string() + ": holds no utterances");
  CHECK_THROWS_WITH(load_manifest(corpus / "none.jsonl"),
                    (corpus / "none.jsonl").string() + ": cannot open: No such file or directory");
}

TEST_CASE("every fault names file and line") {
  const Corpus corpus;
  const auto [line, complaint] = GENERATE(table<std::string, std::string>({
      {R"([1])", "expected a JSON object, found an array"},
      {R"({"text": "x"})", R"("audio_filepath" is missing)"},
      {R"({"audio_filepath": "a.wav"})", R"("text" is missing)"},
      {R"({"audio_filepath": "", "text": "x"})", R"("audio_filepath" is empty)"},
      {R"({"audio_filepath": "a.wav", "text": ""})", R"("text" is empty)"},
      {R"({"audio_filepath": "a.wav", "text": " \t"})", R"("text" is empty)"},
      {R"({"audio_filepath": 7, "text": "x"})", R"("audio_filepath" must be a string, found an integer)"},
      {R"({"audio_filepath": "a.wav", "text": null})", R"("text" must be a string, found null)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "duration": "2"})",
       R"("duration" must be a number, found a string)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "duration": -0.5})",
       R"("duration" is -0.5 s; it must be positive)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "duration": 0})",
       R"("duration" is 0 s; it must be positive)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "start": -1})",
       R"("start" is -1 s; it must not be negative)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "start": 2, "end": 1.5})",
       R"("end" is 1.5 s; it must come after "start", 2 s)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "end": 0})",
       R"("end" is 0 s; it must come after "start", 0 s)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "speaker": 3})",
       R"("speaker" must be a string, found an integer)"},
      {R"({"audio_filepath": "a.wav", "text": "x", "language": ["en"]})",
       R"("language" must be a string, found an array)"},
  }));
  CHECK(corpus.complaint(line) == complaint);
}

TEST_CASE("text that is not JSON or not UTF-8 names the column") {
  const Corpus corpus;
  CHECK(corpus.complaint(R"({"audio_filepath": "a.wav", "text": )").substr(0, 9) == "column 37");
  const std::string invalid = corpus.complaint("{\"audio_filepath\": \"a.wav\", \"text\": \"caf\xe9\"}");
  CHECK(invalid.substr(0, 7) == "column ");
  CHECK(invalid.find("UTF-8") != std::string::npos);
  CHECK(corpus.complaint(R"({"text": "a", "text": "b"})").substr(0, 7) == "column ");
}

TEST_CASE("an audio file that does not exist is an error unless told otherwise") {
  const Corpus corpus;
  const std::string line = R"({"audio_filepath": "gone.wav", "text": "x"})";
  CHECK(corpus.complaint(line) == "audio file " + (corpus / "gone.wav").string() + " does not exist");
  CHECK(corpus.complaint(R"({"audio_filepath": "clips", "text": "x"})") ==
        "audio file " + (corpus / "clips").string() + " does not exist");
  CHECK(corpus.load(line, {.check_files = false}).size() == 1);
}

TEST_CASE("a program's own check makes a line wrong, with its place") {
  const Corpus corpus;
  (void)corpus.load(R"({"audio_filepath": "a.wav", "text": "x", "language": "de"})"
                    "\n"
                    R"({"audio_filepath": "a.wav", "text": "y", "language": "tlh"})");
  const auto check = [](const Utterance& utterance) {
    if (utterance.language == "tlh") throw ManifestError("nobody speaks " + utterance.language);
  };
  const auto manifest = read_manifest(corpus.manifest, {.check = check});
  REQUIRE(manifest.utterances.size() == 1);
  CHECK(manifest.utterances[0].language == "de");
  CHECK(manifest.describe_faults() ==
        "1 line is wrong:\n" + corpus.manifest.string() + ":2: nobody speaks tlh");
  CHECK_THROWS_WITH(read_manifest(corpus.manifest, {.strict = true, .check = check}),
                    corpus.manifest.string() + ":2: nobody speaks tlh");
}

TEST_CASE("a saved manifest reads back equal and can be moved with its folder") {
  const Corpus corpus;
  const TemporaryFolder elsewhere;
  std::ofstream(elsewhere / "c.wav") << "audio";
  const std::vector<Utterance> utterances{
      {corpus / "clips/b.wav", "quote \" backslash \\ control \x01 \n नमस्कार", 0.1, 0.30000000000000004, 7.0,
       "kok", "mr"},
      {corpus / "a.wav", "plain"},
      {elsewhere / "c.wav", "far away"}};
  save_manifest(corpus.manifest, utterances);
  CHECK((load_manifest(corpus.manifest) == utterances));

  fs::create_directory(elsewhere / "moved");
  fs::rename(corpus / "clips", elsewhere / "moved/clips");
  fs::rename(corpus / "a.wav", elsewhere / "moved/a.wav");
  fs::rename(corpus.manifest, elsewhere / "moved/train.jsonl");
  const auto moved = load_manifest(elsewhere / "moved/train.jsonl");
  CHECK(moved[0].audio_filepath == elsewhere / "moved/clips/b.wav");
  CHECK(moved[2].audio_filepath == elsewhere / "c.wav");
}

TEST_CASE("saving refuses text that is not UTF-8 and leaves the old manifest alone") {
  const Corpus corpus;
  const std::vector<Utterance> fine{{corpus / "a.wav", "fine"}},
      broken{fine[0], {corpus / "a.wav", "caf\xe9"}};
  save_manifest(corpus.manifest, fine);
  CHECK_THROWS_AS(save_manifest(corpus.manifest, broken), ManifestError);
  CHECK((load_manifest(corpus.manifest) == fine));
}

TEST_CASE("saving refuses what could not be read back, and names its line") {
  const Corpus corpus;
  const fs::path a = corpus / "a.wav";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto [utterance, complaint] = GENERATE_COPY(table<Utterance, std::string>({
      {{a, ""}, "\"text\" is empty"},
      {{a, " \n"}, "\"text\" is empty"},
      {{"", "x"}, "\"audio_filepath\" is empty"},
      {{std::string("a\0.wav", 6), "x"}, "\"audio_filepath\" holds a NUL"},
      {{a, "x", 0.0}, "\"duration\" is 0 s; it must be positive"},
      {{a, "x", nan}, "\"duration\" must be finite"},
      {{a, "x", {}, -1.0}, "\"start\" is -1 s; it must not be negative"},
      {{a, "x", {}, 2.0, 1.0}, "\"end\" is 1 s; it must come after \"start\", 2 s"},
  }));
  CHECK_THROWS_WITH(save_manifest(corpus.manifest, std::vector<Utterance>{{a, "fine"}, utterance}),
                    corpus.manifest.string() + ":2: " + complaint);
  CHECK_THROWS_AS(save_manifest(corpus.manifest, std::vector<Utterance>{utterance}), ManifestError);
  CHECK_FALSE(fs::exists(corpus.manifest));
}

TEST_CASE("a name with a NUL is no audio file, whether files are checked or not") {
  const Corpus corpus;
  const std::string line = R"({"audio_filepath": "a.wav\u0000/x", "text": "x"})";
  CHECK(corpus.complaint(line) == "\"audio_filepath\" holds a NUL");
  CHECK_THROWS_AS(corpus.load(line, {.check_files = false}), ManifestError);
}

TEST_CASE("a text may be blank where that is asked for, but not absent") {
  const Corpus corpus;
  const std::string blank = R"({"audio_filepath": "a.wav", "text": ""})";
  CHECK(corpus.complaint(blank) == "\"text\" is empty");
  std::ofstream(corpus.manifest) << blank << "\n"
                                 << R"({"audio_filepath": "a.wav"})"
                                 << "\n";
  const auto read = read_manifest(corpus.manifest, {.empty_texts = true});
  REQUIRE(read.utterances.size() == 1);
  CHECK(read.utterances[0].text.empty());
  CHECK(read.describe_faults().ends_with(":2: \"text\" is missing"));
  const auto table = corpus / "table.csv";
  std::ofstream(table) << "audio_file,text\na.wav,\na.wav,x\n";
  CHECK(read_manifest(table, {.empty_texts = true}).utterances.size() == 2);
  CHECK(read_manifest(table).utterances.size() == 1);
}

TEST_CASE("a manifest larger than allowed is refused before it is read") {
  const Corpus corpus;
  const std::string line = R"({"audio_filepath": "a.wav", "text": "x"})";
  CHECK(corpus.load(line, {.max_bytes = line.size()}).size() == 1);
  CHECK_THROWS_AS(corpus.load(line, {.max_bytes = line.size() - 1}), FileError);
  CHECK_THROWS_AS(read_manifest(corpus.manifest, {.max_bytes = 1}), FileError);
  fs::resize_file(corpus.manifest, std::uintmax_t{1} << 40);  // sparse
  CHECK_THROWS_WITH(load_manifest(corpus.manifest), Catch::Contains("1099511627776 bytes, more than"));
}

TEST_CASE("a manifest named without a folder lies in the current one") {
  const Corpus corpus;
  const fs::path before = fs::current_path();
  fs::current_path(corpus.path());
  save_manifest("here.jsonl", std::vector<Utterance>{{"a.wav", "x"}, {"clips/b.wav", "y"}});
  const auto utterances = load_manifest("here.jsonl");
  fs::current_path(before);
  REQUIRE(utterances.size() == 2);
  CHECK(utterances[1].audio_filepath == "clips/b.wav");
}
