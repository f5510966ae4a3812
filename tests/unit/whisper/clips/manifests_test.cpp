// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"

#include <sndfile.h>
#include <whisper/clips/manifests.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using Catch::Contains;
using Catch::Matchers::EndsWith;
using looptorch::testing::TemporaryFolder;

namespace {

/// The segments of a transcript, split.
looptorch::ManifestSplit read_split(const std::filesystem::path& place, double max_seconds, bool strict,
                                    std::ostream& log) {
  return whisper::split_transcripts(
      whisper::read_transcripts(place, {.max_seconds = max_seconds}, strict, log), place);
}

/// A folder to which recordings and texts are written.
struct Folder : TemporaryFolder {
  void write(const std::string& name, const std::string& contents) const {
    std::ofstream(*this / name, std::ios::binary) << contents;
  }

  /// 8 kHz; the first half at a tenth of the peak.
  void write_tone(const std::string& name, double seconds, double peak) const {
    std::vector<float> samples(static_cast<size_t>(seconds * 8000));
    for (size_t i = 0; i < samples.size(); ++i) {
      const double level = i < samples.size() / 2 ? peak / 10 : peak;
      samples[i] = static_cast<float>(level * std::sin(0.1 * static_cast<double>(i)));
    }
    SF_INFO info{};
    info.samplerate = 8000, info.channels = 1, info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
    auto* file = sf_open((*this / name).c_str(), SFM_WRITE, &info);
    REQUIRE(file);
    REQUIRE(sf_write_float(file, samples.data(), static_cast<sf_count_t>(samples.size())) ==
            static_cast<sf_count_t>(samples.size()));
    sf_close(file);
  }

  /// A transcript of `count` segments of 2 s from the beginning on.
  void write_transcript(const std::string& name, int count, const std::string& more = "") const {
    std::string text = "[";
    for (int i = 0; i < count; ++i) {
      text += (i ? ",\n" : "") + std::string(R"({"text": "segment )") + name + std::to_string(i) +
              R"(", "start": )" + std::to_string(2 * i) + R"(, "duration": 2})";
    }
    write(name, text + more + "]");
  }
};

std::vector<looptorch::Utterance> numbered(int count) {
  std::vector<looptorch::Utterance> out;
  for (int i = 0; i < count; ++i) out.push_back({.audio_filepath = std::to_string(i) + ".wav", .text = "x"});
  return out;
}

}  // namespace

TEST_CASE("Wrong lines of a manifest are listed and skipped; strict stops with file and line") {
  const Folder folder;
  folder.write("a.wav", "audio");
  std::string lines;
  for (int i = 0; i < 7; ++i) lines += "{\"text\": \"no audio\"}\n";
  folder.write("train.jsonl", R"({"audio_filepath": "a.wav", "text": "fine"})"
                              "\n" +
                                  lines);
  std::ostringstream log;
  CHECK(whisper::read_utterances(folder / "train.jsonl", false, log).size() == 1);
  const auto place = (folder / "train.jsonl").string();
  CHECK_THAT(log.str(), Contains("7 lines are wrong:\n" + place + ":2: \"audio_filepath\" is missing\n"));
  CHECK_THAT(log.str(), Contains(place + ":6: ") && !Contains(place + ":7: "));
  CHECK_THAT(log.str(), EndsWith("they are skipped (--strict stops instead)\n"));
  CHECK_THROWS_WITH(whisper::read_utterances(folder / "train.jsonl", true, log),
                    place + ":2: \"audio_filepath\" is missing");
}

TEST_CASE("A line in a language that the model does not know is told with file and line") {
  const Folder folder;
  folder.write("a.wav", "audio");
  folder.write("train.jsonl", R"({"audio_filepath": "a.wav", "text": "ein", "language": "de"})"
                              "\n"
                              R"({"audio_filepath": "a.wav", "text": "wa'", "language": "tlh"})"
                              "\n"
                              R"({"audio_filepath": "a.wav", "text": "one"})"
                              "\n");
  whisper::SpecialTokens multilingual{.start = 1, .no_timestamps = 9};
  multilingual.languages = {{"en", 2}, {"de", 3}};
  const auto read = [&](const whisper::SpecialTokens& special, bool is_needed) {
    std::ostringstream log;
    const auto lines = whisper::read_utterances(folder / "train.jsonl", false, log,
                                                whisper::check_language(special, is_needed));
    return std::to_string(lines.size()) + " " + log.str();
  };
  const auto place = (folder / "train.jsonl").string();
  const std::string unknown = place + ":2: the model does not know the language \"tlh\"\n";
  CHECK_THAT(read(multilingual, false), Contains("2 1 line is wrong:\n" + unknown));
  CHECK_THAT(read(multilingual, true),
             Contains("1 2 lines are wrong:\n" + unknown + place +
                      ":3: \"language\" is missing, and --language auto names none\n"));
  CHECK_THAT(read({.start = 1, .no_timestamps = 9}, true),  // an English-only model
             Contains("2 1 line is wrong:\n" + place + ":2: \"tlh\" is no language of Whisper's"));

  folder.write_tone("b.wav", 40, 0.5);
  folder.write_transcript("b.json", 11,
                          R"(, {"text": "seven", "start": 30, "duration": 2, "language": "tlh"})");
  std::ostringstream log;
  (void)whisper::read_transcripts(folder / "b.json", {}, false, log,
                                  whisper::check_language(multilingual, false));
  CHECK_THAT(log.str(), Contains("b.json:11: the model does not know the language \"tlh\""));
}

