// SPDX-License-Identifier: MIT
// Checks the lengths of clips without decoding them, from the headers of their files. Use it to find clips
// that are too long before training. Reads one header (`probe`) per clip, or one per recording if clips are
// parts of recordings.
#pragma once

#include <looptorch/audio/probe.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <string>

namespace looptorch::audio {

/// Thrown for a clip that cannot be used although its file is intact. The message begins with the file.
struct ClipError : Error {
  using Error::Error;
};
/// Thrown for a clip that is longer than ClipLimits allow.
struct ClipTooLong : ClipError {
  using ClipError::ClipError;
};
/// Thrown for a part that begins after the file's end, or ends more than kEndSlack after it: the text is
/// another recording's, or the times are wrong.
struct ClipOutside : ClipError {
  using ClipError::ClipError;
};
/// Thrown for a clip in which nothing is loud enough to be heard.
struct ClipSilent : ClipError {
  using ClipError::ClipError;
};
/// Thrown for a clip far beyond full scale.
struct ClipTooLoud : ClipError {
  using ClipError::ClipError;
};

/// Seconds by which a manifest's clip may end after its file's end, since manifests round times.
inline constexpr double kEndSlack = 0.1;

/// Throws ClipOutside for a clip that begins after the end of its file, which lasts `seconds`, or ends more
/// than kEndSlack after it. A clip without `end` has the `duration` of its line at most.
inline void check_within(const Utterance& clip, double seconds) {
  constexpr double kRounding = 1e-6;
  const auto refuse = [&](const auto&... why) {
    throw ClipOutside(
        looptorch::message(clip.audio_filepath.string(), ": lasts ", seconds, " s, and ", why...));
  };
  const double start = clip.start.value_or(0);
  if (start >= seconds) refuse("the clip begins at ", start, " s");
  if (clip.end && *clip.end > seconds + kEndSlack + kRounding) refuse("the clip ends at ", *clip.end, " s");
  if (!clip.end && clip.duration.value_or(0) > seconds + kEndSlack + kRounding)
    refuse("its line says that it lasts ", *clip.duration, " s");
}

/// Throws ClipError for a part of a file that holds no sample at `rate`.
inline void check_holds_sample(const Utterance& clip, std::int64_t rate) {
  const auto place = [&](double seconds) { return std::round(seconds * static_cast<double>(rate)); };
  const double start = clip.start.value_or(0);
  if (!clip.end || place(*clip.end) > place(start)) return;
  throw ClipError(looptorch::message(clip.audio_filepath.string(), ": no sample lies between ", start,
                                     " s and ", *clip.end, " s"));
}

/// The length that a model can use.
struct ClipLimits {
  double max_seconds = std::numeric_limits<double>::infinity();
  /// Seconds by which a clip may be longer, since manifests round durations and encoders add samples.
  double slack_seconds = 0;
  std::string called = {};  ///< what errors call the limit: "the 30 s of Whisper's window"; empty: "30 s"

  [[nodiscard]] bool allow(double seconds) const { return seconds <= max_seconds + slack_seconds; }

  /// Throws ClipTooLong, which names `file`, for a clip that is too long.
  void check(const std::filesystem::path& file, double seconds) const {
    if (allow(seconds)) return;
    throw ClipTooLong(looptorch::message(file.string(), ": lasts ", seconds, " s, longer than ",
                                         called.empty() ? looptorch::message(max_seconds, " s") : called));
  }
};

/// Returns how long the clips of a manifest are, by the headers of their files. A recording that is cut into
/// several clips is probed once. Safe to call from several threads.
class ClipLengths {
 public:
  /// Returns the seconds of a clip, up to the file's end at most. Throws what `check_within`,
  /// `check_holds_sample` at the file's rate and `probe` throw.
  double operator()(const Utterance& clip) const {
    const AudioInfo file = info(clip);
    const double lasts = file.seconds();
    check_within(clip, lasts);
    check_holds_sample(clip, file.sample_rate);
    return std::min(lasts, clip.end.value_or(lasts)) - clip.start.value_or(0);
  }

 private:
  AudioInfo info(const Utterance& clip) const {
    const auto& file = clip.audio_filepath;
    if (!clip.start && !clip.end) return probe(file);
    const std::lock_guard lock(mutex_);
    const auto known = recordings_.find(file);
    if (known != recordings_.end()) return known->second;
    return recordings_[file] = probe(file);
  }

  mutable std::mutex mutex_;
  mutable std::map<std::filesystem::path, AudioInfo> recordings_;
};

}  // namespace looptorch::audio
