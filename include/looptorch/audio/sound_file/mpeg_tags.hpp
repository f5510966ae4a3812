// SPDX-License-Identifier: MIT
// Finds tags (ID3, APE, Lyrics3) before and after MPEG audio and, in joined files, between its frames, so
// that they are not taken for sound.
#pragma once

#include <looptorch/audio/sound_file/mpeg_frame.hpp>
#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace looptorch::audio::detail {

/// A file's bytes, read `block` at a time, or more if more are asked for.
class ByteWindow {
 public:
  explicit ByteWindow(const InputFile& file, std::uint64_t block = std::uint64_t{1} << 17)
      : file_(file), block_(block) {}

  [[nodiscard]] std::uint64_t size() const { return file_.size(); }

  /// Returns up to `count` bytes from `offset` on, fewer at the file's end. The next call invalidates them.
  [[nodiscard]] std::string_view at(std::uint64_t offset, std::size_t count) {
    offset = std::min(offset, size());
    count = static_cast<std::size_t>(std::min<std::uint64_t>(count, size() - offset));
    if (offset < begin_ || offset + count > begin_ + bytes_.size()) {
      bytes_.resize(static_cast<std::size_t>(
          std::min<std::uint64_t>(std::max<std::uint64_t>(count, block_), size() - offset)));
      file_.read_at(offset, bytes_.data(), bytes_.size());
      begin_ = offset;
    }
    return std::string_view(bytes_).substr(static_cast<std::size_t>(offset - begin_), count);
  }

 private:
  const InputFile& file_;
  std::uint64_t block_;
  std::string bytes_;
  std::uint64_t begin_ = 0;
};

/// Returns the bytes of the tag that begins at `offset`; 0 if none does.
[[nodiscard]] inline std::uint64_t mpeg_tag_bytes(ByteWindow& file, std::uint64_t offset) {
  constexpr std::size_t kId3 = 10, kId3v1 = 128, kApe = 32, kLyrics = 11, kLongestLyrics = 5100;
  const std::string_view bytes = file.at(offset, kApe);
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.size() >= kId3 && (bytes.starts_with("ID3") || bytes.starts_with("3DI"))) {
    if (bytes.starts_with("3DI")) return kId3;  // the end of one, if its size leaves that out
    std::uint64_t size = 0;
    for (std::size_t i = 6; i < kId3; ++i) {
      if (byte(i) > 0x7f) return 0;
      size = size << 7 | byte(i);
    }
    return kId3 + size + ((byte(5) & 0x10) ? kId3 : 0);
  }
  if (bytes.starts_with("TAG") && file.size() - offset >= kId3v1) return kId3v1;
  if (bytes.starts_with("APETAGEX") && bytes.size() == kApe) {
    std::uint64_t size = 0;
    for (std::size_t i = 16; i-- > 12;) size = size << 8 | byte(i);  // without a header, with a footer
    return (byte(23) & 0x20) ? size + kApe : kApe;
  }
  if (bytes.starts_with("LYRICSBEGIN")) {
    const std::string_view lyrics = file.at(offset, kLyrics + kLongestLyrics + 9);
    for (const std::string_view end : {"LYRICSEND", "LYRICS200"})
      if (const auto at = lyrics.find(end); at != lyrics.npos) return at + end.size();
  }
  return 0;
}

}  // namespace looptorch::audio::detail
