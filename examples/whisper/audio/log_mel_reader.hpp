// SPDX-License-Identifier: MIT
// Reads audio files as Whisper's input, which is log-mel frames. All clips get the length `max_seconds`;
// shorter clips are padded with the features of silence. With 8 s in place of Whisper's 30 s, the encoder
// takes a quarter of the time and memory.
//
// Shapes: M mel bins, T mel frames.
#pragma once

#include <looptorch/audio/clip_reader.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <vector>

namespace whisper {

/// Thrown for speech that this model cannot learn from or transcribe. Names the file.
using SpeechError = looptorch::audio::ClipError;

inline constexpr double kWhisperSeconds = 30;  ///< Whisper's window, its longest input.

/// How many seconds a clip may exceed the model's length; the rest is cut. Manifests round durations, and
/// encoders add some samples.
inline constexpr double kLengthSlack = 0.05;

/// The length of the model's input.
struct SpeechOptions {
  std::int64_t mel_bins = 80;
  double max_seconds = kWhisperSeconds;  ///< Shorter clips are padded to it; longer ones are refused.
};

/// Returns the smallest whole number of seconds that holds the longest clip of all manifests, by their known
/// durations and with a tolerance of kLengthSlack. Returns Whisper's own window if a clip is longer or a
/// duration is unknown.
inline double common_seconds(std::initializer_list<const std::vector<looptorch::Utterance>*> manifests) {
  double longest = 1;
  for (const auto* manifest : manifests) {
    for (const auto& utterance : *manifest)
      longest = std::max(longest, utterance.duration.value_or(kWhisperSeconds));
  }
  return std::min(std::ceil(longest - kLengthSlack), kWhisperSeconds);
}

/// Returns the limits of clips for a model with an input of `max_seconds`.
inline looptorch::audio::ClipLimits limits_of(double max_seconds) {
  using looptorch::message;
  return {
      .max_seconds = max_seconds,
      .slack_seconds = kLengthSlack,
      .called =
          max_seconds < kWhisperSeconds
              ? message("the ", max_seconds, " s of --max-audio-seconds")
              : message(
                    "the ", kWhisperSeconds,
                    " s that Whisper transcribes at once; a text without times cannot be cut: give each sentence "
                    "a line of its own with \"start\" and \"end\"")};
}

/// Reads an audio file, resampled to 16 kHz, as log-mel frames `[M, T]`, T = 100 x max_seconds. Safe to call
/// from several threads.
class LogMelReader {
 public:
  /// Throws UsageError for a length that gives no frame.
  explicit LogMelReader(SpeechOptions options)
      : reader_({.sample_rate = kRate, .limits = limits_of(options.max_seconds)}),
        log_mel_({.mel_bins = options.mel_bins, .max_samples = std::llround(options.max_seconds * kRate)}) {}

  /// Returns the frames of a file, or of its part between `start` and `end` (seconds). Throws SpeechError for
  /// a clip that is silent or longer than `max_seconds`, found without decoding the rest, and what
  /// looptorch::audio::decode throws.
  [[nodiscard]] at::Tensor operator()(const std::filesystem::path& file, double start = 0,
                                      double end = std::numeric_limits<double>::infinity()) const {
    return log_mel_(reader_(file, start, end));
  }

  /// Returns the frames of the clip that a line of a manifest names.
  [[nodiscard]] at::Tensor operator()(const looptorch::Utterance& utterance) const {
    return log_mel_(reader_(utterance));
  }

  /// Decodes the clip and throws what reading its frames would throw.
  void check(const looptorch::Utterance& utterance) const { (void)reader_(utterance); }

 private:
  static constexpr std::int64_t kRate = looptorch::audio::LogMel::kSampleRate;

  looptorch::audio::ClipReader reader_;
  looptorch::audio::LogMel log_mel_;
};

}  // namespace whisper
