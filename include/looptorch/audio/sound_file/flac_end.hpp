// SPDX-License-Identifier: MIT
// Checks that a FLAC stream ends with a whole frame. Without this check a truncated stream from a pipe would
// pass: such a stream does not state its length, and libsndfile silently drops an incomplete last frame.
#pragma once

#include <looptorch/audio/sound_file/flac_frame.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace looptorch::audio::detail {

/// True if the last frame's checksum is right; an ID3v1 tag may follow it. Also true for a file that was
/// truncated between two frames.
[[nodiscard]] inline bool flac_ends_whole(const PiecedFile& file) {
  constexpr std::uint64_t kLargestFrame = std::uint64_t{1} << 22, kTag = 128;
  std::string end(static_cast<std::size_t>(std::min(file.size(), kLargestFrame)), '\0');
  file.read_at(file.size() - end.size(), end.data(), end.size());
  if (end.size() > kTag && std::string_view(end).substr(end.size() - kTag).starts_with("TAG"))
    end.resize(end.size() - kTag);
  const std::string_view bytes = end;
  for (std::size_t at = bytes.size(); at-- > 0;) {
    const std::string_view last = bytes.substr(at);
    const auto frame = flac_frame(last);
    if (frame && last.size() <= frame->limit && crc_of<std::uint16_t>(last, 0x8005) == 0) return true;
  }
  return false;
}

}  // namespace looptorch::audio::detail
