// SPDX-License-Identifier: MIT
// Computes the 32-bit cyclic redundancy checks of file formats: CRC-32 for PNG and gzip, CRC-32C for TFRecord
// and iSCSI. Processes a byte at a time, some 400 MB/s.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace looptorch::detail {

/// The polynomials, with their bits in reverse order.
inline constexpr std::uint32_t kCrc32 = 0xEDB88320U;   ///< IEEE 802.3, used by PNG (ISO 3309).
inline constexpr std::uint32_t kCrc32c = 0x82F63B78U;  ///< Castagnoli, used by TFRecord (RFC 3720).

/// Returns the remainder of each byte.
[[nodiscard]] constexpr std::array<std::uint32_t, 256> crc32_table(std::uint32_t polynomial) {
  std::array<std::uint32_t, 256> remainders{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    auto value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value % 2 == 1 ? polynomial : 0U);
    remainders[i] = value;
  }
  return remainders;
}

template <std::uint32_t kPolynomial>
inline constexpr std::array<std::uint32_t, 256> kCrc32Table = crc32_table(kPolynomial);

/// Returns the check value of `bytes`: all bits set at first, all inverted at the end.
template <std::uint32_t kPolynomial>
[[nodiscard]] constexpr std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes)
    crc = kCrc32Table<kPolynomial>[(crc ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

}  // namespace looptorch::detail
