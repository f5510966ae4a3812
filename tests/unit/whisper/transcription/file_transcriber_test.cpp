// SPDX-License-Identifier: MIT
// Tests whisper/transcription: batched_chunks
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "support/temporary_folder.hpp"
#include "unit/whisper/random_recognizer.hpp"

#include <whisper/transcription/file_transcriber.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using looptorch::testing::TemporaryFolder;
using whisper::FileTranscriber, whisper::Recording, whisper::SlidingWindows, whisper::TranscribeOptions,
    whisper::Transcription;

namespace {

std::string write_tone(const std::filesystem::path& file, double seconds, double pitch) {
  const auto t = at::arange(static_cast<std::int64_t>(seconds * 16000), at::kFloat) * pitch;
  looptorch::audio::encode(file, {0.4 * (t + 3 * (t / 50).sin()).sin(), 16000});
  return file.string();
}

/// A recognizer whose texts depend on the sound.
whisper::Recognizer sharp_recognizer() {
  auto recognizer = whisper_test::random_recognizer();
  const torch::NoGradGuard no_grad;
  for (auto& parameter : recognizer.model->parameters()) parameter.mul_(4);
  return recognizer;
}

using Transcribed = std::vector<std::pair<std::string, Transcription>>;

Transcribed transcribe(const std::vector<std::string>& files, const TranscribeOptions& options) {
  auto recognizer = sharp_recognizer();
  Transcribed transcribed;
  FileTranscriber transcriber(
      recognizer, options,
      {.whole = [&](const std::string& file,
                    const Transcription& text) { transcribed.emplace_back(file, text); },
       .part = {}});
  for (const auto& file : files) transcriber.add(file);
  transcriber.finish();
  return transcribed;
}

}  // namespace

TEST_CASE("Short files are transcribed in batches as each alone, and used in their order") {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 5; ++i)
    files.push_back(write_tone(folder / (std::to_string(i) + ".wav"), 1 + i, 0.05 * (i + 1)));
  TranscribeOptions options;
  options.batch_size = 2;
  const auto together = transcribe(files, options);
  REQUIRE(together.size() == 5);
  options.batch_size = 1;
  const auto alone = transcribe(files, options);
  for (std::size_t i = 0; i < files.size(); ++i) {
    CAPTURE(i);
    CHECK(together[i].first == files[i]);
    CHECK_FALSE(together[i].second.text.empty());
    CHECK(together[i].second.text == alone[i].second.text);
    CHECK(together[i].second.language == "en");
  }
  CHECK(alone[0].second.text != alone[4].second.text);
}

TEST_CASE("Short files wait for a full batch, and a longer one does not overtake them") {
  const TemporaryFolder folder;
  const auto first = write_tone(folder / "a.wav", 1, 0.1), second = write_tone(folder / "b.wav", 1, 0.2),
             longer = write_tone(folder / "c.wav", 33, 0.1);
  auto recognizer = sharp_recognizer();
  TranscribeOptions options;
  options.batch_size = 3;
  std::vector<std::string> used;
  FileTranscriber transcriber(
      recognizer, options,
      {.whole = [&](const std::string& file, const Transcription&) { used.push_back(file); }, .part = {}});
  transcriber.add(first);
  transcriber.add(second);
  CHECK(used.empty());
  transcriber.add(longer);
  CHECK(used == std::vector<std::string>{first, second, longer});
}

TEST_CASE("A long file is transcribed window by window, with times") {
  const TemporaryFolder folder;
  const auto file = write_tone(folder / "long.wav", 40, 0.07);
  const auto transcribed = transcribe({file}, {});
  REQUIRE(transcribed.size() == 1);
  auto recognizer = sharp_recognizer();
  recognizer.use_timestamps(true);
  Recording recording(file, 80, file);
  const auto wanted = SlidingWindows(recognizer, {})(recording);
  CHECK(transcribed[0].second.text == wanted.text);
  REQUIRE(transcribed[0].second.segments.size() == wanted.segments.size());
  CHECK(wanted.segments.back().end > 30);
}

TEST_CASE("By voice activity the parts with speech are transcribed, in their places") {
  const TemporaryFolder folder;
  const auto tone = [](std::int64_t count) { return 0.4 * (at::arange(count, at::kFloat) * 0.3).sin(); };
  const auto silence = at::zeros({20 * 16000});
  const auto file = folder / "parts.wav";
  looptorch::audio::encode(file, {at::cat({tone(3 * 16000), silence, tone(25 * 16000)}), 16000});
  TranscribeOptions options;
  options.vad = true;
  options.batch_size = 4;
  options.decoding.timestamps = true;
  const auto transcribed = transcribe({file.string()}, options);
  REQUIRE(transcribed.size() == 1);
  const auto& segments = transcribed[0].second.segments;
  REQUIRE(segments.size() >= 2);
  for (std::size_t i = 1; i < segments.size(); ++i) CHECK(segments[i].seek >= segments[i - 1].seek);
  CHECK(segments.front().seek < 500);
  CHECK(segments.back().seek > 2000);
}

TEST_CASE("A file that is missing or silent is refused by name") {
  const TemporaryFolder folder;
  const auto silent = folder / "silent.wav";
  looptorch::audio::encode(silent, {at::zeros({16000}), 16000});
  CHECK_THROWS_WITH(transcribe({silent.string()}, {}), Catch::Contains(silent.string()));
  CHECK_THROWS_WITH(transcribe({(folder / "gone.wav").string()}, {}), Catch::Contains("gone.wav"));
}
