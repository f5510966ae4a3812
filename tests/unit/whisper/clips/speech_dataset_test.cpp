// SPDX-License-Identifier: MIT
// Tests whisper/audio: log_mel_reader
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/temporary_folder.hpp"

#include <sndfile.h>
#include <whisper/clips/speech_dataset.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

using Catch::Contains;
using Catch::Matchers::EndsWith;
using looptorch::Utterance;
using looptorch::testing::TemporaryFolder;
using whisper::Sample;

namespace {

constexpr int64_t kEnd = 295, kStart = 296, kNoTimestamps = 298;

whisper::Tokenizer tokenizer() {
  return whisper::load_tokenizer(LOOPTORCH_SOURCE_DIR "/tests/parity/data/small_tokenizer.json");
}

whisper::DecodingOptions decoding(int64_t max_length = 448) {
  return {.prompt = {kStart, kNoTimestamps},
          .suppress = {},
          .begin_suppress = {},
          .end_of_text = kEnd,
          .max_length = max_length};
}

/// A tone of `seconds`, as 16-bit WAV.
std::filesystem::path write_tone(const std::filesystem::path& path, double seconds, double peak = 0.5,
                                 int rate = 16000) {
  std::vector<float> samples(static_cast<size_t>(seconds * rate));
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>(peak * std::sin(0.1 * static_cast<double>(i)));
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = 1;
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  auto* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  REQUIRE(sf_write_float(file, samples.data(), static_cast<sf_count_t>(samples.size())) ==
          static_cast<sf_count_t>(samples.size()));
  sf_close(file);
  return path;
}

whisper::SpeechDataset dataset(std::vector<Utterance> utterances, double max_seconds = 2,
                               int64_t max_length = 448) {
  return {
      std::move(utterances), tokenizer(), decoding(max_length), {.mel_bins = 80, .max_seconds = max_seconds}};
}

Utterance lasting(std::optional<double> duration) {
  return {.audio_filepath = "a.wav", .text = "a", .duration = duration};
}

}  // namespace

TEST_CASE(
    "A training sequence is the prompt, the text after a blank that merges with it, and the end of text") {
  TemporaryFolder folder;
  const auto file = write_tone(folder / "a.wav", 1);
  const auto tokens_of = [&](const std::string& text) {
    return dataset({{.audio_filepath = file, .text = text}}).get(0).tokens;
  };
  const auto framed = [](std::vector<int64_t> ids) {
    ids.insert(ids.begin(), {kStart, kNoTimestamps});
    ids.push_back(kEnd);
    return ids;
  };
  CHECK(tokens_of("the cat") == framed(tokenizer().encode(" the cat")));
  CHECK(tokens_of("turn left") == framed(tokenizer().encode("turn left")));  // has no token " t"
}

TEST_CASE("The identity of the targets differs for a tokenizer that makes other tokens of the same texts") {
  const std::vector<Utterance> utterances{{.audio_filepath = "a.wav", .text = "the cat"},
                                          {.audio_filepath = "a.wav", .text = "turn left"}};
  const auto identity_by = [&](const whisper::Tokenizer& tokens) {
    return whisper::SpeechDataset(utterances, tokens, decoding(), {.mel_bins = 80, .max_seconds = 2})
        .targets_identity();
  };
  auto spelling = tokenizer();
  spelling.spell_out();
  CHECK(identity_by(tokenizer()) == dataset(utterances).targets_identity());
  CHECK(identity_by(tokenizer()) != identity_by(spelling));
}

