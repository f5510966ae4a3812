// SPDX-License-Identifier: MIT
// Reads sound from a pipe: `ffmpeg -i talk.mp4 -f s16le -ac 1 -ar 16000 - | whisper_transcribe -`. Gives the
// samples as they arrive, or stores them in a temporary file to read them twice; memory stays small either
// way. Also decodes a file that comes through the pipe, such as WAV, if libsndfile can read it.
//
// Shape: T samples.
#pragma once

#include <looptorch/app/process/stop_signals.hpp>
#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/base/error.hpp>

#include "unnamed_file.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fcntl.h>
#include <poll.h>
#include <sndfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

/// The samples of a pipe, little-endian.
struct PcmFormat {
  std::int64_t sample_rate = 16000;  ///< Hz
  std::string samples = "s16le";     ///< or "f32le"
  std::int64_t channels = 1;         ///< Interleaved; their mean is used.

  [[nodiscard]] bool is_float() const { return samples == "f32le"; }
  /// Returns the bytes of one sample of all channels.
  [[nodiscard]] std::size_t bytes() const {
    return (is_float() ? 4 : 2) * static_cast<std::size_t>(channels);
  }
  /// Returns the duration in seconds of so many bytes.
  [[nodiscard]] double seconds(std::size_t size) const {
    return static_cast<double>(size / bytes()) / static_cast<double>(sample_rate);
  }
};

/// Reads whole samples from a descriptor until its end or a stop signal: SIGTERM and SIGINT end the input
/// while this object lives.
class PcmReader {
 public:
  /// Gives a pipe a buffer for half a minute at 16 kHz, so that a recorder need not wait while a window is
  /// transcribed.
  PcmReader(int input, const PcmFormat& format) : input_(input), format_(format) {
#ifdef F_SETPIPE_SZ
    (void)::fcntl(input, F_SETPIPE_SZ, 1 << 20);
#endif
  }

  [[nodiscard]] const PcmFormat& format() const { return format_; }

  /// The most bytes that `peek` waits for.
  static constexpr std::size_t kMaxPeeked = std::size_t{1} << 16;

  /// Waits for the first `count` bytes, or the end, and returns all that have arrived. They stay unread. Call
  /// it only before reading.
  [[nodiscard]] std::string_view peek(std::size_t count) {
    while (!ended_ && held_ < std::min(count, kMaxPeeked)) fill();
    return {block_.data(), held_};
  }

  /// Skips a peeked header of `header` bytes. Then come `size` bytes of samples in `format`; without `size`,
  /// only samples. Drops bytes after the samples; `check_end` refuses a WAV file in them.
  void take_header(std::size_t header, const PcmFormat& format, std::optional<std::uint64_t> size) {
    given_ = header;
    format_ = format;
    announced_ = size;
    has_header_ = true;
    if (announced_) *announced_ -= *announced_ % format_.bytes();
  }

  /// Waits for samples, and returns their bytes, which the next call overwrites. Empty at the end.
  [[nodiscard]] std::string_view next() {
    while (true) {
      take(format_.bytes());
      const std::size_t samples = announced_ ? std::min<std::uint64_t>(given_, *announced_ - total_) : given_;
      total_ += samples;
      if (samples < given_) look_for_header({block_.data() + samples, given_ - samples});
      if (samples > 0 || given_ == 0) return {block_.data(), samples};
    }
  }

  /// Waits for bytes, and returns them, which the next call overwrites. Empty at the end.
  [[nodiscard]] std::string_view next_bytes() {
    take(1);
    return {block_.data(), given_};
  }

  /// Throws if the input ended badly: FileError if it cannot be read, ClipError for an incomplete sample at
  /// the end of headerless input and for a WAV file after another, and Interrupted for a signal.
  void check_end() const {
    if (failure_) std::rethrow_exception(failure_);
    if (!ended_) return;
    looptorch::app::StopSignals::throw_if_received(
        looptorch::message("-: was read up to ", format_.seconds(total_), " s"));
    if (announced_ && total_ < *announced_)
      throw looptorch::audio::ClipError(looptorch::message("-: cut off: its header announces ", *announced_,
                                                           " bytes of samples, ", total_, " are there"));
    if (has_second_)
      throw looptorch::audio::ClipError(
          looptorch::message("-: another WAV file lies after the ", *announced_,
                             " bytes of samples that the first header announces; join files with `sox a.wav "
                             "b.wav -t wav - |`, not with cat"));
    if (has_header_) return;
    if (const auto part = held_ - given_; part > 0)
      throw looptorch::audio::ClipError(looptorch::message("-: ends with ", part, " of the ", format_.bytes(),
                                                           " bytes of a sample of ", format_.samples,
                                                           format_.channels > 1 ? " in all channels" : ""));
  }

 private:
  /// Looks for the beginning of a WAV file in `bytes`, also one that began in earlier bytes.
  void look_for_header(std::string_view bytes) {
    constexpr std::size_t kForm = 8, kHeader = 12;
    behind_ += bytes;
    for (auto at = behind_.find("RIFF"); at != behind_.npos; at = behind_.find("RIFF", at + 1))
      has_second_ = has_second_ || behind_.compare(std::min(at + kForm, behind_.size()), 4, "WAVE") == 0;
    behind_.erase(0, behind_.size() - std::min(behind_.size(), kHeader - 1));
  }

