// SPDX-License-Identifier: MIT
// Decodes audio files through libsndfile (WAV, FLAC, MP3, Vorbis, Opus, ...), mixed down to one channel, at
// any sample rate. It is an error, never silence, if a file has no samples, has values that are not finite,
// or was truncated, in a format that shows it (see decode). 30 s at 16 kHz take 1 ms as WAV, 5 as FLAC, 6 as
// MP3, 8 as Vorbis and 50 as Opus.
#pragma once

#include <looptorch/audio/resample.hpp>
#include <looptorch/audio/sound_file/announced_data.hpp>
#include <looptorch/audio/sound_file/ogg_end.hpp>
#include <looptorch/audio/sound_file/ogg_seek.hpp>
#include <looptorch/audio/sound_file/sound_stream.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <sndfile.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

namespace looptorch::audio {

/// Thrown for a file that cannot be used as audio. The message is one sentence that begins with the path.
struct AudioError : Error {
  using Error::Error;
};

/// One channel of sound.
struct Waveform {
  at::Tensor samples_T;  ///< float32; integer formats are scaled to [-1, 1)
  std::int64_t sample_rate;
};

/// The part of a file to read, and its rate.
struct DecodeOptions {
  std::int64_t sample_rate = 0;  ///< Hz; a file of another rate is resampled; 0 keeps the file's
  double start = 0;              ///< seconds; the beginning
  double end = std::numeric_limits<double>::infinity();  ///< seconds; limited to the file's end
};

namespace detail {

inline constexpr std::int64_t kMaxFrames = std::int64_t{1}
                                           << 31;  // 37 h at 16 kHz, 8 GiB: more likely a broken header

[[noreturn]] inline void refuse(const std::filesystem::path& path, const auto&... reason) {
  throw AudioError(looptorch::message(path.string(), ": ", reason...));
}

/// A file that libsndfile can read.
class SoundFile {
 public:
  explicit SoundFile(const std::filesystem::path& path) : path_(path) {
    open();
    frames_ = stream_.info().frames == SF_COUNT_MAX ? count_frames() : stream_.info().frames;
    if (frames_ <= 0) refuse(path_, "holds no samples");
    if (frames_ > kMaxFrames)
      refuse(path_, "announces ", frames_, " samples a channel, which is not credible");
  }

  std::int64_t frames() const { return frames_; }
  std::int64_t rate() const { return stream_.info().samplerate; }

  /// Returns the frames of `range`, the mean of all channels. Allocates as frames arrive, so that the length
  /// in a damaged header does not cause an out-of-memory error.
  at::Tensor read(SampleRange range) {
    const auto [first, end] = range;
    const std::int64_t count = end - first;
    if (container() == SF_FORMAT_OGG && first > 0) {
      at::Tensor samples = at::empty({count}, at::kFloat);
      if (OggSeek(path_, stream_.info()).read(first, samples.mutable_data_ptr<float>(), count))
        return samples;
    }
    go_to(first);
    at::Tensor samples = at::empty({std::min(count, kUnseen)}, at::kFloat);
    for (std::int64_t done = 0;;) {
      done += stream_.read(samples.mutable_data_ptr<float>() + done, samples.numel() - done);
      if (done < samples.numel()) refuse_end_at(first + done);
      if (done == count) return samples;
      samples.resize_({std::min(count, 2 * done)});
    }
  }

  /// Returns the next `count` frames, the mean of all channels. Not to be mixed with `read`.
  at::Tensor read_next(std::int64_t count) {
    at::Tensor samples = at::empty({count}, at::kFloat);
    const std::int64_t got = stream_.read(samples.mutable_data_ptr<float>(), count);
    if (got < count) refuse_end_at(next_ + got);
    next_ += count;
    return samples;
  }

 private:
  static constexpr std::int64_t kUnseen = std::int64_t{1} << 24;  // frames allocated unseen: 64 MiB
  static constexpr int kMpeg = 0x230000;  // SF_FORMAT_MPEG, which libsndfile 1.0 lacks

  int container() const { return stream_.info().format & SF_FORMAT_TYPEMASK; }