TEST_CASE("A training sequence names the clip's own language") {
  TemporaryFolder folder;
  const auto file = write_tone(folder / "a.wav", 1);
  auto options = decoding();
  options.special = {.start = kStart, .transcribe = 290, .no_timestamps = kNoTimestamps};
  options.special.languages = {{"de", 291}, {"en", 292}};
  whisper::set_prompt(options, "en");
  const whisper::SpeechDataset speech(
      {{.audio_filepath = file, .text = "a", .language = "de"}, {.audio_filepath = file, .text = "a"}},
      tokenizer(), options, {.max_seconds = 2});
  const auto beginning = [&](int64_t clip) {
    const auto tokens = speech.get(clip).tokens;
    return std::vector<int64_t>(tokens.begin(), tokens.begin() + 4);
  };
  CHECK(beginning(0) == std::vector<int64_t>{kStart, 291, 290, kNoTimestamps});
  CHECK(beginning(1) == std::vector<int64_t>{kStart, 292, 290, kNoTimestamps});
  std::vector<Sample> samples{speech.get(0), speech.get(1)};
  CHECK(speech.collate(samples).languages == std::vector<std::string>{"de", ""});
  CHECK_THROWS_WITH(
      whisper::target_of({.audio_filepath = file, .text = "a", .language = "tlh"}, tokenizer(), options),
      EndsWith("a.wav: the model does not know the language \"tlh\""));
}

TEST_CASE("All clips of a dataset are as long as its max_seconds") {
  TemporaryFolder folder;
  const auto speech = dataset({{.audio_filepath = write_tone(folder / "a.wav", 0.3), .text = "a"},
                               {.audio_filepath = write_tone(folder / "b.wav", 2), .text = "b"},
                               {.audio_filepath = write_tone(folder / "c.wav", 1), .text = "c c c"}});
  looptorch::PinnedPrefetchLoader loader(speech, {.batch_size = 2, .workers = 1});
  std::vector<int64_t> rows;
  int64_t labels = 0;
  for (const auto& batch : loader) {
    CHECK(batch.mel_BMT.sizes().slice(1) == at::IntArrayRef({80, 200}));
    rows.push_back(batch.mel_BMT.size(0));
    labels += batch.label_count;
  }
  CHECK(rows == std::vector<int64_t>{2, 1});
  int64_t expected = 0;
  for (int64_t i = 0; i < 3; ++i) expected += static_cast<int64_t>(speech.get(i).tokens.size()) - 1;
  CHECK(labels == expected);
}

TEST_CASE("A line's start and end choose a part of the file") {
  TemporaryFolder folder;
  const auto file = write_tone(folder / "a.wav", 4);
  const auto speech =
      dataset({{.audio_filepath = file, .text = "a", .duration = 4, .start = 1.0, .end = 2.5}});
  const auto samples_T = looptorch::audio::decode(file, {.start = 1.0, .end = 2.5}).samples_T;
  const looptorch::audio::LogMel log_mel({.mel_bins = 80, .max_samples = 32000});
  CHECK(at::equal(speech.get(0).mel_MT, log_mel(samples_T)));
}

TEST_CASE("Speech that cannot be used is an error that names the file") {
  TemporaryFolder folder;
  const auto read = [](const std::filesystem::path& file) {
    return dataset({{.audio_filepath = file, .text = "a"}}).get(0);
  };
  CHECK_THROWS_AS(read(write_tone(folder / "silent.wav", 1, 0)), whisper::SpeechError);
  CHECK_THROWS_WITH(read(folder / "silent.wav"), EndsWith("silent.wav: is silent"));
  CHECK_THROWS_WITH(read(write_tone(folder / "long.wav", 2.5)),
                    EndsWith("long.wav: lasts 2.5 s, longer than the 2 s of --max-audio-seconds"));
  CHECK_NOTHROW(read(write_tone(folder / "narrow.wav", 1, 0.5, 8000)));  // resampled
  CHECK_THROWS_WITH(read(write_tone(folder / "empty.wav", 0)), Contains("empty.wav: holds no samples"));
  CHECK_NOTHROW(read(write_tone(folder / "quiet.wav", 1, 0.001)));
}

