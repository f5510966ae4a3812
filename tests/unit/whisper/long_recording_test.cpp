// SPDX-License-Identifier: MIT
// What a recording of many hours takes of memory, with a small random model and 30 s windows: ten minutes by
// default, ten hours with LOOPTORCH_WHISPER_LONG.
#include "support/precompiled.hpp"

#include "reference.hpp"
#include "support/temporary_folder.hpp"

#include <sndfile.h>
#include <whisper/batched_chunks.hpp>
#include <whisper/sliding_windows.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

using namespace whisper_test;
using looptorch::testing::TemporaryFolder;

namespace {

constexpr int kRate = 8000;  // is resampled

/// Writes syllables of a tone with pauses, a minute again and again.
void write_recording(const std::filesystem::path& file, int minutes) {
  std::vector<short> minute(60 * kRate);
  for (size_t i = 0; i < minute.size(); ++i) {
    const double t = static_cast<double>(i) / kRate;
    const bool speaks = std::fmod(t, 20) < 16 && std::fmod(t, 0.3) < 0.2;
    minute[i] = static_cast<short>((speaks ? 8000 : 20) * std::sin(t * 2000 + 3 * std::sin(t * 5)));
  }
  SF_INFO info{};
  info.samplerate = kRate, info.channels = 1, info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> sound(sf_open(file.c_str(), SFM_WRITE, &info), sf_close);
  REQUIRE(sound);
  for (int i = 0; i < minutes; ++i)
    REQUIRE(sf_write_short(sound.get(), minute.data(), std::ssize(minute)) == std::ssize(minute));
}

/// A recognizer with the tokens of small_tokenizer.json and 1501 timestamps.
whisper::Recognizer random_recognizer() {
  torch::manual_seed(5);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 1800,
                                                .d_model = 16,
                                                .encoder_layers = 1,
                                                .decoder_layers = 1,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 2,
                                                .encoder_ffn_dim = 16,
                                                .decoder_ffn_dim = 16,
                                                .pad_token_id = 295,
                                                .bos_token_id = 295,
                                                .eos_token_id = 295,
                                                .decoder_start_token_id = 296});
  whisper::DecodingOptions decoding{
      .prompt = {296}, .suppress = {296, 297, 298}, .begin_suppress = {}, .end_of_text = 295};
  decoding.special.start = 296, decoding.special.previous = 297, decoding.special.no_timestamps = 298;
  decoding.max_new_tokens = 24;
  decoding.without_timestamps = false;
  return {std::move(model), whisper::load_tokenizer(kParity / "small_tokenizer.json"), std::move(decoding)};
}

/// Returns a field of /proc/self/status in bytes.
int64_t memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  FAIL("no " << field);
  return 0;
}

/// Returns by how much `work` raises the process's memory at its peak.
template <class Work>
int64_t added_memory(Work work) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const auto before = memory("VmRSS");
  work();
  return memory("VmHWM") - before;
}

}  // namespace

TEST_CASE("Hours of audio take less than 200 MB") {
  const bool long_one = std::getenv("LOOPTORCH_WHISPER_LONG") != nullptr;
  const int minutes = long_one ? 600 : 10;
  const TemporaryFolder folder;
  write_recording(folder / "talk.wav", minutes);
  auto recognizer = random_recognizer();
  const auto hear = [&] {
    whisper::Recording recording(folder / "talk.wav", 80, "talk");
    CHECK(recording.frames() == minutes * 6000);
    const auto heard = whisper::SlidingWindows(recognizer, {})(recording);
    REQUIRE(heard.segments.size() >= static_cast<size_t>(minutes));
    CHECK(heard.segments.back().end > minutes * 60 - 31);
    CHECK_FALSE(heard.text.empty());
  };
  const auto bytes = added_memory(hear);
  WARN(minutes << " minutes in sequence: " << bytes / 1'000'000 << " MB beyond the model");
  CHECK(bytes < 200'000'000);

  const auto hear_speech = [&] {
    whisper::Recording recording(folder / "talk.wav", 80, "talk");
    whisper::Transcription heard{.text = {}, .segments = {}, .language = "en"};
    whisper::BatchedChunks chunks(recognizer, {}, 4);
    const auto& levels = recording.levels().decibels();
    const auto speech = whisper::find_speech(levels);
    CHECK(speech.size() == static_cast<size_t>(minutes) * 3);
    for (const auto& span : whisper::pack_speech(speech, 3000, levels))
      chunks.add({&heard, span, recording.window(span.begin, span.size(), 3000)});
    chunks.finish();
    whisper::complete(heard, recognizer);
    CHECK(heard.segments.size() >= static_cast<size_t>(minutes) * 2);
    for (size_t i = 1; i < heard.segments.size(); ++i)
      REQUIRE(heard.segments[i].seek >= heard.segments[i - 1].seek);
  };
  const auto by_speech = added_memory(hear_speech);
  WARN(minutes << " minutes by voice activity, 4 at once: " << by_speech / 1'000'000
               << " MB beyond the model");
  CHECK(by_speech < 200'000'000);
}
