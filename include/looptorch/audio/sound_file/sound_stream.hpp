// SPDX-License-Identifier: MIT
// Decodes sound by libsndfile, mixed down to one channel.
#pragma once

#include <sndfile.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace looptorch::audio::detail {

/// An open file of libsndfile, or none.
class SoundStream {
 public:
  SoundStream() = default;
  /// Opens by `open(info)`, which returns libsndfile's handle, or null.
  template <class Open>
  explicit SoundStream(const Open& open) : file_(open(info_)) {}

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
  };

  SF_INFO info_{};
  std::unique_ptr<SNDFILE, Close> file_;
};

}  // namespace looptorch::audio::detail