TEST_CASE("A clip may be some frames longer than clips are, which are cut") {
  TemporaryFolder folder;
  const auto read = [](const std::filesystem::path& file) {
    return dataset({{.audio_filepath = file, .text = "a", .duration = 2.0}}).get(0).mel_MT;
  };
  CHECK(read(write_tone(folder / "a.wav", 2.004)).sizes() == at::IntArrayRef({80, 200}));
  CHECK(read(write_tone(folder / "b.wav", 2.049)).size(1) == 200);
  CHECK_THROWS_AS(read(write_tone(folder / "c.wav", 2.06)), whisper::SpeechError);
}

TEST_CASE(
    "A long recording is refused without being decoded whole, and names Whisper's limit where that is it") {
  TemporaryFolder folder;
  const auto file = write_tone(folder / "long.wav", 40);
  // Damage after what has to be decoded to see that the clip is too long.
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-16, std::ios::end);
  stream.write("damaged", 7);
  const whisper::LogMelReader read({.mel_bins = 80, .max_seconds = 30});
  CHECK_THROWS_WITH(
      read(file),
      Contains(
          "long.wav: lasts 40 s, longer than the 30 s that Whisper transcribes at once; a text without times cannot be cut: "));
  CHECK_THROWS_WITH(
      read(file, 5),
      Contains(
          "long.wav: lasts 35 s, longer than the 30 s that Whisper transcribes at once; a text without times cannot be cut: "));
  CHECK_THROWS_WITH(read(file, 1, 33), Contains("lasts 32 s"));
  CHECK(read(file, 10.5).size(1) == 3000);
}

TEST_CASE("A text that has no target is found before any audio is read") {
  const auto tokens = tokenizer().encode("turn left").size() + 3;
  const auto count = static_cast<int64_t>(tokens);
  CHECK_NOTHROW(dataset({{.audio_filepath = "a.wav", .text = "turn left"}}, 2, count));
  CHECK_THROWS_AS(dataset({{.audio_filepath = "a.wav", .text = "turn left"}}, 2, count - 1),
                  whisper::SpeechError);
  CHECK_THROWS_WITH(dataset({{.audio_filepath = "a.wav", .text = "turn left"}}, 2, count - 1),
                    Contains("a.wav: its text has " + std::to_string(count) + " tokens with prompt and end"));
  CHECK_THROWS_WITH(dataset({{.audio_filepath = "a.wav", .text = "\xff"}}), Contains("UTF-8"));
  CHECK_THROWS_WITH(dataset({{.audio_filepath = "a.wav", .text = " "}}), "a.wav: its text is blank");
}

TEST_CASE("Every tensor of a batch lies in the loader's memory, which later batches use again") {
  TemporaryFolder folder;
  std::vector<Utterance> utterances;
  for (int i = 0; i < 12; ++i)
    utterances.push_back({.audio_filepath = write_tone(folder / "a.wav", 0.3), .text = "turn left"});
  const auto speech = dataset(utterances);
  looptorch::PinnedPrefetchLoader loader(speech,
                                         {.batch_size = 2, .workers = 0, .prefetch = 0, .pin = false});
  for (const auto& batch : loader) CHECK(batch.mel_BMT.size(0) == 2);
  CHECK(loader.stats().slot_allocations == 3);  // mels, tokens, labels
  CHECK(loader.stats().slot_reuses == 5 * 3);
}

TEST_CASE("The common length holds the longest clip, and is Whisper's own where that is not known") {
  const std::vector<Utterance> a{lasting(1.5), lasting(4.2)}, b{lasting(5)};
  CHECK(whisper::common_seconds({&a}) == 5);
  CHECK(whisper::common_seconds({&a, &b}) == 5);
  const std::vector<Utterance> little_longer{lasting(3.004)}, longer{lasting(3.06)};
  CHECK(whisper::common_seconds({&little_longer}) == 3);
  CHECK(whisper::common_seconds({&longer}) == 4);
  const std::vector<Utterance> unknown{lasting(std::nullopt)}, endless{lasting(31)};
  CHECK(whisper::common_seconds({&a, &unknown}) == 30);
  CHECK(whisper::common_seconds({&a, &endless}) == 30);
}