  /// Drops the bytes last returned, and waits for a whole number of units.
  void take(std::size_t unit) {
    held_ -= given_;
    std::memmove(block_.data(), block_.data() + given_, held_);
    given_ = 0;
    while (!ended_ && held_ < unit) fill();
    given_ = held_ - held_ % unit;
  }

  /// Waits for some bytes, or for the end.
  void fill() {
    constexpr int kLookForSignals = 100;  // ms
    pollfd waiting{.fd = input_, .events = POLLIN, .revents = 0};
    while (input_ >= 0 && ::poll(&waiting, 1, kLookForSignals) <= 0)
      if (looptorch::app::StopSignals::received()) break;
    if (looptorch::app::StopSignals::received()) {
      ended_ = true;
      return;
    }
    const auto got = ::read(input_, block_.data() + held_, block_.size() - held_);
    if (got < 0 && errno == EINTR) return;
    if (got < 0) failure_ = std::make_exception_ptr(detail::system_error("-", "cannot read"));
    if (got <= 0) ended_ = true;
    if (got > 0) held_ += static_cast<std::size_t>(got);
  }

  looptorch::app::StopSignals signals_;
  int input_;
  PcmFormat format_;
  std::vector<char> block_ = std::vector<char>(kMaxPeeked);
  std::size_t held_ = 0, given_ = 0;  // bytes in the block
  std::uint64_t total_ = 0;           // bytes of samples so far
  std::optional<std::uint64_t> announced_{};
  std::string behind_{};  // the last bytes after the samples
  bool has_header_ = false, has_second_ = false;
  bool ended_ = false;
  std::exception_ptr failure_{};
};

/// Returns the mean of the channels of whole samples, float32 `[T]`. Ends before the first value that is not
/// finite.
inline at::Tensor pcm_samples(std::string_view bytes, const PcmFormat& format) {
  const auto count = static_cast<std::int64_t>(bytes.size() / format.bytes());
  const at::Tensor samples_T = at::empty({count}, at::kFloat);
  auto* sample = samples_T.mutable_data_ptr<float>();
  const char* at = bytes.data();
  const auto next = [&] {
    float value = 0;
    if (format.is_float()) {
      std::memcpy(&value, at, sizeof value);
      at += sizeof value;
    } else {
      std::int16_t step = 0;
      std::memcpy(&step, at, sizeof step);
      at += sizeof step;
      value = static_cast<float>(step) / 32768;
    }
    return value;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (std::int64_t channel = 0; channel < format.channels; ++channel) sum += next();
    if (!std::isfinite(sum)) return samples_T.narrow(0, 0, i);
    sample[i] = sum / static_cast<float>(format.channels);
  }
  return samples_T;
}

namespace detail {

/// A W64 file that is being written: WAV's successor, without its limit of 4 GiB.
class PcmWriter {
 public:
  PcmWriter(const UnnamedFile& file, const PcmFormat& format) {
    SF_INFO info{};
    info.samplerate = static_cast<int>(format.sample_rate);
    info.channels = static_cast<int>(format.channels);
    info.format = SF_FORMAT_W64 | (format.is_float() ? SF_FORMAT_FLOAT : SF_FORMAT_PCM_16);
    sound_.reset(sf_open_fd(file.descriptor(), SFM_WRITE, &info, SF_FALSE));
    if (!sound_) throw looptorch::FileError(std::string("-: ") + sf_strerror(nullptr));
  }

  /// Throws looptorch::FileError, for example on a full disk.
  void write(std::string_view bytes) {
    const auto count = static_cast<sf_count_t>(bytes.size());
    if (sf_write_raw(sound_.get(), bytes.data(), count) != count)
      throw looptorch::FileError(std::string("-: cannot store the samples: ") + sf_strerror(sound_.get()));
  }

  void close() {
    if (sf_close(sound_.release()) != 0) throw looptorch::FileError("-: cannot store the samples");
  }

 private:
  struct Close {
    void operator()(SNDFILE* sound) const { sf_close(sound); }
  };
  std::unique_ptr<SNDFILE, Close> sound_;
};

}  // namespace detail

/// Copies the remaining samples to a file that libsndfile reads. Throws ClipError if there are none,
/// FileError if they cannot be stored, and what PcmReader::check_end throws.
inline UnnamedFile store_pcm(PcmReader& reader) {
  UnnamedFile file;
  detail::PcmWriter writer(file, reader.format());
  auto bytes = reader.next();
  const bool is_empty = bytes.empty();
  for (; !bytes.empty(); bytes = reader.next()) writer.write(bytes);
  reader.check_end();
  if (is_empty) throw looptorch::audio::ClipError("-: holds no samples");
  writer.close();
  return file;
}

/// Copies a file's bytes unchanged. Throws FileError if they cannot be stored, and what PcmReader::check_end
/// throws.
inline UnnamedFile store_file(PcmReader& reader) {
  UnnamedFile file;
  for (auto bytes = reader.next_bytes(); !bytes.empty(); bytes = reader.next_bytes()) file.write(bytes);
  reader.check_end();
  return file;
}

}  // namespace whisper
