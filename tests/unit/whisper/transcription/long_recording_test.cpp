// SPDX-License-Identifier: MIT
// What a recording of many hours takes of memory, with a small random model and 30 s windows: ten minutes by
// default, ten hours with LOOPTORCH_WHISPER_LONG.
// Tests whisper/transcription: batched_chunks, sliding_windows
#include "support/precompiled.hpp"

#include "../random_recognizer.hpp"
#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <sndfile.h>
#include <unistd.h>
#include <whisper/audio/arriving_recording.hpp>
#include <whisper/transcription/batched_chunks.hpp>
#include <whisper/transcription/growing_files.hpp>
#include <whisper/transcription/sliding_windows.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace whisper_test;
using looptorch::testing::TemporaryFolder;

namespace {

constexpr int kRate = 8000;  // is resampled

/// Syllables of a tone with pauses.
std::vector<short> minute_of_sound() {
  std::vector<short> minute(60 * kRate);
  for (size_t i = 0; i < minute.size(); ++i) {
    const double t = static_cast<double>(i) / kRate;
    const bool speaks = std::fmod(t, 20) < 16 && std::fmod(t, 0.3) < 0.2;
    minute[i] = static_cast<short>((speaks ? 8000 : 20) * std::sin(t * 2000 + 3 * std::sin(t * 5)));
  }
  return minute;
}

/// Writes the same minute again and again.
void write_recording(const std::filesystem::path& file, int minutes) {
  const auto minute = minute_of_sound();
  SF_INFO info{};
  info.samplerate = kRate, info.channels = 1, info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> sound(sf_open(file.c_str(), SFM_WRITE, &info), sf_close);
  REQUIRE(sound);
  for (int i = 0; i < minutes; ++i)
    REQUIRE(sf_write_short(sound.get(), minute.data(), std::ssize(minute)) == std::ssize(minute));
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

/// The minutes of a recording: ten, or ten hours.
int minutes_of_sound() { return std::getenv("LOOPTORCH_WHISPER_LONG") != nullptr ? 600 : 10; }

/// Checks what `transcribe` adds at its peak.
template <class Transcribe>
void check_memory(const char* how, int minutes, Transcribe transcribe) {
  const auto bytes = added_memory(transcribe);
  WARN(minutes << " minutes " << how << ": " << bytes / 1'000'000 << " MB beyond the model");
  CHECK(bytes < 200'000'000);
}

}  // namespace

TEST_CASE("Hours of audio in sequence take less than 200 MB") {
  const int minutes = minutes_of_sound();
  const TemporaryFolder folder;
  write_recording(folder / "talk.wav", minutes);
  auto recognizer = random_recognizer();
  check_memory("in sequence", minutes, [&] {
    whisper::Recording recording(folder / "talk.wav", 80, "talk");
    CHECK(recording.frames() == minutes * 6000);
    const auto transcription = whisper::SlidingWindows(recognizer, {})(recording);
    REQUIRE(transcription.segments.size() >= static_cast<size_t>(minutes));
    CHECK(transcription.segments.back().end > minutes * 60 - 31);
    CHECK_FALSE(transcription.text.empty());
  });
}

TEST_CASE("Hours of audio by voice activity take less than 200 MB") {
  const int minutes = minutes_of_sound();
  const TemporaryFolder folder;
  write_recording(folder / "talk.wav", minutes);
  auto recognizer = random_recognizer();
  check_memory("by voice activity, 4 at once", minutes, [&] {
    whisper::Recording recording(folder / "talk.wav", 80, "talk");
    whisper::Transcription transcription{.text = {}, .segments = {}, .language = "en"};
    whisper::BatchedChunks chunks(recognizer, {}, 4);
    const auto& levels = recording.levels().decibels();
    const auto speech = whisper::find_speech(levels);
    CHECK(speech.size() == static_cast<size_t>(minutes) * 3);
    for (const auto& span : whisper::pack_speech(speech, 3000, levels))
      chunks.add({&transcription, span, recording.window(span.begin, span.size(), 3000)});
    chunks.finish();
    whisper::complete(transcription, recognizer);
    CHECK(transcription.segments.size() >= static_cast<size_t>(minutes) * 2);
    for (size_t i = 1; i < transcription.segments.size(); ++i)
      REQUIRE(transcription.segments[i].seek >= transcription.segments[i - 1].seek);
  });
}

TEST_CASE("Hours of audio through a pipe take less than 200 MB") {
  const int minutes = minutes_of_sound() / 2;
  const TemporaryFolder folder;
  auto recognizer = random_recognizer();
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::thread writer([&, minute = minute_of_sound()] {
    for (int i = 0; i < minutes; ++i)
      for (size_t at = 0; at < minute.size(); at += 2000)
        if (::write(ends[1], minute.data() + at, 4000) != 4000) return;
    ::close(ends[1]);
  });
  check_memory("through a pipe", minutes, [&] {
    whisper::ArrivingRecording recording(ends[0], {.sample_rate = kRate}, 80, "-");
    const whisper::TranscriptFiles files(folder / "stream", "all", {});
    whisper::GrowingFiles growing(files, "-", false);
    whisper::SegmentTexts texts(recognizer);
    size_t count = 0;
    double end = 0;
    const auto transcription = whisper::SlidingWindows(recognizer, {})(
        recording, [&](std::vector<whisper::Segment> segments, const std::string& language) {
          count += segments.size();
          if (!segments.empty()) end = segments.back().end;
          growing.add({.name = "-", .segments = segments, .text = texts.add(segments), .language = language});
        });
    growing.add({.name = "-", .text = texts.finish(), .language = transcription.language, .is_last = true});
    CHECK_NOTHROW(recording.check_end());
    CHECK(transcription.segments.empty());
    CHECK(count >= static_cast<size_t>(minutes));
    CHECK(end > minutes * 60 - 31);
    CHECK(std::filesystem::file_size(folder / "stream/stdin.json") > count * 100);
  });
  writer.join();
  ::close(ends[0]);
}
