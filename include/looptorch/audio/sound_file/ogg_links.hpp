// SPDX-License-Identifier: MIT
// Finds the consecutive streams of a chained Ogg file (RFC 3533), such as a recording of internet radio;
// libsndfile reads only the first of them. Also finds lost pages and a truncated end, which libsndfile does
// not report. Reads the headers of all pages: 2 us a page of some kilobytes.
#pragma once

#include <looptorch/audio/sound_file/ogg_pages.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::audio::detail {

/// A page that does not continue its stream: pages before it were lost, or are in the wrong order.
struct OggGap {
  OggPage page;
  std::uint32_t expected;  ///< number of the page that should be there
};

/// One stream, or several whose pages are mixed, up to where the next begins.
struct OggLink {
  std::uint64_t begin = 0, end = 0;
  bool is_whole = false;           ///< ends with the last page of a stream
  std::optional<OggGap> gap = {};  ///< the first one
};

/// Finds a gap in the numbers of the pages of one link. A recording of radio may begin anywhere: after a
/// stream's headers a first page of sound may have any number.
class OggNumbers {
 public:
  /// Takes the next page. Returns the gap before it, if there is one.
  std::optional<OggGap> next(const OggPage& page) {
    const auto [stream, is_new] = streams_.try_emplace(page.stream);
    const auto expected = std::exchange(stream->second.next, page.number + 1);
    const bool is_sound =
        std::exchange(stream->second.is_sound, stream->second.is_sound || page.position > 0);
    if (is_new || !is_sound || page.number == expected) return std::nullopt;
    return OggGap{page, expected};
  }

 private:
  struct Stream {
    std::uint32_t next = 0;
    bool is_sound = false;  // a page of sound was there
  };

  std::map<std::uint32_t, Stream> streams_;
};

/// True if the bytes at `offset` look like a page.
[[nodiscard]] inline bool ogg_begins_at(const PiecedFile& file, std::uint64_t offset) {
  constexpr std::string_view kCapture = "OggS";
  std::string capture(kCapture.size(), '\0');
  if (offset + capture.size() > file.size()) return false;
  file.read_at(offset, capture.data(), capture.size());
  return capture == kCapture;
}

/// Returns the offset of the next bytes from `offset` on that look like a page, or the file's size.
[[nodiscard]] inline std::uint64_t next_ogg_page(const PiecedFile& file, std::uint64_t offset) {
  constexpr std::string_view kCapture = "OggS";
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  std::string bytes;
  for (; offset + kCapture.size() <= file.size(); offset += bytes.size() - kCapture.size() + 1) {
    bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, file.size() - offset)));
    file.read_at(offset, bytes.data(), bytes.size());
    if (const auto at = bytes.find(kCapture); at != bytes.npos) return offset + at;
  }
  return file.size();
}

/// Returns the page at `offset`, unless another page begins within its bytes: then it was cut off.
[[nodiscard]] inline std::optional<OggPage> whole_ogg_page_at(const PiecedFile& file, std::uint64_t offset) {
  const auto page = ogg_page_at(file, offset);
  const bool is_followed = page && (page->end == file.size() || ogg_begins_at(file, page->end));
  return is_followed || (page && next_ogg_page(file, offset + 1) >= page->end) ? page : std::nullopt;
}

/// Returns the links of a file that begins with a page. Bytes between pages are skipped, as libogg does;
/// a link that ends within a page is not whole.
[[nodiscard]] inline std::vector<OggLink> ogg_links(const PiecedFile& file) {
  std::vector<OggLink> links;
  OggNumbers numbers;
  bool begins = false;  // the last page was a first one
  for (std::uint64_t at = 0; at < file.size();) {
    const auto page = whole_ogg_page_at(file, at);
    const bool starts = page && page->is_first && !begins;
    if (starts || links.empty()) links.push_back({.begin = at});
    if (starts) numbers = {};
    if (page) links.back().is_whole = page->is_last;
    if (page)
      if (const auto gap = numbers.next(*page); gap && !links.back().gap) links.back().gap = gap;
    begins = page && page->is_first;
    const std::uint64_t next = page ? page->end : next_ogg_page(file, at + 1);
    if (!page && ogg_begins_at(file, at)) links.back().is_whole = false;
    links.back().end = at = next;
  }
  return links;
}

}  // namespace looptorch::audio::detail
