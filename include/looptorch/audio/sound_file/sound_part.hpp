// SPDX-License-Identifier: MIT
// Reads any range of samples of one stream of a sound file through libsndfile. A file that was joined from
// several has several streams; its SoundFile has a SoundPart for each. Position 0 is the first sample of the
// sound, after the encoder delay at the start of an MPEG stream.
#pragma once

#include <looptorch/audio/sound_file/ogg_seek.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>
#include <looptorch/audio/sound_file/sound_stream.hpp>

#include <sndfile.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::audio::detail {

class SoundPart {
  static constexpr std::int64_t kUnknown = -1;

 public:
  /// Reads the file at `path` unchanged.
  explicit SoundPart(std::filesystem::path path) : path_(std::move(path)) {}
  explicit SoundPart(PiecedFile bytes) : bytes_(std::move(bytes)) {}
  /// Reads MPEG, whose length libsndfile only estimates: `frames` frames of sound after `delay` others.
  /// Without `frames`, call `count` to find the number.
  SoundPart(const PiecedFile& mpeg, std::int64_t delay, std::int64_t frames = kUnknown)
      : bytes_(mpeg.range(0, mpeg.size(), empty_id3())),
        length_(SoundStream::Length::overstated),
        delay_(delay),
        frames_(frames) {}

  /// Opens the stream at its first frame. Returns false if libsndfile cannot.
  bool open() {
    stream_ = bytes_ ? SoundStream(*bytes_, length_) : SoundStream(path_);
    if (!stream_) return false;
    rate_ = stream_.info().samplerate;
    at_ = -delay_;
    if (!has_length() && length_ == SoundStream::Length::known && stream_.info().frames != SF_COUNT_MAX)
      frames_ = stream_.info().frames;
    return true;
  }
  void close() { stream_ = {}; }
  [[nodiscard]] bool is_open() const { return static_cast<bool>(stream_); }

  [[nodiscard]] std::int64_t rate() const { return rate_; }
  [[nodiscard]] bool is_mpeg() const { return container() == kMpeg; }
  [[nodiscard]] bool is_flac() const { return container() == SF_FORMAT_FLAC; }
  [[nodiscard]] bool has_length() const { return frames_ != kUnknown; }
  [[nodiscard]] std::int64_t frames() const { return frames_; }

  /// Finds the length by decoding up to `most` frames, since FLAC written by a pipe does not state it.
  /// Returns false if that ends with an error.
  bool count(std::int64_t most) {
    frames_ = stream_.skip(most);
    return sf_error(stream_.get()) == SF_ERR_NO_ERROR && open();
  }

  /// Writes up to `count` frames from `first` on to `out`, the mean of all channels. Returns their number,
  /// which is less only if the stream is damaged.
  std::int64_t read(std::int64_t first, float* out, std::int64_t count) {
    if (!stream_ && !open()) return 0;
    if (first != at_ && container() == SF_FORMAT_OGG && bytes_ &&
        OggSeek(*bytes_, stream_.info()).read(first, out, count))
      return count;
    if (!go_to(first)) return 0;
    const std::int64_t got = stream_.read(out, count);
    at_ += got;
    return got;
  }

 private:
  static constexpr int kMpeg = 0x230000;  // SF_FORMAT_MPEG, which libsndfile 1.0 lacks

  /// Returns an ID3v2 tag, by which libsndfile 1.2 recognises MPEG at once. Otherwise it first opens a
  /// resource fork: for bytes without a name, any "._" or ".AppleDouble/" in the current folder.
  static std::string empty_id3() {
    constexpr char kPadding = 10;  // the least that mpg123 does not warn of
    return std::string("ID3\3\0\0\0\0\0", 9) + kPadding + std::string(kPadding, '\0');
  }

  [[nodiscard]] int container() const { return stream_.info().format & SF_FORMAT_TYPEMASK; }

  /// Moves to frame `first`. Decodes up to it if libsndfile cannot seek, as in some kinds of ADPCM, or if a
  /// seek of its version 1.2 can end at another frame.
  bool go_to(std::int64_t first) {
    if (first == at_) return true;
    if (can_seek() && sf_seek(stream_.get(), first, SEEK_SET) == first) {
      at_ = first;
      return true;
    }
    if ((first < at_ || can_seek()) && !open()) return false;  // DWVW claims to seek
    at_ += stream_.skip(first - at_);
    return at_ == first;
  }

  /// True if libsndfile's seek is used. False for Ogg, where OggSeek does it. False for MP3, whose decoder
  /// prints warnings about the bits before each position, and differs in the last bit.
  [[nodiscard]] bool can_seek() const {
    return stream_.info().seekable && container() != SF_FORMAT_OGG && !is_mpeg();
  }

  std::filesystem::path path_;
  std::optional<PiecedFile> bytes_;
  SoundStream::Length length_ = SoundStream::Length::known;
  std::int64_t delay_ = 0, frames_ = kUnknown, rate_ = 0;
  SoundStream stream_;
  std::int64_t at_ = 0;  // the frame that the stream is at
};

}  // namespace looptorch::audio::detail