TEST_CASE("Nothing is logged about a manifest without faults") {
  const Folder folder;
  folder.write("a.wav", "audio");
  folder.write("train.csv", "audio_file,text\na.wav,fine\n");
  std::ostringstream log;
  CHECK(whisper::read_utterances(folder / "train.csv", false, log).size() == 1);
  CHECK(log.str().empty());
}

TEST_CASE("Transcripts of a folder are cut by their times, the quiet dropped, the others split") {
  const Folder folder;
  folder.write_tone("b.wav", 40, 0.5);
  folder.write_tone("a.wav", 40, 0.05);  // its first half peaks at 0.005
  folder.write_transcript("b.json", 20);
  folder.write_transcript("a.json", 20, R"(, {"text": "beyond the end", "start": 50, "duration": 2}, 7)");
  folder.write("notes.txt", "not a transcript");
  std::ostringstream log;
  const auto split = read_split(folder.path(), 30, false, log);
  CHECK(split.train.size() == 24);
  CHECK(split.validation.size() == 3);
  CHECK(split.test.size() == 3);
  for (const auto& utterance : split.train) {
    CHECK(*utterance.end == *utterance.start + 2);
    CHECK((utterance.audio_filepath == folder / "b.wav" || *utterance.start >= 20));
  }
  const auto a = (folder / "a.json").string();
  CHECK_THAT(log.str(), Contains("10 segments are dropped:\n" + a + ":1: its peak is 0.005"));
  CHECK_THAT(log.str(), Contains("2 lines are wrong:\n" + a + ":20: ") && Contains("a.wav"));
  CHECK_THAT(log.str(), !Contains("b.json"));
  CHECK_THROWS_WITH(read_split(folder.path(), 30, true, log), Contains(a + ":20: "));

  std::ostringstream again;
  CHECK((read_split(folder.path(), 30, false, again).test == split.test));
  CHECK(again.str() == log.str());
}

TEST_CASE("One transcript will do, and its segments may be no longer than clips") {
  const Folder folder;
  folder.write_tone("b.wav", 40, 0.5);
  folder.write_transcript("b.json", 12, R"(,{"text": "too long", "start": 0, "duration": 5})");
  std::ostringstream log;
  CHECK(read_split(folder / "b.json", 4, false, log).train.size() == 9);
  CHECK_THAT(log.str(), Contains("1 segment is dropped:") && Contains("lasts 5 s, more than 4 s"));
}

TEST_CASE("Windows keep the short and the quiet segments, which lie between others") {
  const Folder folder;
  folder.write_tone("b.wav", 40, 0.001);
  folder.write("b.json",
               R"([{"text": "a", "start": 0, "duration": 0.5}, {"text": "", "start": 1, "duration": 2},
                             {"text": "long", "start": 1, "duration": 21}])");
  std::ostringstream log;
  const auto limits = whisper::SegmentLimits::of_windows(20);
  CHECK(whisper::read_transcripts(folder / "b.json", limits, false, log).size() == 1);
  CHECK_THAT(log.str(), Contains("2 segments are dropped:") &&
                            Contains("b.json:1: its text has 0 characters") &&
                            Contains("b.json:2: lasts 21 s, more than 20 s"));
}

TEST_CASE("A segment that ends well after its recording is wrong, one that ends a little later is not") {
  const Folder folder;
  folder.write_tone("b.wav", 22.3, 0.5);
  folder.write_transcript("b.json", 10, R"(,{"text": "a little later", "start": 21, "duration": 1.38},
      {"text": "well behind", "start": 20, "duration": 4})");
  std::ostringstream log;
  const auto split = read_split(folder / "b.json", 30, false, log);
  CHECK(split.train.size() + split.validation.size() + split.test.size() == 11);
  const auto place = (folder / "b.json").string() + ":11: ";
  CHECK_THAT(log.str(),
             Contains(place + (folder / "b.wav").string() + ": lasts 22.3 s, and the clip ends at 24 s"));
  CHECK_THROWS_WITH(read_split(folder / "b.json", 30, true, log), Contains(place));
}

TEST_CASE("Transcripts that cannot be used are an error that names the place") {
  const Folder folder;
  std::ostringstream log;
  const auto read = [&](const std::filesystem::path& place) { return read_split(place, 30, false, log); };
  CHECK_THROWS_WITH(read(folder / "none"), (folder / "none").string() + ": No such file or directory");
  std::ofstream(folder / "._b.json") << "of macOS";
  CHECK_THROWS_WITH(read(folder.path()), folder.path().string() + ": holds no .json");
  folder.write_transcript("b.json", 9);
  CHECK_THROWS_AS(read(folder.path()), looptorch::ManifestError);
  folder.write_tone("b.wav", 40, 0.5);
  CHECK_THROWS_WITH(read(folder.path()),
                    folder.path().string() + ": 9 segments can be used; 10 are the least to split");
}

TEST_CASE("A subset is a share of the utterances, each at most once, chosen by the seed") {
  const auto names = [](double percent, int64_t seed) {
    std::vector<std::string> out;
    for (const auto& utterance : whisper::random_subset(numbered(40), percent, seed))
      out.push_back(utterance.audio_filepath);
    return out;
  };
  CHECK(names(100, 1).size() == 40);
  const auto quarter = names(25, 1);
  CHECK(quarter.size() == 10);
  CHECK(std::set<std::string>(quarter.begin(), quarter.end()).size() == 10);
  CHECK(names(25, 1) == quarter);
  CHECK(names(25, 2) != quarter);
  CHECK(names(0.01, 1).size() == 1);
}
