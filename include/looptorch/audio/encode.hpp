// SPDX-License-Identifier: MIT
// Encodes samples to WAV and FLAC files through libsndfile: one channel, written completely or not at all.
// Use it to listen to a model's output, and to store generated clips. decode.hpp reads them.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>

#include <ATen/core/Tensor.h>

#include <sndfile.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace looptorch::audio {

/// The format of a stored sample.
enum class SampleFormat {
  pcm16,   ///< integers of 16 bits
  pcm24,   ///< integers of 24 bits
  float32  ///< unchanged; not in FLAC
};

/// Options of `encode`.
struct EncodeOptions {
  SampleFormat format = SampleFormat::pcm16;
};

namespace detail {

/// A file that libsndfile writes into memory, since it seeks back to complete the header.
class SoundImage {
 public:
  SoundImage(const std::filesystem::path& path, int format, std::int64_t rate) : path_(path) {
    SF_VIRTUAL_IO io{size, seek, read, write, tell};
    SF_INFO info{};
    info.samplerate = static_cast<int>(rate);
    info.channels = 1;
    info.format = format;
    file_.reset(sf_open_virtual(&io, SFM_WRITE, &info, this));
    if (!file_) refuse(path_, "libsndfile cannot write it: ", sf_strerror(nullptr));
    sf_command(file_.get(), SFC_SET_ADD_PEAK_CHUNK, nullptr, SF_FALSE);  // it contains the time of day
  }
  SoundImage(const SoundImage&) = delete;
  SoundImage& operator=(const SoundImage&) = delete;

  /// Appends integers of 32 bits.
  void append(const std::vector<std::int32_t>& samples) { append_by(sf_write_int, samples); }
  void append(const std::vector<float>& samples) { append_by(sf_write_float, samples); }

  /// Completes the file and returns it.
  const std::string& close() {
    if (sf_close(file_.release()) != 0) refuse(path_, "libsndfile cannot complete it");
    return bytes_;
  }

 private:
  template <class T>
  void append_by(sf_count_t (*put)(SNDFILE*, const T*, sf_count_t), const std::vector<T>& samples) {
    const auto count = static_cast<sf_count_t>(samples.size());
    if (put(file_.get(), samples.data(), count) != count)
      refuse(path_, "libsndfile cannot write its samples: ", sf_strerror(file_.get()));
  }

  static SoundImage& self(void* image) { return *static_cast<SoundImage*>(image); }
  static sf_count_t size(void* image) { return static_cast<sf_count_t>(self(image).bytes_.size()); }
  static sf_count_t tell(void* image) { return self(image).position_; }
  static sf_count_t seek(sf_count_t offset, int whence, void* image) {
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? tell(image) : size(image);
    return self(image).position_ = from + offset;
  }
  static sf_count_t read(void* out, sf_count_t count, void* image) {
    SoundImage& of = self(image);
    count = std::clamp<sf_count_t>(size(image) - of.position_, 0, count);
    std::memcpy(out, of.bytes_.data() + of.position_, static_cast<std::size_t>(count));
    of.position_ += count;
    return count;
  }
  static sf_count_t write(const void* data, sf_count_t count, void* image) {
    SoundImage& of = self(image);
    const auto end = static_cast<std::size_t>(of.position_ + count);
    if (of.bytes_.size() < end) of.bytes_.resize(end);
    std::memcpy(of.bytes_.data() + of.position_, data, static_cast<std::size_t>(count));
    of.position_ += count;
    return count;
  }

  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };

  std::filesystem::path path_;
  std::string bytes_;
  sf_count_t position_ = 0;
  std::unique_ptr<SNDFILE, Close> file_;  // destroyed first, since closing writes
};

/// Returns libsndfile's number for the path's extension and the sample format.
inline int sound_format(const std::filesystem::path& path, SampleFormat format) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_flac = extension == ".flac";
  if (!is_flac && extension != ".wav")
    throw UsageError(looptorch::message(path.string(), ": audio is written as .wav or .flac"));
  if (is_flac && format == SampleFormat::float32)
    throw UsageError(looptorch::message(path.string(), ": FLAC holds whole numbers only"));
  const int container = is_flac ? SF_FORMAT_FLAC : SF_FORMAT_WAV;
  return container | (format == SampleFormat::pcm16   ? SF_FORMAT_PCM_16
                      : format == SampleFormat::pcm24 ? SF_FORMAT_PCM_24
                                                      : SF_FORMAT_FLOAT);
}

/// Returns the samples as integers of `bits` bits in the upper bits of 32; values beyond full scale are
/// clipped. libsndfile's own conversion scales by 2^15 - 1 and would not restore the values that were read.
inline std::vector<std::int32_t> quantised(const float* samples, std::size_t count, int bits) {
  const double scale = std::ldexp(1.0, bits - 1);
  std::vector<std::int32_t> result(count);
  std::transform(samples, samples + count, result.begin(), [&](float sample) {
    const double whole = std::clamp(std::nearbyint(static_cast<double>(sample) * scale), -scale, scale - 1);
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::int32_t>(whole))
                                     << (32 - bits));
  });
  return result;
}

}  // namespace detail

/// Writes one channel to a `.wav` or `.flac` file. Replaces an existing file, which an error leaves
/// unchanged. Values beyond [-1, 1) are clipped, except in float32. `decode` restores the samples within half
/// a step of the format.
///
/// Throws UsageError for another extension, a rate outside 1 to 655350 Hz (FLAC's limit), and samples that
/// are not float32 `[T]` with T from 1 to 2^29 (a float32 WAV ends at 4 GiB). Throws AudioError for samples
/// that are not finite and for what libsndfile refuses, and FileError if the file cannot be written. Holds
/// the file in memory.
inline void encode(const std::filesystem::path& path, const Waveform& waveform,
                   const EncodeOptions& options = {}) {
  constexpr std::int64_t kMaxRate = 655350, kMaxSamples = std::int64_t{1} << 29, kBlock = 65536;
  const int format = detail::sound_format(path, options.format);
  const auto& [samples_T, rate] = waveform;
  if (!samples_T.defined() || samples_T.scalar_type() != at::kFloat || samples_T.dim() != 1 ||
      samples_T.numel() == 0 || samples_T.numel() > kMaxSamples || rate < 1 || rate > kMaxRate)
    throw UsageError(looptorch::message(path.string(), ": expected 1 to ", kMaxSamples,
                                        " float32 samples [T] at 1 to ", kMaxRate, " Hz, got ",
                                        samples_T.toString(), " ", samples_T.sizes(), " at ", rate, " Hz"));
  const at::Tensor on_cpu_T = samples_T.detach().cpu().contiguous();
  detail::refuse_non_finite(path, on_cpu_T, 0);

  detail::SoundImage image(path, format, rate);
  const float* samples = on_cpu_T.const_data_ptr<float>();
  for (std::int64_t first = 0; first < on_cpu_T.numel(); first += kBlock) {
    const auto count = static_cast<std::size_t>(std::min(kBlock, on_cpu_T.numel() - first));
    if (options.format == SampleFormat::float32)
      image.append(std::vector<float>(samples + first, samples + first + count));
    else
      image.append(
          detail::quantised(samples + first, count, options.format == SampleFormat::pcm16 ? 16 : 24));
  }
  write_file_atomically(path, image.close());
}

}  // namespace looptorch::audio
