// SPDX-License-Identifier: MIT
// Reads the clips that a manifest lists, as samples at one sample rate, for datasets of speech and music.
// Throws a typed error for a clip that is too long, silent or far too loud. A clip that is too long is
// detected without decoding the rest of its recording.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/probe.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

namespace looptorch::audio {

/// How a clip that is longer than `ClipLimits::max_seconds` is treated.
enum class OnLongClip {
  refuse,  ///< throws ClipTooLong
  cut,     ///< its beginning is used
};

/// The sample rate that a ClipReader returns, and the limits beyond which it refuses a clip.
struct ClipReaderOptions {
  std::int64_t sample_rate = 16000;  ///< Hz; files of another rate are resampled
  ClipLimits limits = {};
  OnLongClip on_long = OnLongClip::refuse;
  double silence = 1e-4;  ///< a clip with a lower peak is silent (3 units of 16-bit audio); 0 allows any
  double loudest = 1000;  ///< a higher peak is no sound: integers that were stored as floats, a damaged file
};

/// Throws ClipSilent or ClipTooLoud, whose message begins with `name`, if a clip with this peak is too quiet
/// or too loud.
inline void check_peak(const std::string& name, float peak, const ClipReaderOptions& options = {}) {
  if (peak < options.silence) throw ClipSilent(name + ": is silent");
  if (peak > options.loudest)
    throw ClipTooLoud(
        looptorch::message(name, ": has samples of ", peak,
                           ", where 1 is full scale; were integers stored as floating-point numbers?"));
}

/// Reads clips. Safe to call from several threads; costs what decoding costs.
class ClipReader {
 public:
  /// Throws UsageError for a rate, a length or a slack out of range.
  explicit ClipReader(ClipReaderOptions options) : options_(checked(std::move(options))) {}

  /// Returns the samples of a manifest's clip, float32 `[T]`. Throws ClipTooLong, ClipOutside, ClipSilent,
  /// ClipTooLoud, ClipError for a clip of less than a sample, and what `decode` throws: FileError for a
  /// missing file, AudioError for a damaged one.
  [[nodiscard]] at::Tensor operator()(const Utterance& clip) const {
    const auto& limits = options_.limits;
    const bool cuts = options_.on_long == OnLongClip::cut;
    const double start = clip.start.value_or(0), end = clip.end.value_or(kFileEnd);
    const double enough = start + limits.max_seconds + (cuts ? 0 : limits.slack_seconds + kBeyond);
    auto samples_T = decoded(clip, start, std::min(end, enough));
    const double seconds = static_cast<double>(samples_T.size(0)) / static_cast<double>(options_.sample_rate);
    const double stated = clip.end.value_or(clip.duration.value_or(0));
    const bool is_long = !cuts && !limits.allow(seconds);
    if (is_long || stated > start + seconds + kEndSlack) {
      const double file_seconds = probe(clip.audio_filepath).seconds();
      check_within(clip, file_seconds);
      if (is_long) limits.check(clip.audio_filepath, std::max(seconds, std::min(end, file_seconds) - start));
    }
    check_peak(clip.audio_filepath.string(), samples_T.abs().max().item<float>(), options_);
    return samples_T;
  }

  /// Reads the part of a file between two times in seconds; throws what reading an utterance throws.
  [[nodiscard]] at::Tensor operator()(const std::filesystem::path& file, double start = 0,
                                      double end = kFileEnd) const {
    Utterance clip{.audio_filepath = file, .text = {}, .start = start};
    if (end < kFileEnd) clip.end = end;
    return (*this)(clip);
  }

  [[nodiscard]] const ClipReaderOptions& options() const { return options_; }

 private:
  static constexpr double kFileEnd = std::numeric_limits<double>::infinity();
  static constexpr double kBeyond = 0.1;  // seconds read beyond the limit, to see that a clip is too long

  /// Returns the samples between two times. Throws ClipOutside or ClipError if there are none.
  [[nodiscard]] at::Tensor decoded(const Utterance& clip, double start, double end) const try {
    return decode(clip.audio_filepath, {.sample_rate = options_.sample_rate, .start = start, .end = end})
        .samples_T;
  } catch (const AudioRangeError& error) {
    check_within(clip, probe(clip.audio_filepath).seconds());
    throw ClipError(error.what());
  }

  static ClipReaderOptions checked(ClipReaderOptions options) {
    const auto& limits = options.limits;
    if (options.sample_rate > 0 && limits.max_seconds > 0 && limits.slack_seconds >= 0 &&
        options.silence >= 0 && options.loudest > options.silence)
      return options;
    throw UsageError(looptorch::message("ClipReader: clips of up to ", limits.max_seconds,
                                        " s, give or take ", limits.slack_seconds, " s, at ",
                                        options.sample_rate, " Hz, silent below ", options.silence,
                                        " and no sound above ", options.loudest, ", cannot be read"));
  }

  ClipReaderOptions options_;
};

}  // namespace looptorch::audio
