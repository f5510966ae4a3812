// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/manifest.hpp>

#include "support/temporary_folder.hpp"

#include <fstream>

namespace fs = std::filesystem;
using namespace looptorch;
using looptorch::testing::TemporaryFolder;

namespace {

struct Corpus : TemporaryFolder {
  Manifest read(const std::string& name, const std::string& contents,
                ManifestReadOptions options = {false}) const {
    std::ofstream(*this / name, std::ios::binary) << contents;
    return read_manifest(*this / name, options);
  }
  std::vector<std::string> texts(const std::string& rows) const {
    std::vector<std::string> result;
    for (const auto& utterance : read("t.csv", "audio_file,text\n" + rows).utterances)
      result.push_back(utterance.text);
    return result;
  }
  /// What is said about a second row, beside one that is fine.
  std::vector<ManifestFault> faults(const std::string& header, const std::string& row) const {
    return read("t.csv", header + "\nfine.wav,fine" +
                             std::string(std::count(header.begin(), header.end(), ',') - 1, ',') + "\n" + row)
        .faults;
  }
};

using Texts = std::vector<std::string>;
using Faults = std::vector<ManifestFault>;

}  // namespace

TEST_CASE("a CSV of audio_file and text becomes utterances") {
  const Corpus corpus;
  const auto manifest =
      corpus.read("train.csv",
                  "\xef\xbb\xbf"
                  "text,audio_file,notes\r\nनमस्कार,clips/a.wav,x\r\n\r\ntwo words,/b.wav,\r\n");
  CHECK(manifest.faults.empty());
  CHECK(manifest.describe_faults().empty());
  CHECK((manifest.utterances ==
         std::vector<Utterance>{{corpus / "clips/a.wav", "नमस्कार"}, {"/b.wav", "two words"}}));
}

TEST_CASE("a TSV has the same columns, parted by tabs") {
  const Corpus corpus;
  const auto manifest = corpus.read("train.tsv", "audio_file\ttext\tduration\na.wav\tone, two\t1.5\n");
  CHECK(manifest.faults.empty());
  CHECK((manifest.utterances == std::vector<Utterance>{{corpus / "a.wav", "one, two", 1.5}}));
}

TEST_CASE("optional columns are read, and absent where a field is empty") {
  const Corpus corpus;
  const auto utterances =
      corpus
          .read("t.csv",
                "audio_filepath,text,duration,start,end,speaker\na.wav,x,2.5,1,3.5,kok\na.wav,y,,,,\n")
          .utterances;
  REQUIRE(utterances.size() == 2);
  CHECK((utterances[0] == Utterance{corpus / "a.wav", "x", 2.5, 1, 3.5, "kok"}));
  CHECK((utterances[1] == Utterance{corpus / "a.wav", "y"}));
}

TEST_CASE("Common Voice's columns are known, and its audio lies in clips") {
  const Corpus corpus;
  const auto manifest = corpus.read("validated.tsv",
                                    "client_id\tpath\tsentence_id\tsentence\tup_votes\tage\n"
                                    "c0ffee\tcommon_voice_kok_1.mp3\t7\tThe \"left\" one, please\t2\t\n");
  CHECK((manifest.utterances ==
         std::vector<Utterance>{
             {corpus / "clips/common_voice_kok_1.mp3", "The \"left\" one, please", {}, {}, {}, "c0ffee"}}));
}

TEST_CASE("fields are quoted as RFC 4180 has it") {
  const Corpus corpus;
  CHECK((corpus.texts("a.wav,\"one, two\"\n") == Texts{"one, two"}));
  CHECK((corpus.texts("a.wav,\"say \"\"hi\"\"\"\r\n") == Texts{"say \"hi\""}));
  CHECK((corpus.texts("a.wav,\"two\r\nlines\"\nb.wav,z") == Texts{"two\r\nlines", "z"}));
  CHECK((corpus.texts("\"a.wav\",\"x\"\r\n\"b.wav\",\"y\"\r") == Texts{"x", "y"}));
  CHECK((corpus.texts("a.wav,6\" wide\n") == Texts{"6\" wide"}));
  CHECK((corpus.texts("a.wav, x \r\n") == Texts{" x "}));
}

TEST_CASE("wrong rows are listed with their line, and the others read") {
  const Corpus corpus;
  const auto manifest = corpus.read("t.csv",
                                    "audio_file,text\n"
                                    "a.wav,\"two\nlines\"\n"
                                    "b.wav\n"
                                    "c.wav,\"never closed\n"
                                    "d.wav,fine\n"
                                    "e.wav,\"x\"y\n"
                                    "f.wav,\n");
  CHECK(manifest.utterances.size() == 2);
  CHECK((manifest.faults == Faults{{4, "has 1 fields, the header 2"},
                                   {5, "text after the end of a quoted field"},
                                   {7, "text after the end of a quoted field"},
                                   {8, "\"text\" is empty"}}));
  const auto path = (corpus / "t.csv").string();
  CHECK(manifest.describe_faults(1) == "4 lines are wrong:\n" + path + ":4: has 1 fields, the header 2\n...");
  CHECK((corpus.faults("audio_file,text", "c.wav,\"never closed\nd.wav,fine\n") ==
         Faults{{3, "a quoted field without an end"}}));
}

