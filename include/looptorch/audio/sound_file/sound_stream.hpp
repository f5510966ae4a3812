// SPDX-License-Identifier: MIT
// Opens a sound file with libsndfile, on disk or composed of parts (pieced_file.hpp), and reads its frames in
// order, mixed down to one channel.
#pragma once

#include <looptorch/audio/sound_file/pieced_file.hpp>
#include <looptorch/base/error.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace looptorch::audio::detail {

/// An open file of libsndfile, or none.
class SoundStream {
 public:
  /// The length that libsndfile is given for the file.
  enum class Length {
    known,
    /// More than the file has. The decoder stops at its own estimate of the number of frames, which then is
    /// too large instead of too small: for MP3 it is the length divided by the size of the first frame.
    overstated,
  };

  SoundStream() = default;
  explicit SoundStream(const std::filesystem::path& path) : file_(sf_open(path.c_str(), SFM_READ, &info_)) {}
  explicit SoundStream(PiecedFile file, Length length = Length::known) {
    auto bytes = std::make_unique<Bytes>(std::move(file), length);
    SNDFILE* const opened = bytes->open(info_);
    file_ = {opened, Close{std::move(bytes)}};
  }

  explicit operator bool() const { return file_ != nullptr; }
  [[nodiscard]] SNDFILE* get() const { return file_.get(); }
  [[nodiscard]] const SF_INFO& info() const { return info_; }

  /// Writes the mean of all channels of up to `count` frames to `out`, and returns the number of frames.
  std::int64_t read(float* out, std::int64_t count) {
    if (info_.channels == 1) return sf_readf_float(file_.get(), out, count);
    return in_blocks(count, [&](const float* interleaved, std::int64_t some) {
      mix(interleaved, out, some);
      out += some;
    });
  }

  /// Decodes up to `count` frames and returns the number of frames.
  std::int64_t skip(std::int64_t count) {
    return in_blocks(count, [](const float*, std::int64_t) {});
  }

 private:
  static constexpr std::int64_t kBlock = 4096;

  /// The bytes that libsndfile reads. Must not move while a file is open on it.
  class Bytes {
   public:
    Bytes(PiecedFile file, Length length)
        : file_(std::move(file)),
          there_(static_cast<sf_count_t>(file_.size())),
          size_(length == Length::overstated ? there_ * kOverstated + kLast : there_) {}

    [[nodiscard]] SNDFILE* open(SF_INFO& info) {
      SF_VIRTUAL_IO io{
          .get_filelen = [](void* bytes) { return of(bytes).size_; },
          .seek = [](sf_count_t to, int from, void* bytes) { return of(bytes).seek(to, from); },
          .read = [](void* out, sf_count_t count, void* bytes) { return of(bytes).read(out, count); },
          .write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; },
          .tell = [](void* bytes) { return of(bytes).at_; }};
      return sf_open_virtual(&io, SFM_READ, &info, this);
    }

   private:
    static constexpr sf_count_t kOverstated = 64;  // the largest MPEG frame is 40 times the smallest
    static constexpr sf_count_t kLast = 128;       // bytes in which the decoder looks for an ID3v1 tag

    static Bytes& of(void* bytes) { return *static_cast<Bytes*>(bytes); }

    sf_count_t seek(sf_count_t to, int from) {
      const sf_count_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? at_ : size_;
      return at_ = std::clamp<sf_count_t>(base + to, 0, size_);
    }
    /// Reads bytes. An unreadable file counts as its end, since no exception may pass through libsndfile.
    sf_count_t read(void* out, sf_count_t count) noexcept try {
      if (at_ == size_ - kLast && count >= kLast && size_ > there_) return read_last(out);
      count = std::clamp<sf_count_t>(there_ - at_, 0, count);
      if (count == 0) return 0;
      file_.read_at(static_cast<std::uint64_t>(at_), out, static_cast<std::size_t>(count));
      at_ += count;
      return count;
    } catch (const Error&) {
      return 0;
    }
    /// Reads zeros at the end of a file whose length is overstated: libsndfile must be able to read there.
    sf_count_t read_last(void* out) {
      std::memset(out, 0, static_cast<std::size_t>(kLast));
      at_ = size_;
      return kLast;
    }

    PiecedFile file_;
    sf_count_t there_, size_, at_ = 0;
  };

  template <class Use>
  std::int64_t in_blocks(std::int64_t count, Use use) {
    std::vector<float> block(static_cast<std::size_t>(kBlock * info_.channels));
    std::int64_t done = 0;
    while (done < count) {
      const std::int64_t got = sf_readf_float(file_.get(), block.data(), std::min(kBlock, count - done));
      if (got <= 0) break;
      use(block.data(), got);
      done += got;
    }
    return done;
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
    std::unique_ptr<Bytes> bytes;  // outlives the file
  };

  SF_INFO info_{};
  std::unique_ptr<SNDFILE, Close> file_;
};

}  // namespace looptorch::audio::detail
