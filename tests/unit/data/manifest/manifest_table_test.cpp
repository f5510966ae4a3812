// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/manifest.hpp>

#include "support/temporary_folder.hpp"
#include "support/wide_text.hpp"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

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
  std::vector<std::string> sentences(const std::string& rows) const {
    std::vector<std::string> result;
    const auto manifest = read("validated.tsv", "path\tsentence\n" + rows);
    CHECK(manifest.faults.empty());
    for (const auto& utterance : manifest.utterances) result.push_back(utterance.text);
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
          .read(
              "t.csv",
              "audio_filepath,text,duration,start,end,speaker,language\na.wav,x,2.5,1,3.5,kok,mr\na.wav,y,,,,,\n")
          .utterances;
  REQUIRE(utterances.size() == 2);
  CHECK((utterances[0] == Utterance{corpus / "a.wav", "x", 2.5, 1, 3.5, "kok", "mr"}));
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

TEST_CASE("in a TSV quotes stand for themselves, as Common Voice writes them") {
  const Corpus corpus;
  const auto texts = corpus.sentences(
      "1.mp3\t\"Go away!\" he said.\n"
      "2.mp3\t\"Quoted whole\"\r\n"
      "3.mp3\t\"Never closed here\n"
      "4.mp3\tplain\n"
      "5.mp3\t\"\"\"Old style\"\" he said.\"\n"
      "6.mp3\t\"\n"
      "7.mp3\tsays \"x\"");
  CHECK((texts == Texts{"\"Go away!\" he said.", "\"Quoted whole\"", "\"Never closed here", "plain",
                        "\"\"\"Old style\"\" he said.\"", "\"", "says \"x\""}));
}

TEST_CASE("in a TSV a backslash stands before what a field could not hold") {
  const Corpus corpus;
  CHECK((corpus.sentences("1.mp3\ta\\\tb\n2.mp3\ta\\\nb\n3.mp3\ta\\\\\n4.mp3\t\\\"b\\\"\n5.mp3\tC:\\new\\") ==
         Texts{"a\tb", "a\nb", "a\\", "\"b\"", "C:\\new\\"}));
  // Not a writer's backslash: the line that it swallowed is read.
  const auto manifest = corpus.read("t.tsv", "path\tsentence\n1.mp3\tends so\\\n2.mp3\tfine\n");
  CHECK((manifest.faults == Faults{{2, "has 3 fields, the header 2"}}));
  REQUIRE(manifest.utterances.size() == 1);
  CHECK(manifest.utterances[0].text == "fine");
}

TEST_CASE("an unclosed quote costs its own line, however many rows it swallows") {
  const Corpus corpus;
  const std::string swallows = "holds lines that name audio of their own, as if a quote were not closed";
  const auto [header, rows, fine] = GENERATE(table<std::string, std::string, std::size_t>({
      {"audio_file,text", "1.wav,\"first\n2.wav,second\n3.wav,third\n4.wav,fourth\"\n5.wav,fifth\n", 4},
      {"audio_file,text", "1.wav,\"first\r\n2.wav,second\"\r\n", 1},
      {"audio_file,text", "1.wav,\"first, with a comma\n2.wav,second\"\n", 1},
      {"audio_file,text", "1.wav,\"first\n2.flac,second\"\n", 1},
      {"audio_file,text", "1.sph,\"first\n2.sph,second\"\n", 1},
      {"audio_file,text", "talk/1,\"first\ntalk/2,second\"\n", 1},
      {"audio_file,text", "\"1.wav,first\n2.wav\",second\n", 1},
      {"text,audio_file", "\"first,1.wav\r\nsecond\",2.wav\r\n", 1},
      {"id,text,audio_file", "1,\"first,1.wav\n2,second\",2.wav\n", 1},
      {"id,text,audio_file", "1,\"first, all,1.wav\n2,second\",2.wav\n", 1},
      {"audio_file,text,start", "talk.wav,\"first,0\ntalk.wav,second\",2\n", 1},
  }));
  CAPTURE(header, rows);
  const auto manifest = corpus.read("t.csv", header + "\n" + rows);
  REQUIRE(manifest.faults.size() >= 1);
  CHECK((manifest.faults[0] == ManifestFault{2, swallows}));
  CHECK(manifest.utterances.size() == fine);
  CHECK_THROWS_WITH(load_manifest(corpus / "t.csv", {.check_files = false}),
                    (corpus / "t.csv").string() + ":2: " + swallows);
}

TEST_CASE("a field over several lines may hold what looks like a row, but not audio") {
  const Corpus corpus;
  CHECK((corpus.texts("a.wav,\"Hello there.\nWell, yes.\n\nBye, bye\"\nb.wav,z\n") ==
         Texts{"Hello there.\nWell, yes.\n\nBye, bye", "z"}));
  CHECK((corpus.texts("\"clips/a, b.wav\",\"two\nlines\"\n") == Texts{"two\nlines"}));
  CHECK((corpus.texts("clips/0001,\"one\ntwo, three\"\nclips/0002,four\n") ==
         Texts{"one\ntwo, three", "four"}));
  CHECK((corpus.texts("0001,\"one\ntwo\"\n0002,three\n") == Texts{"one\ntwo", "three"}));
}

TEST_CASE("a table made to be read again and again is read in linear time") {
  const Corpus corpus;
  const auto [name, line] = GENERATE(table<std::string, std::string>(
      {{"t.csv", "\",b\",\"\n"}, {"t.csv", "\"\"\n\"\n"}, {"t.csv", "\"\n"}, {"t.tsv", "a\\\n"}}));
  std::string rows = "audio_file,text\na.wav,fine\n";
  if (name == "t.tsv") std::replace(rows.begin(), rows.end(), ',', '\t');
  while (rows.size() < std::size_t{1} << 20) rows += line;
  const std::clock_t start = std::clock();  // of the processor: other tests run beside this one
  const auto manifest = corpus.read(name, rows);
  CHECK(manifest.utterances.size() == 1);
  CHECK(manifest.faults.size() > 100'000);
  CHECK(std::clock() - start < 10 * CLOCKS_PER_SEC);
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

TEST_CASE("a byte order mark is no part of a table's first field, nor does it hide its quote") {
  TableRows rows("\xef\xbb\xbf\"Yes, today.\",1\nNo.,2\n", ',');
  CHECK(rows.next() == std::vector<std::string>{"Yes, today.", "1"});
  CHECK(rows.line() == 2);
  CHECK(rows.next() == std::vector<std::string>{"No.", "2"});
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
  CHECK_THROWS_WITH(
      corpus.read("t.csv", "a.wav,x\nb.wav,y\n"),
      path +
          ":1: the header has no column for \"audio_filepath\"; it has \"a.wav\", \"x\"; the column may be "
          "called audio_filepath, file_name, audio_file, audio_path, audio, wav_filename, path");
  CHECK_THROWS_WITH(
      corpus.read("t.csv", "\npath,words\n"),
      path +
          ":2: the header has no column for \"text\"; it has \"path\", \"words\"; the column may be "
          "called text, transcription, sentence, transcript");
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

TEST_CASE("Common Voice's path is a file in clips, unless it is absolute or names that folder") {
  const Corpus corpus;
  const auto [name, contents] = GENERATE(table<std::string, std::string>(
      {{"t.tsv", "path\tsentence\na.mp3\tx\n/far/a.mp3\tx\nclips/b.mp3\tx\n./clips/b.mp3\tx\nen/c.mp3\tx\n"},
       {"t.csv", "path,sentence\na.mp3,x\n/far/a.mp3,x\nclips/b.mp3,x\n./clips/b.mp3,x\nen/c.mp3,x\n"}}));
  std::vector<fs::path> files;
  for (const auto& utterance : corpus.read(name, contents).utterances)
    files.push_back(utterance.audio_filepath);
  CHECK((files == std::vector<fs::path>{corpus / "clips/a.mp3", "/far/a.mp3", corpus / "clips/b.mp3",
                                        corpus / "clips/b.mp3", corpus / "clips/en/c.mp3"}));
  CHECK_THROWS_WITH(corpus.read("t.tsv", "path\tsentence\nC:\\cv\\a.mp3\tx\n", {}),
                    Catch::Contains("audio file C:\\cv\\a.mp3 does not exist; it is a path of Windows"));
}

TEST_CASE("a table may have NeMo's columns") {
  const Corpus corpus;
  CHECK((corpus.read("t.csv", "audio_filepath,offset,duration,text,lang\na.wav,0.25,0.5,x,de\na.wav,,2,y,\n")
             .utterances == std::vector<Utterance>{{corpus / "a.wav", "x", 0.5, 0.25, 0.75, "", "de"},
                                                   {corpus / "a.wav", "y", 2.0}}));
  CHECK(
      (corpus.faults("audio_file,text,lang,language", "a.wav,x,de,en") ==
       Faults{
           {3,
            "\"language\" is \"en\" and \"lang\" is \"de\"; speech and text of a line have one language"}}));
  CHECK((corpus.faults("audio_file,text,offset,start", "a.wav,x,1,2") ==
         Faults{{3, "\"offset\" is 1 s and \"start\" is 2 s; both say the same, so leave one out"}}));
  CHECK((corpus.faults("audio_file,text,offset", "a.wav,x,one") ==
         Faults{{3, "\"offset\" must be a number, found \"one\""}}));
}

TEST_CASE("a table in UTF-16 says so, and a NUL ends no message") {
  using namespace std::string_literals;
  const Corpus corpus;
  const std::u32string text = U"audio_filepath,text\r\na.wav,one\r\n";
  for (const auto& marked : {text, U"\ufeff" + text})
    CHECK_THROWS_WITH(corpus.read("t.csv", looptorch::testing::in_utf16(marked, false)),
                      (corpus / "t.csv").string() +
                          ": the text is in UTF-16LE, not UTF-8; convert it: iconv -f UTF-16LE -t UTF-8");
  CHECK_THROWS_WITH(corpus.read("t.csv", "au\0dio,text\n"s),
                    Catch::Contains("no column for \"audio_filepath\"; it has \"au\\0dio\", \"text\""));
  CHECK((corpus.faults("audio_file,text,duration", "a.wav,x,1\0 2"s) ==
         Faults{{3, "\"duration\" must be a number, found \"1\\0 2\""}}));
  CHECK((corpus.faults("audio_file,text", "a.wav,x\0y"s) == Faults{{3, "\"text\" holds a NUL"}}));
}