  /// Opens the file at its first frame.
  void open() {
    stream_ = SoundStream([&](SF_INFO& info) { return sf_open(path_.c_str(), SFM_READ, &info); });
    if (!stream_) refuse(path_, "not audio that libsndfile can read: ", reason());
  }

  /// Returns libsndfile's reason. Its MP3 reader reports a file without MPEG frames as one that does not
  /// exist; refuse_cut has opened the file before.
  static std::string_view reason() {
    const std::string_view reported = sf_strerror(nullptr);
    return reported.starts_with("File does not exist") ? "its format is not recognised" : reported;
  }

  /// Counts the frames by decoding, since FLAC written by a pipe does not state its length.
  std::int64_t count_frames() {
    const std::int64_t count = stream_.skip(kMaxFrames + 1);
    if (sf_error(stream_.get()) != SF_ERR_NO_ERROR)
      refuse(path_, "cut off or damaged: reading ended after ", count, " samples a channel");
    open();
    return count;
  }

  [[noreturn]] void refuse_end_at(std::int64_t frame) const {
    refuse(path_, "cut off or damaged: it announces ", frames_, " samples a channel, reading ended after ",
           frame);
  }

  /// Moves to frame `first`. Decodes up to it if libsndfile cannot seek, as in some kinds of ADPCM, or if a
  /// seek of its version 1.2 can end at another frame.
  void go_to(std::int64_t first) {
    if (first == 0) return;
    if (can_seek()) {
      if (sf_seek(stream_.get(), first, SEEK_SET) == first) return;
      open();  // DWVW claims to seek
    }
    if (const std::int64_t done = stream_.skip(first); done < first) refuse_end_at(done);
  }

  /// True if libsndfile's seek is used. Not in Ogg, where OggSeek does it. Not in MP3, whose decoder prints
  /// warnings about the bits before each position, and differs in the last bit.
  bool can_seek() const {
    return stream_.info().seekable && container() != SF_FORMAT_OGG && container() != kMpeg;
  }

  std::filesystem::path path_;
  SoundStream stream_;
  std::int64_t frames_ = 0, next_ = 0;
};

/// Throws AudioError for a truncated file, which libsndfile reads as if it were complete.
inline void refuse_cut(const std::filesystem::path& path) {
  const InputFile file(path);
  if (is_cut_ogg(file)) refuse(path, "cut off: it does not end with the last page of an Ogg stream");
  const auto data = DataHeader(file).data();
  const std::uint64_t there = data ? file.size() - std::min(data->offset, file.size()) : 0;
  if (data && data->bytes > there)
    refuse(path, "cut off: its header announces ", data->bytes, " bytes of samples, ", there, " are there");
}

/// Throws AudioError for infinities and NaN. They have all bits of the exponent set; this form vectorises.
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
  if (first >= end)
    refuse(path, "holds ", static_cast<double>(length) / static_cast<double>(rate),
           " s; nothing lies between ", options.start, " s and ", options.end, " s");
  return {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)};
}

}  // namespace detail

/// Returns the file's samples, or those between `start` and `end`. The latter equal that part of the whole
/// file, also if it is resampled. The part before `start` is not decoded, except for some seconds of Vorbis
/// and Opus, all of MP3, and formats in which libsndfile cannot seek. The part behind `end` is decoded only
/// if the file does not state its length.
///
/// Throws FileError for a path that is no readable file, AudioError for a file that is not complete, finite,
/// non-empty audio, and UsageError for an empty range or a negative rate. Truncation is detected in Ogg and
/// in formats whose header states the length: WAV, AIFF, AU, W64, CAF, NIST SPHERE, FLAC not written by a
/// pipe, and MP3 with Xing's or LAME's header. It is not detected in libsndfile's rarer formats (VOC, SVX,
/// PAF, ...). Safe to call from several threads.
inline Waveform decode(const std::filesystem::path& path, const DecodeOptions& options = {}) {
  if (!(options.start >= 0 && options.end > options.start) || options.sample_rate < 0)
    throw UsageError(looptorch::message(path.string(), ": cannot decode from ", options.start, " s to ",
                                        options.end, " s at ", options.sample_rate, " Hz"));
  detail::refuse_cut(path);
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
