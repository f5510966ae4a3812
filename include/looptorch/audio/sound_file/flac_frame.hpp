// SPDX-License-Identifier: MIT
// Parses the header of a FLAC frame (RFC 9639), to find truncated and joined FLAC files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace looptorch::audio::detail {

/// Returns the CRC of `bytes`: its initial value is 0, and the most significant bits come first.
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

/// The header of one frame.
struct FlacFrame {
  std::uint64_t number = 0;     ///< of the frame, or of its first sample
  bool counts_samples = false;  ///< The number is that of its first sample.
  std::size_t samples = 0;      ///< per channel
  std::size_t limit = 0;        ///< the most bytes that it has
};

/// Returns the frame with its header at the beginning of `bytes`, if there is one.
[[nodiscard]] inline std::optional<FlacFrame> flac_frame(std::string_view bytes) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
  };
  if (byte(0) != 0xff || (byte(1) & 0xfe) != 0xf8) return std::nullopt;
  const unsigned block = byte(2) >> 4, rate = byte(2) & 0xf, channels = byte(3) >> 4;
  if (block == 0 || rate == 0xf || channels > 10) return std::nullopt;
  FlacFrame frame{.number = byte(4), .counts_samples = (byte(1) & 1) != 0};
  std::size_t at = 5;  // after the first byte of the frame's number, whose leading ones count its bytes
  if (byte(4) & 0x80) {
    unsigned mask = 0x40;
    for (; byte(4) & mask; mask >>= 1) frame.number = frame.number << 6 | (byte(at++) & 0x3f);
    // Each further byte has moved the first one's bits by 6; what is left of its ones is cleared.
    frame.number &= (std::uint64_t{mask} << 6 * (at - 5)) - 1;
  }
  frame.samples = block == 1 ? 192 : block < 6 ? 576U << (block - 2) : 256U << (block - 8) % 8;
  if (block == 6) frame.samples = byte(at) + 1;
  if (block == 7) frame.samples = (byte(at) << 8 | byte(at + 1)) + 1;
  if (block == 6 || block == 7) at += block - 5;
  if (rate >= 12) at += rate == 12 ? 1 : 2;
  if (at >= bytes.size() || crc_of<std::uint8_t>(bytes.substr(0, at), 0x07) != byte(at)) return std::nullopt;
  constexpr std::size_t kSampleBytes = 5, kHeaders = 1024;  // a side channel of 32 bits has 33
  frame.limit = frame.samples * (channels < 8 ? channels + 1 : 2) * kSampleBytes + kHeaders;
  return frame;
}

}  // namespace looptorch::audio::detail
