// SPDX-License-Identifier: MIT
// Tests data/manifest: audio_name, json_fields, json_utterance, manifest_reader
// Tests data/manifest: manifest_rows, manifest_writer, utterance
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/manifest.hpp>

#include "support/temporary_folder.hpp"
#include "support/wide_text.hpp"

#include <cstdlib>
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

  /// The utterance of a line with these keys beside audio and text.
  Utterance with(const std::string& keys) const {
    return load(R"({"audio_filepath": "a.wav", "text": "x", )" + keys + "}").at(0);
  }
  /// What is said about such a line.
  std::string complaint_with(const std::string& keys) const {
    return complaint(R"({"audio_filepath": "a.wav", "text": "x", )" + keys + "}");
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

TEST_CASE("a name with .. behind a link to a folder is the file that the system opens") {
  const Corpus corpus;
  fs::create_directories(corpus / "disk/train");
  fs::copy_file(corpus / "a.wav", corpus / "disk/other.wav");
  fs::copy_file(corpus / "a.wav", corpus / "other.wav");
  fs::create_directory_symlink("disk/train", corpus / "data");
  const auto manifest = corpus / "data/m.jsonl", copy = corpus / "copy.jsonl";
  std::ofstream(manifest) << R"({"audio_filepath": "../other.wav", "text": "x"})";
  const auto utterances = load_manifest(manifest);
  CHECK(fs::equivalent(utterances.at(0).audio_filepath, corpus / "disk/other.wav"));
  for (const auto& path : {copy, corpus / "data/copy.jsonl"}) {
    save_manifest(path, utterances);
    CHECK((load_manifest(path) == utterances));
  }
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
        "audio file " + (corpus / "clips").string() + " is a folder");
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

TEST_CASE("empty texts are accepted on request, missing ones never") {
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

TEST_CASE("NeMo's offset chooses a part of the file, as long as the duration says") {
  const Corpus corpus;
  const fs::path a = corpus / "a.wav";
  CHECK(corpus.with(R"("offset": 0.25, "duration": 0.5)") == Utterance{a, "x", 0.5, 0.25, 0.75});
  CHECK(corpus.with(R"("offset": 0, "duration": 2.5)") == Utterance{a, "x", 2.5, 0, 2.5});
  CHECK(corpus.with(R"("offset": 1.5)") == Utterance{a, "x", {}, 1.5});  // to the file's end
  CHECK(corpus.with(R"("offset": 1, "end": 3)") == Utterance{a, "x", {}, 1, 3});
  CHECK(corpus.with(R"("offset": null, "duration": 2)") == Utterance{a, "x", 2.0});
  // said twice, and rounded
  CHECK(corpus.with(R"("offset": 1, "start": 1.004, "duration": 2)") == Utterance{a, "x", 2.0, 1.004, 3.004});
  CHECK(corpus.with(R"("offset": 1, "duration": 2, "end": 3.01)") == Utterance{a, "x", 2.0, 1, 3.01});
}

TEST_CASE("start with a duration is a part too, but a duration beside start and end only informs") {
  const Corpus corpus;
  const fs::path a = corpus / "a.wav";
  CHECK(corpus.with(R"("start": 1, "duration": 2)") == Utterance{a, "x", 2.0, 1, 3});
  CHECK(corpus.with(R"("start": 1, "end": 3, "duration": 60)") == Utterance{a, "x", 60.0, 1, 3});
  CHECK(corpus.with(R"("end": 3, "duration": 60)") == Utterance{a, "x", 60.0, {}, 3});
}

TEST_CASE("an offset that is no time, or contradicts other times, is a fault") {
  const Corpus corpus;
  const auto [keys, complaint] = GENERATE(table<std::string, std::string>({
      {R"("offset": "0.25", "duration": 1)", R"("offset" must be a number, found a string)"},
      {R"("offset": [1])", R"("offset" must be a number, found an array)"},
      {R"("offset": -1, "duration": 2)", R"("offset" is -1 s; it must not be negative)"},
      {R"("offset": 2, "end": 1.5)", R"("end" is 1.5 s; it must come after "offset", 2 s)"},
      {R"("offset": 1e300, "duration": 1)", R"("offset" is 1e+300 s, too late for a duration of 1 s)"},
      {R"("start": 1e308, "duration": 1e308)", R"("start" is 1e+308 s, too late for a duration of 1e+308 s)"},
      {R"("offset": 0, "start": 2, "end": 3)",
       R"("offset" is 0 s and "start" is 2 s; both say the same, so leave one out)"},
      {R"("offset": 1, "duration": 2, "end": 9)",
       R"("end" is 9 s and "offset" with "duration" is 3 s; both say the same, so leave one out)"},
  }));
  CHECK(corpus.complaint_with(keys) == complaint);
}

TEST_CASE("a language has the keys of NeMo too, which must agree") {
  const Corpus corpus;
  for (const std::string keys :
       {R"("language": "de")", R"("lang": "de")", R"("lang": "de", "language": "de")",
        R"("language": null, "lang": "de")", R"("language": "", "lang": "de")",
        R"("source_lang": "de", "target_lang": "de")"})
    CHECK(corpus.with(keys).language == "de");
  CHECK(corpus.with(R"("locale": "de")").language.empty());
  CHECK(corpus.complaint_with(R"("lang": "de", "language": "en")") ==
        R"("language" is "en" and "lang" is "de"; speech and text of a line have one language)");
  CHECK(corpus.complaint_with(R"("source_lang": "de", "target_lang": "en")") ==
        R"("source_lang" is "de" and "target_lang" is "en"; speech and text of a line have one language)");
  CHECK(corpus.complaint_with(R"("lang": 7)") == R"("lang" must be a string, found an integer)");
}

TEST_CASE("what is read of NeMo's keys can be saved and read again") {
  const Corpus corpus;
  const std::vector<Utterance> read{corpus.with(R"("offset": 0.25, "duration": 0.5, "lang": "de")")};
  save_manifest(corpus.manifest, read);
  CHECK((load_manifest(corpus.manifest) == read));
}

TEST_CASE("a manifest in UTF-16 or UTF-32 says so") {
  const Corpus corpus;
  const std::u32string text = U"{\"audio_filepath\": \"a.wav\", \"text\": \"x\"}\n";
  for (const auto& marked : {text, U"\ufeff" + text})
    for (const bool big : {false, true}) {
      const std::string end = big ? "BE" : "LE";
      CHECK_THROWS_WITH(corpus.load(looptorch::testing::in_utf16(marked, big)),
                        corpus.manifest.string() + ": the text is in UTF-16" + end +
                            ", not UTF-8; convert it: iconv -f UTF-16" + end + " -t UTF-8");
      CHECK_THROWS_WITH(corpus.load(looptorch::testing::in_utf32(marked, big)),
                        Catch::Contains(": the text is in UTF-32" + end + ", not UTF-8"));
    }
}

TEST_CASE("a manifest whose lines end with CR alone says so") {
  const Corpus corpus;
  const std::string line = R"({"audio_filepath": "a.wav", "text": "x"})",
                    table = "audio_file,text\ra.wav,x\r";
  const std::string why = ": the file's lines end with CR alone (old Mac); convert them: tr '\\r' '\\n'";
  for (const std::string& text :
       {line + "\r" + line + "\r", line + "\r" + line, "\xef\xbb\xbf" + line + "\r" + line})
    CHECK_THROWS_WITH(corpus.load(text), corpus.manifest.string() + why);
  for (const char* name : {"a.csv", "a.tsv"}) {
    std::ofstream(corpus / name, std::ios::binary) << table;
    CHECK_THROWS_WITH(load_manifest(corpus / name), (corpus / name).string() + why);
  }
  CHECK(corpus.load(line + "\r").size() == 1);
  CHECK(corpus.load(line + "\r\n" + line + "\r\n").size() == 2);
  CHECK_THROWS_WITH(corpus.load("\r"), !Catch::Contains("CR alone"));
}

TEST_CASE("a NUL in a line is a fault, and no message ends at it") {
  using namespace std::string_literals;
  const Corpus corpus;
  CHECK(corpus.complaint(R"({"audio_filepath": "a.wav", "text": "a\u0000b"})") == "\"text\" holds a NUL");
  CHECK(corpus.complaint_with(R"("speaker": "\u0000")") == "\"speaker\" holds a NUL");
  CHECK(corpus.complaint("{\"audio_filepath\": \"a.wav\", \"text\": \"a\0b\"}"s) ==
        "column 39 (byte 38): control character in a string");
  CHECK(corpus.complaint("\0\0\0\0"s) == "column 1 (byte 0): expected a value");
  CHECK(corpus.complaint(R"({"audio_filepath": "a.wav", "text": "x", "k\u0000": 1, "k\u0000": 2})") ==
        R"(column 56 (byte 55): duplicate key "k\0")");
}

TEST_CASE("an audio file is found by a canonically equivalent name, as macOS spells it") {
  const Corpus corpus;
  const std::string composed = "r\u00e9sum\u00e9", decomposed = "re\u0301sume\u0301";
  const auto [listed, on_disk] =
      GENERATE_COPY(table<std::string, std::string>({{composed, decomposed}, {decomposed, composed}}));
  fs::create_directory(corpus / on_disk);
  std::ofstream(corpus / on_disk / (on_disk + ".wav")) << "audio";
  const auto name = listed + "/" + listed + ".wav";
  const auto line = R"({"audio_filepath": ")" + name + R"(", "text": "x"})";
  CHECK(corpus.load(line).at(0).audio_filepath == corpus / on_disk / (on_disk + ".wav"));
  CHECK(corpus.load(line, {.check_files = false}).at(0).audio_filepath == corpus / name);

  // Two equivalent names, and neither is the one that is listed.
  const std::string mixed = "r\u00e9sume\u0301";
  fs::create_directory(corpus / listed);
  std::ofstream(corpus / listed / (on_disk + ".wav")) << "audio";
  CHECK(
      corpus.complaint(R"({"audio_filepath": ")" + mixed + "/" + mixed + R"(.wav", "text": "x"})") ==
      "audio file " + (corpus / mixed / (mixed + ".wav")).string() +
          " does not exist in this normal form of Unicode, and 2 files exist in others; rename all but one");
  CHECK(corpus.load(R"({"audio_filepath": ")" + listed + "/" + on_disk + R"(.wav", "text": "x"})")
            .at(0)
            .audio_filepath == corpus / listed / (on_disk + ".wav"));
}

TEST_CASE("~/ is the home folder, as for NeMo") {
  const Corpus corpus;
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", corpus.path().c_str(), 1);
  const auto utterances = corpus.load(R"({"audio_filepath": "~/clips/b.wav", "text": "x"})");
  ::setenv("HOME", home.c_str(), 1);
  CHECK(utterances.at(0).audio_filepath == corpus / "clips/b.wav");
  CHECK_THROWS_WITH(corpus.load(R"({"audio_filepath": "~/none.wav", "text": "x"})"),
                    Catch::EndsWith("none.wav does not exist"));
  fs::create_directory(corpus / "~");  // a folder of that name can be saved
  std::ofstream(corpus / "~/c.wav") << "audio";
  const std::vector<Utterance> odd{{corpus / "~/c.wav", "x"}};
  save_manifest(corpus.manifest, odd);
  CHECK((load_manifest(corpus.manifest) == odd));
}

TEST_CASE("a name that is no name here says why") {
  const Corpus corpus;
  const auto [name, complaint] = GENERATE(table<std::string, std::string>({
      {R"(C:\\clips\\b.wav)",
       R"(audio file C:\clips\b.wav does not exist; it is a path of Windows: write the path that the file has here)"},
      {R"(\\\\server\\b.wav)",
       R"(audio file \\server\b.wav does not exist; it is a path of Windows: write the path that the file has here)"},
      {R"(D:/clips/b.wav)",
       R"(audio file D:/clips/b.wav does not exist; it is a path of Windows: write the path that the file has here)"},
      {R"(clips\\b.wav)", R"(; part folders by "/", not by "\")"},
      {R"(~ann/b.wav)", R"(; of names with "~" only "~/" is known, the folder that HOME names)"},
  }));
  CHECK_THAT(corpus.complaint(R"({"audio_filepath": ")" + name + R"(", "text": "x"})"),
             Catch::EndsWith(complaint));
}

TEST_CASE("a key that is null or empty does not hide another key of its meaning") {
  const Corpus corpus;
  const auto utterances =
      corpus.load(R"({"audio_filepath": null, "file_name": "a.wav", "text": null, "sentence": "one"})"
                  "\n"
                  R"({"audio_filepath": "", "file_name": "a.wav", "text": "", "sentence": "two"})");
  REQUIRE(utterances.size() == 2);
  CHECK(utterances[0] == Utterance{corpus / "a.wav", "one"});
  CHECK(utterances[1] == Utterance{corpus / "a.wav", "two"});
  CHECK(corpus.complaint(R"({"file_name": null, "text": "x"})") ==
        "\"file_name\" must be a string, found null");
}
