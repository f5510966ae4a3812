// SPDX-License-Identifier: MIT
// Reads a range of a long Vorbis or Opus file without decoding all that precedes it. A decoder that starts in
// the middle first returns wrong samples: one packet of Vorbis, up to a second or more of Opus, and no header
// says how many. So two decoders start at different distances before the range. Their output is accepted if
// it agrees bit for bit just before the range.
#pragma once

#include <looptorch/audio/sound_file/ogg_headers.hpp>
#include <looptorch/audio/sound_file/ogg_pages.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>
#include <looptorch/audio/sound_file/sound_stream.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch::audio::detail {

/// Reads ranges of one file, in frames of the whole file.
class OggSeek {
 public:
  /// Takes a file of one stream, and the `info` of the whole of it.
  OggSeek(PiecedFile file, const SF_INFO& info)
      : file_(std::move(file)),
        info_(info),
        is_opus_((info.format & SF_FORMAT_SUBMASK) == SF_FORMAT_OPUS),
        index_(file_, is_opus_ ? 2 : 3),
        headers_(file_, index_) {}

  /// Writes `count` frames from `first` on to `out`, the same bits that decoding from the beginning gives.
  /// Returns false if that cannot be verified, or if they lie so near the beginning that nothing is gained.
  bool read(std::int64_t first, float* out, std::int64_t count) {
    if (!is_known()) return false;
    for (std::int64_t distance = kLeast * info_.samplerate; distance <= kMost * info_.samplerate;
         distance *= 2) {
      if (first < 4 * distance) return false;
      Decoder near = open(first - distance), far = open(first - 2 * distance);
      if (!near.stream || !far.stream) return false;
      if (!agree(near, far, first, distance / 2)) continue;
      return far.stream.read(out, count) == count;
    }
    return false;
  }

 private:
  static constexpr std::int64_t kLeast = 2, kMost = 16;  // seconds
  static constexpr std::int64_t kOpusRate = 48000;  // rate of its positions, independent of the decoded rate

  struct Decoder {
    SoundStream stream;
    std::int64_t at = 0;  ///< The next frame to read.
  };

  /// True if the positions of frames are known. Opus drops samples at its beginning, which must be an integer
  /// number at the decoded rate.
  [[nodiscard]] bool is_known() const {
    if (index_.headers() == 0) return false;
    if (!is_opus_) return (info_.format & SF_FORMAT_SUBMASK) == SF_FORMAT_VORBIS;
    return kOpusRate % info_.samplerate == 0 && headers_.pre_skip() % scale() == 0;
  }
  [[nodiscard]] std::int64_t scale() const { return is_opus_ ? kOpusRate / info_.samplerate : 1; }

  /// Opens a decoder before `frame`. The tail's first frame is counted back from its end, which is the file's
  /// end too. The page before must give the same number; in Vorbis it does except for the first packet, which
  /// produces no output.
  [[nodiscard]] Decoder open(std::int64_t frame) const {
    const auto entry = index_.find(frame * scale() + headers_.pre_skip());
    if (!entry) return {};
    Decoder decoder{SoundStream(file_.range(entry->page.begin, file_.size(), headers_.bytes())), 0};
    if (!decoder.stream) return {};
    decoder.at = info_.frames - decoder.stream.info().frames;
    const std::int64_t late = decoder.at * scale() - (entry->position - headers_.pre_skip());
    return late >= 0 && late <= (is_opus_ ? 0 : kLongestPacket) ? std::move(decoder) : Decoder();
  }
  static constexpr std::int64_t kLongestPacket = 8192;  // of Vorbis

  /// Advances both to `first` and compares the `window` frames before it. For Opus, silence proves nothing.
  [[nodiscard]] bool agree(Decoder& near, Decoder& far, std::int64_t first, std::int64_t window) const {
    const auto before = [&](Decoder& decoder) {
      std::vector<float> samples(static_cast<std::size_t>(window));
      const std::int64_t skipped = first - window - decoder.at;
      if (skipped < 0 || decoder.stream.skip(skipped) < skipped ||
          decoder.stream.read(samples.data(), window) < window)
        samples.clear();
      return samples;
    };
    const std::vector<float> of_near = before(near), of_far = before(far);
    if (of_near.empty() || of_near != of_far) return false;
    return !is_opus_ || std::any_of(of_far.begin(), of_far.end(), [](float sample) { return sample != 0; });
  }

  PiecedFile file_;
  SF_INFO info_;
  bool is_opus_;
  OggIndex index_;
  OggHeaders headers_;
};

}  // namespace looptorch::audio::detail
