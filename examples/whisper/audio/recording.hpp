// SPDX-License-Identifier: MIT
// A recording of any length as Whisper's input: cuts windows of log-mel frames as openai-whisper does. Reads
// the file twice, once to find the loudest frame and once for the windows, so that hours of audio take only
// some megabytes.
//
// Shapes: M mel bins, T mel frames of 10 ms.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/sample_stream.hpp>
#include <looptorch/base/error.hpp>

#include "log_mel_reader.hpp"
#include "log_mel_stream.hpp"
#include "sound_levels.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace whisper {

inline constexpr std::int64_t kFramesPerSecond = 100;

/// Windows of one file, from its beginning on.
class Recording {
 public:
  /// Reads `file` once. Errors call it `name`. Throws SpeechError for a silent file, and what
  /// looptorch::audio::SampleStream throws.
  Recording(const std::filesystem::path& file, std::int64_t mel_bins, std::string name)
      : name_(std::move(name)),
        loudest_(find_loudest(stream(file, name_), mel_bins,
                              [this](const at::Tensor& samples_T) { levels_.add(samples_T); })),
        frames_(stream(file, name_), {.mel_bins = mel_bins, .peak = loudest_.log_mel}) {
    looptorch::audio::check_peak(name_, loudest_.sample);
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Returns the number of mel frames in the recording.
  [[nodiscard]] std::int64_t frames() const { return loudest_.samples / kSamplesPerFrame; }
  /// Returns `end` or, if less, the number of frames. `begin` is ignored.
  [[nodiscard]] std::int64_t frames_until(std::int64_t /*begin*/, std::int64_t end) const {
    return std::min(end, frames());
  }
  /// True: a silent file is refused as a whole.
  [[nodiscard]] bool has_sound_before(std::int64_t /*end*/) const { return true; }
  [[nodiscard]] double seconds() const {
    return static_cast<double>(loudest_.samples) / looptorch::audio::LogMel::kSampleRate;
  }

  /// Returns the level of each frame.
  [[nodiscard]] const SoundLevels& levels() const { return levels_; }

  /// Returns `[M, length]`: `count` frames from `first` on, then zeros, as openai-whisper pads its windows.
  /// No window may begin before the last one.
  [[nodiscard]] at::Tensor window(std::int64_t first, std::int64_t count, std::int64_t length) {
    return at::constant_pad_nd(frames_(first, count), {0, length - count});
  }

  /// Returns `[M, length]`: the frames from `first` on, then frames of silence after the recording's end.
  [[nodiscard]] at::Tensor with_silence(std::int64_t first, std::int64_t length) {
    return frames_(first, length);
  }

 private:
  static constexpr std::int64_t kSamplesPerFrame = 160;

  static looptorch::audio::SampleStream stream(const std::filesystem::path& file, const std::string& name) {
    return looptorch::audio::SampleStream(file, looptorch::audio::LogMel::kSampleRate, name);
  }

  std::string name_;
  SoundLevels levels_;
  LoudestFrame loudest_;
  LogMelStream frames_;
};

}  // namespace whisper
