// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"

#include <konkanivani/clips/corpus_layout.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

using Catch::Contains;
using konkanivani::load_corpus;
using looptorch::ManifestError;
using looptorch::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

/// A corpus to be made: text files and half a second of sound in others.
struct Corpus {
  Corpus& text(const std::string& name, const std::string& contents) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << contents;
    return *this;
  }
  Corpus& clip(const std::string& name) {
    fs::create_directories((folder / name).parent_path());
    looptorch::audio::encode(folder / name, {0.1 * at::ones({8000}), 16000});
    return *this;
  }
  [[nodiscard]] looptorch::ManifestSplit load() const { return load_corpus(folder.path()); }

  TemporaryFolder folder;
};

std::vector<std::string> texts_of(const std::vector<looptorch::Utterance>& utterances) {
  std::vector<std::string> texts;
  for (const auto& utterance : utterances) texts.push_back(utterance.text);
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("Manifests of this project's own form") {
  Corpus corpus;
  corpus.clip("a.wav");
  for (const auto* part : {"train", "validation", "test"})
    corpus.text(std::string(part) + ".jsonl",
                R"({"audio_filepath": "a.wav", "text": ")" + std::string(part) + "\"}\n");
  const auto split = corpus.load();
  CHECK(texts_of(split.train) == Texts{"train"});
  CHECK(texts_of(split.validation) == Texts{"validation"});
  CHECK(texts_of(split.test) == Texts{"test"});
  fs::remove(corpus.folder / "test.jsonl");
  CHECK_THROWS_WITH(corpus.load(), Contains("test.jsonl"));
}

TEST_CASE("Common Voice: its tables as they are, audio in clips") {
  Corpus corpus;
  corpus.clip("clips/one.wav").clip("clips/two.wav");
  const std::string header = "client_id\tpath\tsentence\tup_votes\n";
  corpus.text("train.tsv", header + "f01\tone.wav\tदेव बरें करूं\t2\n")
      .text("dev.tsv", header + "f02\ttwo.wav\tहांव येतां\t2\n")
      .text("test.tsv", header + "f03\tone.wav\tबरें\t2\n");
  const auto split = corpus.load();
  CHECK(texts_of(split.train) == Texts{"देव बरें करूं"});
  CHECK(split.train[0].speaker == "f01");
  CHECK(split.train[0].audio_filepath == corpus.folder / "clips/one.wav");
  CHECK(texts_of(split.validation) == Texts{"हांव येतां"});
  CHECK(texts_of(split.test) == Texts{"बरें"});
  fs::remove(corpus.folder / "clips/two.wav");
  CHECK_THROWS_WITH(corpus.load(), Contains("dev.tsv:2: "));
}

TEST_CASE("OpenSLR with splits as folders, transcripts and audio in different places") {
  Corpus corpus;
  corpus.clip("train/audio/1/1_2_3.flac").text("train/transcripts.txt", "1_2_3\tek\n");
  corpus.clip("dev/audio/x.wav").text("dev/transcripts.txt", "x.wav\tdon\n");
  corpus.clip("test/7/8/7-8-0000.flac").text("test/7/8/7-8.trans.txt", "7-8-0000 TIN TIN\n");
  const auto split = corpus.load();
  CHECK(texts_of(split.train) == Texts{"ek"});
  CHECK(split.train[0].audio_filepath == corpus.folder / "train/audio/1/1_2_3.flac");
  CHECK(texts_of(split.validation) == Texts{"don"});
  CHECK(texts_of(split.test) == Texts{"TIN TIN"});
  fs::rename(corpus.folder / "dev", corpus.folder / "validation");
  CHECK(texts_of(corpus.load().validation) == Texts{"don"});
  fs::rename(corpus.folder / "validation", corpus.folder / "other");
  CHECK_THROWS_WITH(corpus.load(), "there is no folder " + (corpus.folder / "dev").string());
  fs::create_directory(corpus.folder / "dev");
  CHECK_THROWS_WITH(
      corpus.load(),
      (corpus.folder / "dev").string() +
          ": holds no transcripts that can be used; looked below it for line_index*.tsv, utt_spk_text.tsv, transcripts.txt, "
          "transcription.txt and *.trans.txt (OpenSLR); docs/corpora.md has commands for other forms");
}

TEST_CASE("OpenSLR without splits: every sentence in one part, whatever the order and the speakers") {
  Corpus corpus;
  std::string female, male;
  for (int i = 0; i < 12; ++i) {
    const auto id = std::to_string(i), text = "वाक्य " + std::string(static_cast<size_t>(i + 1), 'k');
    corpus.clip("wavs/f_" + id + ".wav").clip("male/m_" + id + ".wav");
    female += "f_" + id + "\t" + text + "\n";
    male = "m_" + id + "\tspeaker 7\t " + text + "!\r\n" + male;
  }
  corpus.text("line_index_female.tsv", female).text("male/utt_spk_text.tsv", male + "\n\n");
  const auto split = corpus.load();
  CHECK(split.train.size() == 20);
  CHECK(split.validation.size() == 2);
  CHECK(split.test.size() == 2);
  std::set<std::string> all;
  for (const auto* part : {&split.train, &split.validation, &split.test}) {
    std::set<std::string> sentences;
    for (const auto& utterance : *part) {
      CHECK(utterance.speaker == (utterance.audio_filepath.filename().string()[0] == 'm' ? "speaker 7" : ""));
      sentences.insert(konkanivani::normalize(utterance.text));
    }
    CHECK(sentences.size() * 2 == part->size());
    all.insert(sentences.begin(), sentences.end());
  }
  CHECK(all.size() == 12);
  CHECK(konkanivani::normalize(split.test[0].text) == "वाक्य kkkkkkkkkkkk");  // on every machine

  auto backwards = split.train;
  for (const auto* part : {&split.validation, &split.test})
    backwards.insert(backwards.begin(), part->begin(), part->end());
  std::reverse(backwards.begin(), backwards.end());
  const auto again = konkanivani::split_by_sentence(backwards, "corpus");
  CHECK(konkanivani::normalize(again.test[0].text) == konkanivani::normalize(split.test[0].text));
  CHECK(konkanivani::normalize(again.validation[0].text) == konkanivani::normalize(split.validation[0].text));
}

