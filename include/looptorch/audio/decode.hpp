// SPDX-License-Identifier: MIT
// Decodes audio files through libsndfile (WAV, FLAC, MP3, Vorbis, Opus, ...), mixed down to one channel, at
// any sample rate. Throws for a file without samples and for values that are not finite; also for a truncated
// file, if its format shows the truncation (see decode). 30 s at 16 kHz take 1 ms as WAV, 5 as FLAC, 6 as
// MP3, 8 as Vorbis and 50 as Opus.
#pragma once

#include <looptorch/audio/resample.hpp>
#include <looptorch/audio/sound_file.hpp>
#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>

namespace looptorch::audio {

/// One channel of sound.
struct Waveform {
  at::Tensor samples_T;  ///< float32; integer formats are scaled to [-1, 1)
  std::int64_t sample_rate;
};

/// The part of a file to read, and its rate.
struct DecodeOptions {
  std::int64_t sample_rate = 0;  ///< Hz; a file of another rate is resampled; 0 keeps the file's
  double start = 0;              ///< seconds after the file's beginning
  double end = std::numeric_limits<double>::infinity();  ///< seconds; limited to the file's end
};

namespace detail {

/// Throws AudioError for infinities and NaN, which have all bits of the exponent set: that test vectorises.
inline void refuse_non_finite(const std::filesystem::path& path, const at::Tensor& samples_T,
                              std::int64_t first) {
  const auto is_bad = [](float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000U) == 0x7f800000U; };
  const float* samples = samples_T.const_data_ptr<float>();
  bool bad = false;
  for (std::int64_t i = 0; i < samples_T.numel(); ++i) bad |= is_bad(samples[i]);
  if (bad)
    refuse(path, "sample ", first + (std::find_if(samples, samples + samples_T.numel(), is_bad) - samples),
           " is not a finite number");
}

inline Resampler resampler_for(const std::filesystem::path& path, std::int64_t from, std::int64_t to) try {
  return {from, to};
} catch (const UsageError& error) {
  refuse(path, error.what());
}

/// Returns the range between `start` and `end`, within `length` at `rate`.
inline SampleRange chosen(const std::filesystem::path& path, const DecodeOptions& options, std::int64_t rate,
                          std::int64_t length) {
  const double first = std::round(options.start * static_cast<double>(rate));
  const double end =
      std::min(std::round(options.end * static_cast<double>(rate)), static_cast<double>(length));
  if (first >= end) {
    const auto between = std::isinf(options.end)
                             ? looptorch::message("after ", options.start, " s")
                             : looptorch::message("between ", options.start, " s and ", options.end, " s");
    throw AudioRangeError(looptorch::message(path.string(), ": holds ",
                                             static_cast<double>(length) / static_cast<double>(rate),
                                             " s; no sample lies ", between));
  }
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)};
}

}  // namespace detail

/// Returns the file's samples, or those between `start` and `end`. The samples of a range equal that part of
/// the whole file: bit for bit at the file's own rate, up to rounding if resampled. The part before `start`
/// is not decoded, except for some seconds of Vorbis and Opus, all of MP3, and formats in which libsndfile
/// cannot seek. The part after `end` is decoded only if the file does not state its length.
///
/// Joined files (MP3, Ogg, FLAC) are read one after the other. If a header was never finished, everything
/// after it is read as sound; a warning names the first such file.
///
/// Throws
/// - FileError for a path that is no readable file
/// - AudioError for a file that is not complete, finite, non-empty audio, or is joined of parts at different
///   rates
/// - AudioRangeError if no sample lies between `start` and `end`
/// - UsageError for an empty range or a negative rate
///
/// Truncation is detected in Ogg, where lost pages are, too; in formats whose header states the length: WAV,
/// AIFF, AU, W64, CAF, NIST SPHERE, FLAC unless a pipe wrote it; in MP3 and MP2 if a frame is cut or the
/// first frame states the number of frames. It is not detected in libsndfile's rarer formats (VOC, SVX, PAF,
/// ...). Safe to call from several threads.
inline Waveform decode(const std::filesystem::path& path, const DecodeOptions& options = {}) {
  if (!(options.start >= 0 && options.end > options.start) || options.sample_rate < 0)
    throw UsageError(looptorch::message(path.string(), ": cannot decode from ", options.start, " s to ",
                                        options.end, " s at ", options.sample_rate, " Hz"));
  detail::SoundFile file(path);
  const std::int64_t rate = options.sample_rate > 0 ? options.sample_rate : file.rate();
  const Resampler resampler = detail::resampler_for(path, file.rate(), rate);
  const SampleRange wanted = detail::chosen(path, options, rate, resampler.length(file.frames()));
  const SampleRange needed = resampler.inputs(wanted, file.frames());
  const at::Tensor samples_T = file.read(needed);
  detail::refuse_non_finite(path, samples_T, needed.begin);
  return {resampler(samples_T).narrow(0, wanted.begin - resampler.length(needed.begin),
                                      wanted.end - wanted.begin),
          rate};
}

}  // namespace looptorch::audio
