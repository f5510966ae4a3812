// SPDX-License-Identifier: MIT
// Tells whether a FLAC file ends with a whole frame. One that a pipe wrote does not state its length, and
// libsndfile silently leaves out a last frame of which a part is missing.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::audio::detail {

/// Returns the CRC of `bytes` that begins with 0 and takes the highest bits first.
template <class Word>
[[nodiscard]] constexpr Word crc_of(std::string_view bytes, Word polynomial) {
  constexpr int kTop = 8 * static_cast<int>(sizeof(Word)) - 8;
  std::array<Word, 256> of_byte{};
  for (std::size_t i = 0; i < of_byte.size(); ++i) {
    auto word = static_cast<Word>(i << kTop);
    for (int bit = 0; bit < 8; ++bit)
      word = static_cast<Word>(word << 1 ^ (word >> (kTop + 7) ? polynomial : 0));
    of_byte[i] = word;
  }
  Word crc = 0;
  for (const char byte : bytes)
    crc = static_cast<Word>((kTop ? crc << 8 : 0) ^
                            of_byte[(crc >> kTop ^ static_cast<unsigned char>(byte)) & 0xff]);
  return crc;
}

/// Returns the most bytes that a frame has whose header `bytes` begin with; nothing if there is no header.
[[nodiscard]] inline std::optional<std::size_t> flac_frame_limit(std::string_view bytes) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  if (byte(0) != 0xff || (byte(1) & 0xfe) != 0xf8) return std::nullopt;
  const unsigned block = byte(2) >> 4, rate = byte(2) & 0xf, channels = byte(3) >> 4;
  if (block == 0 || rate == 0xf || channels > 10) return std::nullopt;
  std::size_t at = 5;  // behind the first byte of the frame's number, whose leading ones count its bytes
  for (unsigned mask = 0x40; (byte(4) & 0x80) && (byte(4) & mask); mask >>= 1) ++at;
  std::size_t samples = block == 1 ? 192 : block < 6 ? 576U << (block - 2) : 256U << (block - 8) % 8;
  if (block == 6) samples = byte(at) + 1;
  if (block == 7) samples = (byte(at) << 8 | byte(at + 1)) + 1;
  if (block == 6 || block == 7) at += block - 5;
  if (rate >= 12) at += rate == 12 ? 1 : 2;
  if (at >= bytes.size() || crc_of<std::uint8_t>(bytes.substr(0, at), 0x07) != byte(at)) return std::nullopt;
  constexpr std::size_t kSampleBytes = 5, kHeaders = 1024;  // a side channel of 32 bits has 33
  return samples * (channels < 8 ? channels + 1 : 2) * kSampleBytes + kHeaders;
}

/// True if the last frame's checksum is right, behind which an ID3v1 tag may lie. A file that was cut off
/// between two frames has one.
[[nodiscard]] inline bool flac_ends_whole(const InputFile& file) {
  constexpr std::uint64_t kLargestFrame = std::uint64_t{1} << 22, kTag = 128;
  std::string end(static_cast<std::size_t>(std::min(file.size(), kLargestFrame)), '\0');
  file.read_at(file.size() - end.size(), end.data(), end.size());
  if (end.size() > kTag && std::string_view(end).substr(end.size() - kTag).starts_with("TAG"))
    end.resize(end.size() - kTag);
  const std::string_view bytes = end;
  for (std::size_t at = bytes.size(); at-- > 0;) {
    const std::string_view frame = bytes.substr(at);
    const auto limit = flac_frame_limit(frame);
    if (limit && frame.size() <= *limit && crc_of<std::uint16_t>(frame, 0x8005) == 0) return true;
  }
  return false;
}

}  // namespace looptorch::audio::detail
