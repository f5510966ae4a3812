// SPDX-License-Identifier: MIT
// Audio files to samples through libsndfile: whatever it opens (WAV, FLAC, Ogg, ...), mixed down to one
// channel. A file that was cut off, holds no samples or holds values that are no numbers is an error, never
// silence. 30 s at 16 kHz take 1 ms as WAV and 5 ms as FLAC.
#pragma once

#include <looptorch/audio/detail/wav_header.hpp>
#include <looptorch/error.hpp>
#include <looptorch/state/file.hpp>

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
#include <vector>

namespace looptorch::audio {

/// A file that cannot be used as audio; the message is one sentence that begins with the path.
struct AudioError : Error {
  using Error::Error;
};

/// One channel of sound.
struct Waveform {
  at::Tensor samples_T;  ///< float32; files of whole numbers are scaled to [-1, 1)
  std::int64_t sample_rate;
};

/// What to read of a file.
struct DecodeOptions {
  std::int64_t sample_rate = 0;  ///< the rate that the file must have; 0 accepts any
  double start = 0;              ///< seconds; where to begin, without decoding what lies before
  double end = std::numeric_limits<double>::infinity();  ///< seconds; beyond the file's end means its end
};

namespace detail {

inline constexpr std::int64_t kMaxFrames = std::int64_t{1}
                                           << 31;  // 37 h at 16 kHz, 8 GiB: rather a broken header

[[noreturn]] inline void refuse(const std::filesystem::path& path, const auto&... reason) {
  throw AudioError(looptorch::detail::message(path.string(), ": ", reason...));
}

/// An open file of libsndfile.
class SoundFile {
 public:
  explicit SoundFile(const std::filesystem::path& path)
      : path_(path), file_(sf_open(path.c_str(), SFM_READ, &info_)) {
    if (!file_) refuse(path_, "not audio that libsndfile can read: ", sf_strerror(nullptr));
    if (info_.frames <= 0) refuse(path_, "holds no samples");
    if (info_.frames > kMaxFrames)
      refuse(path_, "announces ", info_.frames, " samples a channel, which is not credible");
  }

  std::int64_t frames() const { return info_.frames; }
  std::int64_t rate() const { return info_.samplerate; }

  /// `count` frames from `first` on, the mean of all channels.
  at::Tensor read(std::int64_t first, std::int64_t count) {
    if (first > 0 && sf_seek(file_.get(), first, SEEK_SET) != first)
      refuse(path_, "cannot be read from sample ", first);
    at::Tensor samples = at::empty({count}, at::kFloat);
    float* out = samples.mutable_data_ptr<float>();
    const std::int64_t got =
        info_.channels == 1 ? sf_readf_float(file_.get(), out, count) : read_mixed(out, count);
    if (got < count)
      refuse(path_, "cut off or damaged: it announces ", info_.frames,
             " samples a channel, reading ended after ", first + got);
    return samples;
  }

 private:
  std::int64_t read_mixed(float* out, std::int64_t count) {
    constexpr std::int64_t kBlock = 4096;
    std::vector<float> block(static_cast<std::size_t>(kBlock * info_.channels));
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t got = sf_readf_float(file_.get(), block.data(), std::min(kBlock, count - done));
      if (got <= 0) return done;
      mix(block.data(), out + done, got);
      done += got;
    }
    return count;
  }

  void mix(const float* interleaved, float* out, std::int64_t count) const {
    const float scale = 1.0F / static_cast<float>(info_.channels);
    for (std::int64_t i = 0; i < count; ++i, interleaved += info_.channels) {
      float sum = 0;
      for (int channel = 0; channel < info_.channels; ++channel) sum += interleaved[channel];
      out[i] = sum * scale;
    }
  }

  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };

  std::filesystem::path path_;
  SF_INFO info_{};
  std::unique_ptr<SNDFILE, Close> file_;
};

inline void refuse_cut_wav(const std::filesystem::path& path) {
  const InputFile file(path);
  const auto data = WavHeader(file).data();
  if (data && data->bytes > file.size() - data->offset)
    refuse(path, "cut off: its header announces ", data->bytes, " bytes of samples, ",
           file.size() - data->offset, " are there");
}

/// Infinities and NaN have all bits of the exponent set; this form vectorises.
inline void refuse_non_finite(const std::filesystem::path& path, const at::Tensor& samples_T) {
  const auto is_bad = [](float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000U) == 0x7f800000U; };
  const float* samples = samples_T.const_data_ptr<float>();
  bool bad = false;
  for (std::int64_t i = 0; i < samples_T.numel(); ++i) bad |= is_bad(samples[i]);
  if (bad)
    refuse(path, "sample ", std::find_if(samples, samples + samples_T.numel(), is_bad) - samples,
           " is not a finite number");
}

}  // namespace detail

/// The file's samples, or those between `start` and `end`. Throws FileError for a path that is no readable
/// file, AudioError for one that is not whole, finite, non-empty audio of the expected rate, UsageError for
/// an empty range. Safe to call from several threads.
inline Waveform decode(const std::filesystem::path& path, const DecodeOptions& options = {}) {
  if (!(options.start >= 0 && options.end > options.start))
    throw UsageError(looptorch::detail::message(path.string(), ": cannot decode from ", options.start,
                                                " s to ", options.end, " s"));
  detail::refuse_cut_wav(path);
  detail::SoundFile file(path);
  const std::int64_t rate = file.rate();
  if (options.sample_rate > 0 && rate != options.sample_rate)
    detail::refuse(path, "sample rate is ", rate, " Hz, expected ", options.sample_rate, " Hz");

  const double length = static_cast<double>(file.frames());
  const double first = std::round(options.start * static_cast<double>(rate));
  const double last = std::min(std::round(options.end * static_cast<double>(rate)), length);
  if (first >= last)
    detail::refuse(path, "holds ", length / static_cast<double>(rate), " s; nothing lies between ",
                   options.start, " s and ", options.end, " s");
  Waveform waveform{file.read(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last - first)),
                    rate};
  detail::refuse_non_finite(path, waveform.samples_T);
  return waveform;
}

}  // namespace looptorch::audio
