// SPDX-License-Identifier: MIT
// Detects a truncated Ogg file (Vorbis, Opus, FLAC), which libsndfile reads as complete if it ends behind any
// page.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace looptorch::audio::detail {

/// True if `file` begins as Ogg but does not end with a whole page that is marked as the end of its stream.
/// Reads one page's length from the end.
inline bool is_cut_ogg(const InputFile& file) {
  constexpr std::string_view kCapture = "OggS";
  constexpr std::size_t kHeader = 27, kFlags = 5, kSegments = 26, kLongestPage = kHeader + 255 + 255 * 255;
  constexpr unsigned char kEndOfStream = 4;
  std::string text(std::min<std::size_t>(file.size(), kLongestPage), '\0');
  if (text.size() < kCapture.size()) return false;
  std::string capture(kCapture.size(), '\0');
  file.read_at(0, capture.data(), capture.size());
  if (capture != kCapture) return false;

  file.read_at(file.size() - text.size(), text.data(), text.size());
  const std::size_t page = text.rfind(kCapture);
  if (page == std::string::npos || text.size() - page < kHeader) return true;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[page + i]); };
  const std::size_t body = kHeader + byte(kSegments);
  if (text.size() - page < body || !(byte(kFlags) & kEndOfStream)) return true;
  std::size_t length = body;
  for (std::size_t i = kHeader; i < body; ++i) length += byte(i);
  return text.size() - page < length;
}

}  // namespace looptorch::audio::detail
