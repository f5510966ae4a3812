// SPDX-License-Identifier: MIT
// Raw samples from a pipe as a recording: `ffmpeg -i talk.mp4 -f s16le -ac 1 -ar 16000 - | whisper_transcribe
// -`. They are copied to a temporary file without a name, since a recording is read twice; memory stays
// small.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <sndfile.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace whisper {

/// The samples of a pipe, one channel, little-endian.
struct PcmFormat {
  std::int64_t sample_rate = 16000;  ///< Hz
  std::string samples = "s16le";     ///< or "f32le"

  [[nodiscard]] std::size_t bytes() const { return samples == "f32le" ? 4 : 2; }
};

namespace detail {

/// Returns an error with the system's reason.
inline looptorch::FileError system_error(const std::string& name, const char* what) {
  return looptorch::FileError(
      looptorch::message(name, ": ", what, ": ", std::generic_category().message(errno)));
}

}  // namespace detail

/// A file that goes with this object, and with the process however that ends.
class UnnamedFile {
 public:
  /// Makes it in the folder for temporary files. Throws looptorch::FileError.
  UnnamedFile() {
    auto name = (std::filesystem::temp_directory_path() / "looptorch-pcm-XXXXXX").string();
    file_ = ::mkstemp(name.data());
    if (file_ < 0) throw detail::system_error(name, "cannot create");
    ::unlink(name.c_str());
  }
  UnnamedFile(UnnamedFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  UnnamedFile& operator=(UnnamedFile other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~UnnamedFile() {
    if (file_ >= 0) ::close(file_);
  }

  [[nodiscard]] int descriptor() const { return file_; }

  /// Returns a path by which this process opens the file.
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_ = -1;
};

namespace detail {

/// A W64 file that is being written: WAV's successor, without its limit of 4 GiB.
class PcmWriter {
 public:
  PcmWriter(const UnnamedFile& file, const PcmFormat& format) {
    SF_INFO info{};
    info.samplerate = static_cast<int>(format.sample_rate);
    info.channels = 1;
    info.format = SF_FORMAT_W64 | (format.bytes() == 4 ? SF_FORMAT_FLOAT : SF_FORMAT_PCM_16);
    sound_.reset(sf_open_fd(file.descriptor(), SFM_WRITE, &info, SF_FALSE));
    if (!sound_) throw looptorch::FileError(std::string("-: ") + sf_strerror(nullptr));
  }

  /// Throws looptorch::FileError, for example on a full disk.
  void write(const char* bytes, std::size_t size) {
    const auto count = static_cast<sf_count_t>(size);
    if (sf_write_raw(sound_.get(), bytes, count) != count)
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

/// Copies what `input` holds up to its end to a file that libsndfile reads. Throws ClipError for no samples
/// and for a part of one at the end, FileError for what cannot be read or stored.
inline UnnamedFile store_pcm(int input, const PcmFormat& format) {
  UnnamedFile file;
  detail::PcmWriter writer(file, format);
  std::vector<char> block(std::size_t{1} << 16);
  std::size_t held = 0, total = 0;
  for (;;) {
    const auto got = ::read(input, block.data() + held, block.size() - held);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw detail::system_error("-", "cannot read");
    if (got == 0) break;
    held += static_cast<std::size_t>(got);
    const auto whole = held - held % format.bytes();
    writer.write(block.data(), whole);
    std::memmove(block.data(), block.data() + whole, held - whole);
    total += whole, held -= whole;
  }
  if (held > 0)
    throw looptorch::audio::ClipError(looptorch::message("-: ends with ", held, " of the ", format.bytes(),
                                                         " bytes of a sample of ", format.samples));
  if (total == 0) throw looptorch::audio::ClipError("-: holds no samples");
  writer.close();
  return file;
}

}  // namespace whisper
