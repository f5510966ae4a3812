// SPDX-License-Identifier: MIT
// Finds where each FLAC file begins in a concatenation (`cat a.flac b.flac`); libsndfile reads only the first
// of them. A FLAC header does not state how many bytes its stream has, so the file is searched for further
// headers. In a file beyond 1 MB the numbers of some frames are read first, in 0.1 ms: if they increase
// through the whole file, the file is one stream and is not searched.
#pragma once

#include <looptorch/audio/sound_file/flac_frame.hpp>
#include <looptorch/audio/sound_file/mpeg_frame.hpp>
#include <looptorch/audio/sound_file/mpeg_tags.hpp>
#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace looptorch::audio::detail {

/// The streams of a FLAC file.
class FlacScan {
 public:
  explicit FlacScan(const InputFile& file) : bytes_(file), frames_(file, kFrame) {}

  /// Returns where each stream begins, the first at 0 with what is before it; none if the file is no FLAC.
  [[nodiscard]] std::vector<std::uint64_t> beginnings() {
    std::uint64_t at = 0;
    while (const std::uint64_t tag = mpeg_tag_bytes(bytes_, at)) at += tag;
    auto header = header_at(at);
    if (!header) return {};
    std::vector<std::uint64_t> found{0};
    if (header->sound + kSearched < bytes_.size() && is_one(*header)) return found;
    for (at = header->sound; (at = next_marker(at)) < bytes_.size(); at = header ? header->sound : at + 1)
      if ((header = header_at(at))) found.push_back(at);
    return found;
  }

 private:
  static constexpr std::uint64_t kSearched = std::uint64_t{1} << 20;
  static constexpr std::string_view kMarker = "fLaC";
  static constexpr std::uint64_t kFrame = std::uint64_t{1} << 14, kProbes = 32;

  /// The contents of the first metadata block, and the position of the first frame.
  struct Header {
    std::uint64_t sound = 0;
    std::uint64_t block = 0;  // samples of a frame; 0: they differ
    std::uint64_t samples = 0;
    std::size_t window = 0;  // bytes in which a frame begins
  };

  [[nodiscard]] std::optional<Header> header_at(std::uint64_t at) {
    constexpr std::size_t kBlockHeader = 4, kInfo = 34;
    const std::string_view bytes = bytes_.at(at, kMarker.size() + kBlockHeader + kInfo);
    if (bytes.size() < kMarker.size() + kBlockHeader + kInfo || !bytes.starts_with(kMarker))
      return std::nullopt;
    const std::string_view info = bytes.substr(kMarker.size() + kBlockHeader);
    if ((bytes[4] & 0x7f) != 0 || big_endian(bytes, 5, 3) != kInfo) return std::nullopt;
    const std::uint64_t least = big_endian(info, 0, 2), most = big_endian(info, 2, 2);
    const std::uint64_t largest = big_endian(info, 7, 3), rate = big_endian(info, 10, 3) >> 4;
    if (least < 16 || most < least || rate == 0) return std::nullopt;
    Header header{.block = least == most ? most : 0,
                  .samples = big_endian(info, 13, 5) & 0xfffffffff,
                  .window = static_cast<std::size_t>(largest > 0 ? 2 * largest : 4 * kFrame)};
    bool is_last = false;
    for (at += kMarker.size(); !is_last; at += kBlockHeader + big_endian(bytes_.at(at, kBlockHeader), 1, 3)) {
      const std::string_view block = bytes_.at(at, kBlockHeader);
      if (block.size() < kBlockHeader) return std::nullopt;
      is_last = (block[0] & 0x80) != 0;
    }
    header.sound = at;
    return header;
  }

  /// Returns the offset of the next marker from `at` on, or the file's size.
  [[nodiscard]] std::uint64_t next_marker(std::uint64_t at) {
    constexpr std::size_t kBlock = std::size_t{1} << 16;
    for (; at + kMarker.size() <= bytes_.size(); at += kBlock - kMarker.size() + 1)
      if (const auto found = bytes_.at(at, kBlock).find(kMarker); found != std::string_view::npos)
        return at + found;
    return bytes_.size();
  }

  /// True if frames all over the file are numbered as those of one stream. Misses two streams of equal length
  /// only if a thirty-second of the file holds as many samples as one stream.
  [[nodiscard]] bool is_one(const Header& header) {
    if (header.samples == 0) return false;
    std::uint64_t before = 0;
    for (std::uint64_t i = 1; i < kProbes; ++i) {
      const auto frame =
          frame_behind(before, header.sound + (bytes_.size() - header.sound) / kProbes * i, header);
      if (!frame) return false;
      before = frame->end;
    }
    const std::uint64_t last = bytes_.size() - std::min<std::uint64_t>(header.window, kSearched);
    return last_end(last, header) == header.samples;
  }

  /// The samples of a frame.
  struct Range {
    std::uint64_t first, end;
  };

  [[nodiscard]] static std::optional<Range> range_of(std::string_view bytes, const Header& header) {
    const auto frame = flac_frame(bytes);
    if (!frame || (!frame->counts_samples && header.block == 0)) return std::nullopt;
    const std::uint64_t first = frame->counts_samples ? frame->number : frame->number * header.block;
    return Range{first, first + frame->samples};
  }

  /// Returns a frame that begins within `header.window` bytes from `offset` on and at or after sample
  /// `least`: bytes may only look like a frame's header.
  [[nodiscard]] std::optional<Range> frame_behind(std::uint64_t least, std::uint64_t offset,
                                                  const Header& header) {
    const std::string_view bytes = frames_.at(offset, header.window);
    for (std::size_t at = bytes.find('\xff'); at != bytes.npos; at = bytes.find('\xff', at + 1))
      if (const auto range = range_of(bytes.substr(at), header);
          range && range->first >= least && range->end <= header.samples)
        return range;
    return std::nullopt;
  }

  /// Returns the sample at which the last frame from `offset` on ends.
  [[nodiscard]] std::uint64_t last_end(std::uint64_t offset, const Header& header) {
    const std::string_view bytes = frames_.at(offset, static_cast<std::size_t>(bytes_.size() - offset));
    for (std::size_t at = bytes.rfind('\xff'); at != bytes.npos && at > 0; at = bytes.rfind('\xff', at - 1))
      if (const auto range = range_of(bytes.substr(at), header)) return range->end;
    return 0;
  }

  ByteWindow bytes_, frames_;
};

}  // namespace looptorch::audio::detail
