// SPDX-License-Identifier: MIT
// Reads audio files as Whisper's input: log-mel frames of one length, `max_seconds`. Shorter clips are padded
// with the features of silence. The encoder then works on that length instead of on Whisper's 30 s, which for
// 8 s clips costs a quarter of the time and memory.
//
// Shapes: M mel bins, T mel frames.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/probe.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>

namespace whisper {

/// Thrown for speech that this model cannot learn from or transcribe. Names the file.
struct SpeechError : looptorch::Error {
  using Error::Error;
};

inline constexpr double kWhisperSeconds = 30;  ///< Whisper's window, its longest input.

/// The seconds by which a clip may exceed the model's length; the rest is cut. Manifests round durations, and
/// encoders add some samples.
inline constexpr double kLengthSlack = 0.05;

/// The length of the model's input.
struct SpeechOptions {
  std::int64_t mel_bins = 80;
  double max_seconds = kWhisperSeconds;  ///< Shorter clips are padded to it; longer ones are refused.
};

/// Throws SpeechError if a clip of `seconds` is too long for a model with an input of `max_seconds`.
inline void check_length(const std::filesystem::path& file, double seconds, double max_seconds) {
  if (seconds <= max_seconds + kLengthSlack) return;
  using looptorch::message;
  const auto limit = max_seconds < kWhisperSeconds
                         ? message("the ", max_seconds, " s of --max-audio-seconds")
                         : message("the ", kWhisperSeconds, " s that Whisper hears at once");
  throw SpeechError(message(file.string(), ": lasts ", seconds, " s, longer than ", limit));
}

/// Reads an audio file, resampled to 16 kHz, as log-mel frames `[M, T]`, T = 100 x max_seconds. Safe to call
/// from several threads.
class Listener {
 public:
  /// Throws UsageError for a length that gives no frame.
  explicit Listener(SpeechOptions options)
      : options_(options),
        log_mel_({.mel_bins = options.mel_bins,
                  .max_samples = std::llround(options.max_seconds * looptorch::audio::LogMel::kSampleRate)}) {
  }

  /// Returns the frames of a file, or of its part between `start` and `end` (seconds). Throws SpeechError for
  /// a clip that is silent or longer than `max_seconds`, which is detected without decoding the rest, and
  /// what looptorch::audio::decode throws.
  [[nodiscard]] at::Tensor operator()(const std::filesystem::path& file, double start = 0,
                                      double end = kFileEnd) const {
    return log_mel_(samples(file, start, end));
  }

  /// Returns the frames of the clip that a line of a manifest names.
  [[nodiscard]] at::Tensor operator()(const looptorch::Utterance& utterance) const {
    return (*this)(utterance.audio_filepath, utterance.start.value_or(0), utterance.end.value_or(kFileEnd));
  }

  /// Decodes the clip and throws what reading its frames would throw.
  void check(const looptorch::Utterance& utterance) const {
    (void)samples(utterance.audio_filepath, utterance.start.value_or(0), utterance.end.value_or(kFileEnd));
  }

 private:
  static constexpr float kSilence = 1e-4F;  // peak; 3 units of 16-bit audio
  static constexpr double kFileEnd = std::numeric_limits<double>::infinity();

  /// Returns the samples. Decodes only as much as shows that a clip is too long.
  [[nodiscard]] at::Tensor samples(const std::filesystem::path& file, double start, double end) const {
    constexpr auto kRate = looptorch::audio::LogMel::kSampleRate;
    const double enough = start + options_.max_seconds + 2 * kLengthSlack;
    auto samples_T =
        looptorch::audio::decode(file, {.sample_rate = kRate, .start = start, .end = std::min(end, enough)})
            .samples_T;
    const double seconds = static_cast<double>(samples_T.size(0)) / static_cast<double>(kRate);
    if (seconds > options_.max_seconds + kLengthSlack)
      check_length(file, std::min(end, looptorch::audio::probe(file).seconds()) - start,
                   options_.max_seconds);
    if (samples_T.abs().max().item<float>() < kSilence) throw SpeechError(file.string() + ": is silent");
    return samples_T;
  }

  SpeechOptions options_;
  looptorch::audio::LogMel log_mel_;
};

}  // namespace whisper
