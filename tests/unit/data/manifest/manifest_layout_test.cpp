// SPDX-License-Identifier: MIT
// Corpora as people have them: Hugging Face's audiofolder, LJSpeech, texts beside recordings, semicolons.
//
// Tests data/manifest: manifest_layout, manifest_names
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/manifest.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::ManifestError, looptorch::ManifestFault, looptorch::read_manifest;

namespace {

struct Corpus : looptorch::testing::TemporaryFolder {
  void add(const fs::path& name, const std::string& contents = "sound") const {
    fs::create_directories((*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << contents;
  }
  /// The names of files below the corpus, and their texts.
  std::vector<std::pair<std::string, std::string>> read(const fs::path& name) const {
    const auto manifest = read_manifest(name.empty() ? path() : *this / name);
    CHECK(manifest.faults.empty());
    std::vector<std::pair<std::string, std::string>> lines;
    for (const auto& utterance : manifest.utterances)
      lines.emplace_back(utterance.audio_filepath.lexically_relative(path()).string(), utterance.text);
    return lines;
  }
};

using Lines = std::vector<std::pair<std::string, std::string>>;

}  // namespace

TEST_CASE("manifest layout: an audiofolder, by its folder and by its table") {
  const Corpus corpus;
  corpus.add("train/a.mp3"), corpus.add("train/more/b.wav");
  corpus.add("train/metadata.csv",
             "file_name,transcription,speaker_id\na.mp3,one,5\nmore/b.wav,\"two, three\",6\n");
  const Lines expected{{"train/a.mp3", "one"}, {"train/more/b.wav", "two, three"}};
  CHECK(corpus.read("train") == expected);
  CHECK(corpus.read("train/metadata.csv") == expected);

  corpus.add("lines/c.flac");
  corpus.add("lines/metadata.jsonl", "{\"file_name\": \"c.flac\", \"text\": \"four\"}\n");
  CHECK(corpus.read("lines") == Lines{{"lines/c.flac", "four"}});
  corpus.add("lines/metadata.csv", "file_name,text\n");
  CHECK_THROWS_WITH(
      read_manifest(corpus / "lines"),
      (corpus / "lines").string() + ": holds metadata.csv and metadata.jsonl: give one of them");
}

TEST_CASE("manifest layout: the keys of JSON lines have the names that columns have") {
  const Corpus corpus;
  corpus.add("a.wav");
  for (const char* audio :
       {"audio_filepath", "file_name", "audio_file", "audio_path", "audio", "wav_filename"})
    for (const char* text : {"text", "transcription", "sentence", "transcript"}) {
      corpus.add("m.jsonl", looptorch::message("{\"", audio, "\": \"a.wav\", \"", text, "\": \"t\"}\n"));
      CHECK(corpus.read("m.jsonl") == Lines{{"a.wav", "t"}});
    }
  corpus.add("m.jsonl",
             "{\"audio_filepath\": \"a.wav\", \"audio\": \"none\", \"text\": \"t\", \"sentence\": \"s\"}\n");
  CHECK(corpus.read("m.jsonl") == Lines{{"a.wav", "t"}});  // ours come first
  corpus.add("m.jsonl", "{\"file_name\": \"b.wav\", \"text\": \"t\"}\n");
  CHECK_THROWS_WITH(read_manifest(corpus / "m.jsonl"), Contains("b.wav does not exist"));
  corpus.add("m.jsonl", "{\"file_name\": \"a.wav\", \"transcription\": \" \"}\n");
  CHECK_THROWS_WITH(read_manifest(corpus / "m.jsonl"), Contains("\"transcription\" is empty"));
  corpus.add("m.jsonl", "{\"path\": \"a.wav\", \"text\": \"t\"}\n");
  CHECK_THROWS_WITH(read_manifest(corpus / "m.jsonl"), Contains("\"audio_filepath\" is missing"));
}

TEST_CASE("manifest layout: LJSpeech's lines have no header, and the normalised text is learnt") {
  const Corpus corpus;
  for (const char* name : {"LJ001-0001", "LJ001-0002", "LJ001-0003"})
    corpus.add(looptorch::message("wavs/", name, ".wav"));
  corpus.add("metadata.csv",
             "LJ001-0001|Printing, in \"1\" sense|Printing, in \"one\" sense\r\n"
             "LJ001-0002|in being; compar|\nLJ001-0003|no third\n");
  const Lines expected{{"wavs/LJ001-0001.wav", "Printing, in \"one\" sense"},
                       {"wavs/LJ001-0002.wav", "in being; compar"},
                       {"wavs/LJ001-0003.wav", "no third"}};
  CHECK(corpus.read("metadata.csv") == expected);
  CHECK(corpus.read("") == expected);  // its folder
  corpus.add("metadata.csv", "LJ001-0001|one\nLJ001-0002\nLJ001-0003|a|b|c\nLJ009-0009|x\n");
  const auto faults = read_manifest(corpus / "metadata.csv").faults;
  REQUIRE(faults.size() == 3);
  CHECK((faults[0] == ManifestFault{2, "has 1 fields, LJSpeech's lines 2 or 3: ID|text|normalised text"}));
  CHECK(faults[1].line == 3);
  CHECK_THAT(faults[2].reason, Contains("LJ009-0009.wav does not exist"));
}

TEST_CASE("manifest layout: semicolons and bars separate, if the header says so") {
  const Corpus corpus;
  corpus.add("a.wav");
  corpus.add("m.csv",
             "\xef\xbb\xbf\n\"file_name\";transcript;duration\r\na.wav;\"one; \"\"two\"\"\";2.5\r\n");
  CHECK(corpus.read("m.csv") == Lines{{"a.wav", "one; \"two\""}});
  corpus.add("m.csv", "text|audio\nsay \"yes\", no|a.wav\n\"odd|a.wav\n");
  CHECK(corpus.read("m.csv") == Lines{{"a.wav", "say \"yes\", no"}, {"a.wav", "\"odd"}});
  corpus.add("m.csv", "audio_file,text\na.wav,one; two|three\n");
  CHECK(corpus.read("m.csv") == Lines{{"a.wav", "one; two|three"}});
}

TEST_CASE("manifest layout: recordings with their texts beside them") {
  const Corpus corpus;
  corpus.add("b.wav"), corpus.add("b.txt", "\xef\xbb\xbftwo\r\n");
  corpus.add("deep/a.FLAC"), corpus.add("deep/a.txt", "one\n");
  corpus.add("README.txt", "not a text of a clip");
  CHECK(corpus.read("") == Lines{{"b.wav", "two"}, {"deep/a.FLAC", "one"}});
  corpus.add("c.ogg"), corpus.add("d.wav"), corpus.add("d.txt", "\xff"), corpus.add("e.wav"),
      corpus.add("e.txt", "\n");
  const auto read = read_manifest(corpus.path());
  CHECK(read.utterances.size() == 2);
  CHECK((read.faults == std::vector<ManifestFault>{{2, "c.ogg has no c.txt beside it"},
                                                   {3, "d.txt is not UTF-8 at its byte 0"},
                                                   {5, "\"text\" is empty"}}));
  CHECK_THROWS_WITH(read_manifest(corpus.path(), {.strict = true}), Contains("c.ogg has no c.txt beside it"));
  CHECK(read_manifest(corpus.path(), {.empty_texts = true}).utterances.size() == 3);

  corpus.add("alone/x.wav");
  CHECK_THROWS_WITH(
      read_manifest(corpus / "alone"),
      (corpus / "alone").string() +
          ": holds no metadata.csv, .tsv or .jsonl, and none of its 1 recordings can be used; of "
          "the first: x.wav has no x.txt beside it; docs/corpora.md has commands for other forms");

  fs::create_directories(corpus / "empty");
  CHECK_THROWS_WITH(read_manifest(corpus / "empty"),
                    Contains("holds no metadata.csv, .tsv or .jsonl, and no recordings with texts"));
}

TEST_CASE("manifest layout: a header without audio or text says which names there are") {
  const Corpus corpus;
  corpus.add("m.csv", "clip,text\na.wav,one\n");
  CHECK_THROWS_WITH(
      read_manifest(corpus / "m.csv"),
      Contains(
          ":1: the header has no column for \"audio_filepath\"; it has \"clip\", \"text\"; the "
          "column may be called audio_filepath, file_name, audio_file, audio_path, audio, wav_filename, path"));
  corpus.add("m.csv", "audio;words\na.wav;one\n");
  CHECK_THROWS_WITH(read_manifest(corpus / "m.csv"),
                    Contains("may be called text, transcription, sentence, transcript"));
}

TEST_CASE("manifest layout: Parquet and Arrow are named, with the command that writes lines") {
  const Corpus corpus;
  corpus.add("train.parquet", std::string("PAR1\0\0", 6));
  const auto file = (corpus / "train.parquet").string();
  CHECK_THROWS_WITH(
      read_manifest(file),
      file +
          ": is Parquet, which is not read; if its sound lies in files: python3 -c \"import pandas; "
          "pandas.read_parquet('" +
          file + "').to_json('" + (corpus / "train.jsonl").string() + "', orient='records', lines=True)\"");
  corpus.add("data.arrow", "\xff\xff\xff\xff");
  CHECK_THROWS_WITH(read_manifest(corpus / "data.arrow"), Contains(": is Arrow, which is not read"));
}

TEST_CASE("manifest layout: an array and a text of another form are refused with the remedy") {
  const Corpus corpus;
  corpus.add("a.wav");
  const std::string line = R"({"audio_filepath": "a.wav", "text": "t"})";
  corpus.add("m.json", "\n[\n" + line + ",\n" + line + "\n]\n");
  const auto file = (corpus / "m.json").string();
  CHECK_THROWS_WITH(read_manifest(file),
                    file + ": is a JSON array; write its objects a line each: jq -c '.[]' '" + file +
                        "' > '" + (corpus / "m.jsonl").string() + "'");
  corpus.add("talk.srt", "1\r\n00:00:00,000 --> 00:00:02,000\r\nhello\r\n");
  CHECK_THROWS_WITH(
      read_manifest(corpus / "talk.srt"),
      (corpus / "talk.srt").string() +
          ": is not JSON lines, and the name of a table ends in .csv or .tsv; its first line is "
          "\"1\"; docs/corpora.md has commands for other forms");
  corpus.add("m.jsonl", "# my clips\n" + line + "\n");  // one wrong line
  CHECK(read_manifest(corpus / "m.jsonl").utterances.size() == 1);
}

TEST_CASE("manifest layout: a part may begin at \"begin\"") {
  const Corpus corpus;
  corpus.add("a.wav");
  corpus.add("m.csv", "file_name,text,begin,end\na.wav,t,0.5,1\n");
  corpus.add("m.jsonl", R"({"file_name": "a.wav", "text": "t", "begin": 0.5, "end": 1})");
  for (const char* name : {"m.csv", "m.jsonl"})
    CHECK(read_manifest(corpus / name).utterances.at(0).start == 0.5);
}
