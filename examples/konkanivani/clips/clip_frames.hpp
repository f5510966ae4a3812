// SPDX-License-Identifier: MIT
// Converts audio files to log-mel frames, at one speed or several. Frames are computed each time or cached in
// a folder, which holds each clip at every speed, without masks. Speed and masks are drawn later, anew in
// each epoch, so training learns the same with and without a cache.
//
// Shapes: M mel bins, F mel frames of 10 ms, T samples.
#pragma once

#include <looptorch/audio/clip_reader.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/resample.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

/// Thrown for speech that this model cannot learn from or transcribe. Names the file.
using SpeechError = looptorch::audio::ClipError;

struct SpeechOptions {
  std::int64_t mel_bins = 80;
  double max_seconds = 20;           ///< the longest clip that is accepted
  std::int64_t subsampling = 4;      ///< mel frames in one frame of the model's encoder
  std::filesystem::path cache = {};  ///< folder of log-mel frames for later epochs and runs; empty: none
};

/// Reads an audio file, resampled to 16 kHz, as log-mel frames `[M, F]`, F = samples / 160, rounded up.
/// Computes a clip as if it were padded to whole seconds, and takes as long as that length does. Safe to call
/// from several threads.
class LogMelReader {
 public:
  explicit LogMelReader(const SpeechOptions& options)
      : reader_({.sample_rate = kRate, .limits = {.max_seconds = options.max_seconds}}) {
    const auto longest = static_cast<std::int64_t>(std::ceil(options.max_seconds * kSlowest)) + 1;
    for (std::int64_t seconds = 1; seconds <= longest; ++seconds)
      log_mels_.emplace_back(
          looptorch::audio::LogMelOptions{.mel_bins = options.mel_bins, .max_samples = seconds * kRate});
  }

  /// Returns the samples `[T]` of a manifest's line, scaled to a peak of kPeak, since log-mel frames depend
  /// on a recording's loudness, and its text does not. Throws SpeechError for a clip that is silent or longer
  /// than `max_seconds`, and what looptorch::audio::decode throws.
  [[nodiscard]] at::Tensor samples(const looptorch::Utterance& utterance) const {
    const auto samples_T = reader_(utterance);
    return samples_T * (kPeak / samples_T.abs().max());
  }

  [[nodiscard]] at::Tensor frames(const at::Tensor& samples_T) const {
    const auto needed = samples_T.size(0) + kWindow;  // the last frame includes silence after the clip
    const auto& log_mel = log_mels_[std::min<std::size_t>(static_cast<std::size_t>((needed - 1) / kRate),
                                                          log_mels_.size() - 1)];
    const auto count = (samples_T.size(0) + kHop - 1) / kHop;
    return log_mel(samples_T).narrow(1, 0, std::min(count, log_mel.frames())).clone();
  }

  static constexpr std::int64_t kRate = looptorch::audio::LogMel::kSampleRate, kHop = 160;
  static constexpr double kPeak = 0.5;

 private:
  static constexpr double kSlowest = 1.25;  // room for a clip played more slowly
  static constexpr std::int64_t kWindow = 400;

  looptorch::audio::ClipReader reader_;
  std::vector<looptorch::audio::LogMel> log_mels_;  // for clips of up to 1 s, 2 s, ...
};

/// A dataset of the frames `[M, F]` of clips at several speeds (at 1.1 a clip is faster, shorter and higher).
/// Entry `clip * speeds + speed` is a clip at one speed.
class ClipFrames {
 public:
  /// Throws UsageError if `speeds` is empty, or has a speed outside [0.1, 10].
  ClipFrames(std::vector<looptorch::Utterance> utterances, const SpeechOptions& options,
             const std::vector<double>& speeds)
      : utterances_(std::move(utterances)), reader_(options), speeds_(speeds) {
    if (speeds.empty()) throw looptorch::UsageError("ClipFrames: no speed to play clips at");
    for (const double speed : speeds) {
      if (!(speed >= 0.1 && speed <= 10))
        throw looptorch::UsageError(
            looptorch::message("ClipFrames: speed ", speed, " is not between 0.1 and 10"));
      players_.emplace_back(std::llround(100 * speed), 100);
    }
  }

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(utterances_.size() * speeds_.size());
  }

  /// Returns the frames of an entry. Throws what LogMelReader throws.
  [[nodiscard]] at::Tensor get(std::int64_t entry) const {
    return reader_.frames(players_[speed(entry)](reader_.samples(utterances_[clip(entry)])));
  }

  /// Returns the entry's identity for a cache: the contents of its file, times and speed. Throws FileError.
  [[nodiscard]] std::string identity(std::int64_t entry) const {
    const auto& utterance = utterances_[clip(entry)];
    const auto microseconds = [](double seconds) { return std::llround(1e6 * seconds); };
    return looptorch::message(looptorch::remembered_content_identity(utterance.audio_filepath), '|',
                              microseconds(utterance.start.value_or(0)), '|',
                              utterance.end ? microseconds(*utterance.end) : -1, '|',
                              std::llround(100 * speeds_[speed(entry)]));
  }

  [[nodiscard]] std::filesystem::path path(std::int64_t entry) const {
    return utterances_[clip(entry)].audio_filepath;
  }

 private:
  [[nodiscard]] std::size_t clip(std::int64_t entry) const {
    return static_cast<std::size_t>(entry) / speeds_.size();
  }
  [[nodiscard]] std::size_t speed(std::int64_t entry) const {
    return static_cast<std::size_t>(entry) % speeds_.size();
  }

  std::vector<looptorch::Utterance> utterances_;
  LogMelReader reader_;
  std::vector<double> speeds_;
  std::vector<looptorch::audio::Resampler> players_;  // by speed
};

/// Returns the frames of an entry, as ClipFrames::get does.
using FramesSource = std::function<at::Tensor(std::int64_t)>;

/// Returns a source that computes frames each time or, if `options.cache` names a folder, only once: about 32
/// kB a second of audio and speed. Throws what CachedDataset throws.
[[nodiscard]] inline FramesSource frames_source(ClipFrames frames, const SpeechOptions& options) {
  const auto share = [](auto dataset) -> FramesSource {
    return [dataset = std::move(dataset)](std::int64_t entry) { return dataset->get(entry); };
  };
  if (options.cache.empty()) return share(std::make_shared<const ClipFrames>(std::move(frames)));
  const looptorch::CacheOptions caching{
      .folder = options.cache,
      .settings = looptorch::message("log-mel ", options.mel_bins, ", clips of up to ", options.max_seconds,
                                     " s, peak ", LogMelReader::kPeak)};
  return share(std::make_shared<const looptorch::CachedDataset<ClipFrames>>(std::move(frames), caching));
}

}  // namespace konkanivani
