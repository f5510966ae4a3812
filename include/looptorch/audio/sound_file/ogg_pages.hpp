// SPDX-License-Identifier: MIT
// Finds the page of an Ogg file (RFC 3533) where decoding must begin to reach a position in the sound. Reads
// a few hundred kilobytes at most, for a file of any length.
#pragma once

#include <looptorch/audio/sound_file/pieced_file.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::audio::detail {

[[nodiscard]] inline std::uint64_t little_endian(const unsigned char* bytes, int count) {
  std::uint64_t value = 0;
  while (count-- > 0) value = value << 8 | bytes[count];
  return value;
}

/// The fields of a page's header.
struct OggPage {
  static constexpr std::size_t kHeader = 27, kMaxSegments = 255;
  static constexpr std::size_t kLongest = kHeader + kMaxSegments + kMaxSegments * 255;

  std::uint64_t begin = 0, end = 0;  ///< bytes
  std::int64_t position = -1;        ///< end of its last complete packet, in samples; -1: none ends here
  std::uint32_t stream = 0, number = 0;
  bool continues = false;    ///< begins with the rest of a packet
  bool is_first = false;     ///< begins a stream
  bool is_last = false;      ///< ends it
  std::int64_t packets = 0;  ///< number of packets that end here
};

/// Returns the page that begins at `offset`, if a whole one does.
[[nodiscard]] inline std::optional<OggPage> ogg_page_at(const PiecedFile& file, std::uint64_t offset) {
  std::array<unsigned char, OggPage::kHeader + OggPage::kMaxSegments> bytes{};
  const std::uint64_t there = file.size() - std::min(offset, file.size());
  const auto got = static_cast<std::size_t>(std::min<std::uint64_t>(there, bytes.size()));
  if (got < OggPage::kHeader) return std::nullopt;
  file.read_at(offset, bytes.data(), got);
  const std::size_t header = OggPage::kHeader + bytes[26];
  if (std::memcmp(bytes.data(), "OggS\0", 5) != 0 || got < header) return std::nullopt;
  OggPage page{.begin = offset,
               .end = offset + header,
               .position = static_cast<std::int64_t>(little_endian(&bytes[6], 8)),
               .stream = static_cast<std::uint32_t>(little_endian(&bytes[14], 4)),
               .number = static_cast<std::uint32_t>(little_endian(&bytes[18], 4)),
               .continues = (bytes[5] & 1) != 0,
               .is_first = (bytes[5] & 2) != 0,
               .is_last = (bytes[5] & 4) != 0};
  for (std::size_t i = OggPage::kHeader; i < header; ++i) {
    page.end += bytes[i];
    page.packets += bytes[i] < 255;
  }
  return page.end <= file.size() ? std::optional(page) : std::nullopt;
}

/// A page that begins with a packet, and the sample before which all earlier packets end.
struct OggEntryPoint {
  OggPage page;
  std::int64_t position;
};

/// Finds entry points in a file that is one stream of sound.
class OggIndex {
 public:
  /// Reads the stream's headers, which are `header_packets` packets.
  OggIndex(const PiecedFile& file, std::int64_t header_packets) : file_(file) {
    auto page = ogg_page_at(file, 0);
    if (!page) return;
    stream_ = page->stream;
    for (std::int64_t packets = 0; page && page->stream == stream_; page = ogg_page_at(file, page->end)) {
      packets += page->packets;
      if (packets == header_packets) sound_ = page->end;
      if (packets >= header_packets) return;
    }
  }

  /// Returns the bytes of the headers; 0 if the file has another layout.
  [[nodiscard]] std::uint64_t headers() const { return sound_; }

  /// Returns the last entry point at or before `position`; none if that is the beginning. Pages that begin
  /// within a packet are skipped.
  [[nodiscard]] std::optional<OggEntryPoint> find(std::int64_t position) const {
    std::optional<OggEntryPoint> found;
    if (sound_ == 0) return found;
    for (auto page = ogg_page_at(file_, page_near(position)); is_ours(page);) {
      if (page->position > position) break;
      const auto next = ogg_page_at(file_, page->end);
      if (page->position >= 0 && is_ours(next) && !next->continues) found = {*next, page->position};
      page = next;
    }
    return found;
  }

 private:
  static constexpr std::uint64_t kNear = 1 << 17;

  [[nodiscard]] bool is_ours(const std::optional<OggPage>& page) const {
    return page && page->stream == stream_;
  }

  /// Returns the offset of a page before `position`, by bisection.
  [[nodiscard]] std::uint64_t page_near(std::int64_t position) const {
    std::uint64_t low = sound_, high = file_.size();
    while (high - low > kNear) {
      const std::uint64_t middle = low + (high - low) / 2;
      auto page = page_from(middle);
      while (is_ours(page) && page->position < 0) page = ogg_page_at(file_, page->end);
      if (is_ours(page) && page->begin < high && page->position <= position)
        low = page->begin;
      else
        high = middle;
    }
    return low;
  }

  /// Returns the first page at or after `offset`. Bytes that look like one count only if the next page
  /// follows them.
  [[nodiscard]] std::optional<OggPage> page_from(std::uint64_t offset) const {
    constexpr std::string_view kCapture = "OggS";
    const std::uint64_t there = file_.size() - std::min(offset, file_.size());
    std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(there, 2 * OggPage::kLongest)), '\0');
    file_.read_at(offset, bytes.data(), bytes.size());
    for (auto i = bytes.find(kCapture); i != std::string::npos; i = bytes.find(kCapture, i + 1))
      if (const auto page = ogg_page_at(file_, offset + i); is_ours(page) && is_followed(*page)) return page;
    return std::nullopt;
  }
  [[nodiscard]] bool is_followed(const OggPage& page) const {
    if (page.end == file_.size()) return true;
    const auto next = ogg_page_at(file_, page.end);
    return is_ours(next) && next->number == page.number + 1;
  }

  const PiecedFile& file_;
  std::uint32_t stream_ = 0;
  std::uint64_t sound_ = 0;
};

}  // namespace looptorch::audio::detail