TEST_CASE("each fault of a row says what is wrong") {
  const Corpus corpus;
  CHECK((corpus.faults("audio_file,text,duration", "a.wav,x,long") ==
         Faults{{3, "\"duration\" must be a number, found \"long\""}}));
  CHECK((corpus.faults("audio_file,text,duration", "a.wav,x,-1") ==
         Faults{{3, "\"duration\" is -1 s; it must be positive"}}));
  CHECK((corpus.faults("audio_file,text,duration", "a.wav,x,inf") ==
         Faults{{3, "\"duration\" must be finite"}}));
  CHECK((corpus.faults("audio_file,text,start,end", "a.wav,x,2,1") ==
         Faults{{3, "\"end\" is 1 s; it must come after \"start\", 2 s"}}));
  CHECK((corpus.faults("audio_file,text", "a.wav,caf\xe9") ==
         Faults{{3, "\"text\" is not UTF-8 at its byte 3"}}));
  CHECK((corpus.faults("audio_file,text", ",x") == Faults{{3, "\"audio_filepath\" is empty"}}));
  CHECK((corpus.faults("path,text", ",x") == Faults{{3, "\"audio_filepath\" is empty"}}));
}

TEST_CASE("strict stops at the first wrong row") {
  const Corpus corpus;
  const auto path = (corpus / "t.csv").string();
  CHECK_THROWS_WITH(corpus.read("t.csv", "audio_file,text\na.wav,x\nb.wav\nc.wav\n",
                                {.check_files = false, .strict = true}),
                    path + ":3: has 1 fields, the header 2");
  CHECK_THROWS_AS(load_manifest(path, {.check_files = false}), ManifestError);
  CHECK_THROWS_WITH(corpus.read("t.csv", "audio_file,text\na.wav,x\n", {.strict = true}),
                    path + ":2: audio file " + (corpus / "a.wav").string() + " does not exist");
}

TEST_CASE("wrong JSON lines are listed like wrong rows") {
  const Corpus corpus;
  const auto manifest = corpus.read("t.jsonl",
                                    "{\"audio_filepath\": \"a.wav\", \"text\": \"x\"}\n[1]\n\n"
                                    "{\"audio_filepath\": \"a.wav\"}\n{\n");
  CHECK(manifest.utterances.size() == 1);
  REQUIRE(manifest.faults.size() == 3);
  CHECK((manifest.faults[0] == ManifestFault{2, "expected a JSON object, found an array"}));
  CHECK((manifest.faults[1] == ManifestFault{4, "\"text\" is missing"}));
  CHECK(manifest.faults[2].line == 5);
  CHECK(manifest.faults[2].reason.substr(0, 8) == "column 2");
}

TEST_CASE("a manifest of wrong lines only, or a table without its columns, is an error that says so") {
  const Corpus corpus;
  const auto path = (corpus / "t.csv").string();
  CHECK_THROWS_WITH(corpus.read("t.csv", "audio_file,text\nb.wav\n"),
                    path + ": holds no utterances; 1 wrong, the first on line 2: has 1 fields, the header 2");
  CHECK_THROWS_WITH(corpus.read("t.csv", "\n"), path + ": holds no utterances");
  CHECK_THROWS_WITH(corpus.read("t.csv", "a.wav,x\nb.wav,y\n"),
                    path + ":1: the header has no column for \"audio_filepath\"; it begins with \"a.wav\"");
  CHECK_THROWS_WITH(corpus.read("t.csv", "\npath,words\n"),
                    path + ":2: the header has no column for \"text\"; it begins with \"path\"");
  CHECK_THROWS_WITH(corpus.read("t.csv", "path,audio_file,text\n"),
                    path + ":1: the header has two columns for \"audio_filepath\"");
  CHECK_THROWS_WITH(corpus.read("t.csv", "\"path,text\n"), path + ":1: a quoted field without an end");
}

TEST_CASE("a manifest is not written under a table's name") {
  const Corpus corpus;
  CHECK_THROWS_WITH(save_manifest(corpus / "t.csv", std::vector<Utterance>{{"a.wav", "x"}}),
                    (corpus / "t.csv").string() + ": manifests are written as JSON lines; name it .jsonl");
  CHECK_FALSE(fs::exists(corpus / "t.csv"));
}