TEST_CASE("A transcript that cannot be used is refused by its line") {
  const auto why = [](const std::string& line, std::vector<std::string> clips) {
    Corpus corpus;
    for (const auto& clip : clips) corpus.clip(clip);
    corpus.text("line_index.tsv", "\nok\tek\n" + line + "\n").clip("ok.wav");
    try {
      (void)corpus.load();
    } catch (const ManifestError& error) {
      const std::string what = error.what(), place = (corpus.folder / "line_index.tsv").string() + ":";
      REQUIRE(what.starts_with(place));
      return what.substr(place.size());
    }
    return std::string("nothing");
  };
  CHECK_THAT(why("gone\tdon", {}), Contains("3: there is no audio file called gone (.wav, .flac, .mp3"));
  CHECK_THAT(why("twice\tdon", {"a/twice.wav", "b/twice.wav"}),
             Contains("3: there are several audio files called twice below "));
  CHECK(why("alone", {}) == "3: has an id and no text");
  CHECK(why("ok\t ", {}) == "3: has an empty text");
  CHECK(why("ok\t\xff", {}) == "3: is not UTF-8");
}

TEST_CASE("A clip whose file spells its name in another normal form is found") {
  const std::string whole = "\u00e9t\u00e9", apart = "e\u0301te\u0301";  // as macOS spells it
  Corpus transcripts;
  transcripts.clip("audio/" + apart + ".wav").clip("b.wav").clip("c.wav");
  transcripts.text("line_index.tsv", whole + "\tek\nb\tdon\nc\ttin\n");
  const auto split = transcripts.load();
  CHECK(split.train.size() + split.validation.size() + split.test.size() == 3);
  std::set<std::string> names;
  for (const auto* part : {&split.train, &split.validation, &split.test})
    for (const auto& clip : *part) names.insert(clip.audio_filepath.filename().string());
  CHECK(names == std::set<std::string>{apart + ".wav", "b.wav", "c.wav"});
  transcripts.clip("audio/" + whole + ".wav");  // now the name itself is there, too
  CHECK_NOTHROW(transcripts.load());
  transcripts.text("line_index.tsv", "e\u0301t\u00e9\tek\nb\tdon\nc\ttin\n");
  CHECK_THROWS_WITH(transcripts.load(), Contains("1: there are several audio files called "));

  Corpus tables;
  tables.clip(apart + ".wav");
  for (const auto* part : {"train.jsonl", "validation.jsonl", "test.jsonl"})
    tables.text(part, R"({"audio_filepath": ")" + whole + R"(.wav", "text": "a"})");
  konkanivani::SkippedItems skipped;
  for (auto* list : {&skipped, static_cast<konkanivani::SkippedItems*>(nullptr)})
    CHECK(load_corpus(tables.folder.path(), list).train.at(0).audio_filepath ==
          tables.folder / (apart + ".wav"));
  CHECK(skipped.count() == 0);
}

TEST_CASE("Wrong lines are listed by their place where a list is given, and the others are read") {
  Corpus tables;
  tables.clip("a.wav").text("train.jsonl", R"({"audio_filepath": "a.wav", "text": "a"}
{"audio_filepath": "gone.wav", "text": "b"}
{"audio_filepath": "a.wav"}
{"audio_filepath": "a.wav", "text": "d"}
)");
  for (const auto* part : {"validation.jsonl", "test.jsonl"})
    tables.text(part, R"({"audio_filepath": "a.wav", "text": "c"})");
  konkanivani::SkippedItems skipped;
  CHECK(texts_of(load_corpus(tables.folder.path(), &skipped).train) == Texts{"a", "b", "d"});
  const auto file = (tables.folder / "train.jsonl").string();
  CHECK_THAT(skipped.describe(),
             Contains("1 entry is skipped (--on-bad-audio stop ends the run instead):\n  " + file + ":3: "));
  CHECK_THROWS_WITH(tables.load(), Contains(file + ":2: "));

  Corpus transcripts;
  transcripts.clip("a.wav").clip("b.wav").clip("c.wav");
  transcripts.text("line_index.tsv", "a\tek\ngone\tdon\nb\ttin\nalone\nc\tchar\n");
  konkanivani::SkippedItems wrong;
  const auto split = load_corpus(transcripts.folder.path(), &wrong);
  CHECK(split.train.size() + split.validation.size() + split.test.size() == 3);
  CHECK(wrong.count() == 2);
  CHECK_THAT(wrong.describe(), Contains("line_index.tsv:2: there is no audio file called gone") &&
                                   Contains("line_index.tsv:4: has an id and no text"));
}

TEST_CASE("A folder without a corpus says what was looked for") {
  Corpus corpus;
  for (const auto* wanted :
       {"train.jsonl", "train.tsv (Common Voice)", "line_index*.tsv", "*.trans.txt (OpenSLR)"})
    CHECK_THROWS_WITH(corpus.load(), Contains(wanted));
  CHECK_THROWS_WITH(load_corpus(corpus.folder / "gone"), Contains("gone: is not a folder"));
  corpus.text("transcription.txt", "a ek\nb ek!\n").clip("a.wav").clip("b.wav");
  CHECK_THROWS_WITH(corpus.load(), Contains("has 1 different sentences; 3 are the least to split"));
}
