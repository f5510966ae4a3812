// SPDX-License-Identifier: MIT
// Streams beside the same sound in a file: the same segments, each as soon as its window has arrived.
// Tests whisper/audio: recording
// Tests whisper/transcription: sliding_windows
#include "support/precompiled.hpp"

#include <looptorch/audio/encode.hpp>

#include "../piped_bytes.hpp"
#include "../random_recognizer.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/audio/arriving_recording.hpp>
#include <whisper/transcription/sliding_windows.hpp>
#include <whisper/transcription/stream_text.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using looptorch::testing::TemporaryFolder;
using whisper::ArrivingRecording, whisper::PcmFormat, whisper::Segment;
using whisper_test::bytes_of, whisper_test::PipedBytes;

namespace {

/// A tone that comes and goes, loudest at once.
std::vector<float> sound(double seconds, std::int64_t rate) {
  std::vector<float> samples(static_cast<std::size_t>(seconds * static_cast<double>(rate)));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / static_cast<double>(rate);
    const double level = t < 1 ? 0.5 : std::fmod(t, 7) < 5 ? 0.3 : 0.01;
    samples[i] =
        static_cast<float>(level * std::sin(t * 3000 + 5 * std::sin(t * 7)) + 1e-3 * std::sin(t * 9e3));
  }
  return samples;
}

struct Transcribed {
  std::vector<Segment> segments;
  std::string text;
  std::size_t written_at_first = 0;  ///< Bytes when the first segments were decided.
};

Transcribed transcribe_stream(whisper::Recognizer& recognizer, const PipedBytes& pipe,
                              const PcmFormat& format, const whisper::TranscriptionPlan& plan) {
  ArrivingRecording recording(pipe.end(), format, 80, "-");
  whisper::SegmentTexts texts(recognizer);
  Transcribed transcribed;
  const auto rest = whisper::SlidingWindows(recognizer, plan)(
      recording, [&](std::vector<Segment> segments, const std::string& language) {
        CHECK(language == "en");
        if (transcribed.segments.empty()) transcribed.written_at_first = pipe.written();
        transcribed.text += texts.add(segments);
        transcribed.segments.insert(transcribed.segments.end(), segments.begin(), segments.end());
      });
  CHECK(rest.segments.empty());
  recording.check_sound();
  recording.check_end();
  transcribed.text += texts.finish();
  return transcribed;
}

bool same(const Segment& a, const Segment& b) {
  return a.seek == b.seek && a.start == b.start && a.end == b.end && a.text == b.text && a.tokens == b.tokens;
}

}  // namespace

TEST_CASE(
    "A stream is transcribed like the same sound in a file, before it has ended, however slowly it arrives") {
  const TemporaryFolder folder;
  auto recognizer = whisper_test::random_recognizer();
  const whisper::TranscriptionPlan whole, parts{.clips = {{500, 2000}, {3500, 100'000}}};
  for (const auto& [rate, plan] : {std::pair{std::int64_t{16000}, whole}, {44100, parts}}) {
    const auto samples = sound(62, rate);
    looptorch::audio::encode(folder / "a.wav", {torch::tensor(samples), rate},
                             {.format = looptorch::audio::SampleFormat::float32});
    whisper::Recording recording(folder / "a.wav", 80, "a");
    const auto expected = whisper::SlidingWindows(recognizer, plan)(recording);
    REQUIRE(expected.segments.size() > 3);
    const auto bytes = bytes_of(samples);
    const PipedBytes pipe(bytes, 50'001, std::chrono::microseconds(1000));
    const auto transcribed =
        transcribe_stream(recognizer, pipe, {.sample_rate = rate, .samples = "f32le"}, plan);
    CAPTURE(rate, plan.clips.size());
    CHECK(transcribed.text == expected.text);
    REQUIRE(transcribed.segments.size() == expected.segments.size());
    for (std::size_t i = 0; i < transcribed.segments.size(); ++i)
      CHECK(same(transcribed.segments[i], expected.segments[i]));
    CHECK(transcribed.written_at_first < bytes.size());
  }
}

TEST_CASE("What a stream's windows hold does not depend on how it arrives") {
  const auto bytes = bytes_of(sound(40, 16000));
  at::Tensor window_MT;
  for (const std::size_t piece : {std::size_t{3000}, bytes.size()}) {
    const PipedBytes pipe(bytes, piece);
    ArrivingRecording recording(pipe.end(), {.samples = "f32le"}, 80, "-");
    REQUIRE(recording.frames_until(0, 1000) == 1000);
    const auto again_MT = recording.window(0, 1000, 3000);
    CHECK(again_MT.sizes() == at::IntArrayRef{80, 3000});
    CHECK(again_MT.slice(1, 1000).count_nonzero().item<int64_t>() == 0);
    if (window_MT.defined()) CHECK(again_MT.equal(window_MT));
    window_MT = again_MT;
    CHECK(recording.frames_until(1000, 10'000) == 4000);
    CHECK_THROWS_AS(recording.window(0, 10, 10), looptorch::UsageError);
    CHECK(recording.with_silence(3990, 100).sizes() == at::IntArrayRef{80, 100});
  }
}

TEST_CASE("A stream that ends badly is transcribed up to there, and says why") {
  const auto whole = bytes_of(sound(2, 16000));
  const auto message_of = [](const std::string& bytes) {
    const PipedBytes pipe(bytes, 1000);
    ArrivingRecording recording(pipe.end(), {.samples = "f32le"}, 80, "-");
    CHECK(recording.frames_until(0, 3000) <= 200);
    try {
      recording.check_sound();
      recording.check_end();
    } catch (const looptorch::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message_of(whole).empty());
  CHECK(message_of(whole + "abc") == "-: ends with 3 of the 4 bytes of a sample of f32le");
  CHECK(message_of("") == "-: holds no samples");
  CHECK(message_of("a") == "-: ends with 1 of the 4 bytes of a sample of f32le");
  CHECK(message_of(bytes_of(std::vector<float>(8000, 5e-5F))) == "-: is silent");
  auto broken = sound(2, 16000);
  broken[12345] = std::numeric_limits<float>::infinity();
  CHECK(message_of(bytes_of(broken)) == "-: sample 12345 is not a finite number");
  CHECK_THROWS_AS(ArrivingRecording(0, {.sample_rate = 0}, 80, "-"), looptorch::UsageError);
}

TEST_CASE("Windows before the first sound of a stream hold nothing") {
  auto recognizer = whisper_test::random_recognizer();
  std::vector<float> samples(16000 * 70, 0.0F);
  const auto late = sound(30, 16000);
  std::copy(late.begin(), late.end(), samples.begin() + 16000 * 40);
  const PipedBytes pipe(bytes_of(samples), 1 << 16);
  const auto transcribed = transcribe_stream(recognizer, pipe, {.samples = "f32le"}, {});
  REQUIRE_FALSE(transcribed.segments.empty());
  CHECK(transcribed.segments.front().seek == 3000);
}
