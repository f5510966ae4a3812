// SPDX-License-Identifier: MIT
// TFRecord, the framing of TensorBoard's event files. A record has its length, the length's checksum, the
// data, and the data's checksum. A killed process may leave a file that ends within a record; all records
// before it can be read.
#pragma once

#include <looptorch/base/hash/crc32.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::report {

namespace detail {

/// Returns the check value as TFRecord masks it.
[[nodiscard]] constexpr std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = looptorch::detail::crc32<looptorch::detail::kCrc32c>(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

inline std::string little_endian(std::uint64_t value, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}
inline std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace detail

/// Returns `data` as a record.
[[nodiscard]] inline std::string record_of(std::string_view data) {
  const std::string length = detail::little_endian(data.size(), 8);
  return length + detail::little_endian(detail::masked_crc(length), 4) + std::string(data) +
         detail::little_endian(detail::masked_crc(data), 4);
}

/// Returns the data of the record at the front of `file` and removes the record. Returns nothing at the end,
/// and where a record is cut off or damaged.
[[nodiscard]] inline std::optional<std::string_view> take_record(std::string_view& file) {
  constexpr std::size_t kHead = 12, kTail = 4;
  if (file.size() < kHead + kTail) return std::nullopt;
  const std::uint64_t size = detail::from_little_endian(file.substr(0, 8));
  if (detail::from_little_endian(file.substr(8, 4)) != detail::masked_crc(file.substr(0, 8)) ||
      size > file.size() - kHead - kTail)
    return std::nullopt;
  const std::string_view data = file.substr(kHead, size);
  if (detail::from_little_endian(file.substr(kHead + size, kTail)) != detail::masked_crc(data))
    return std::nullopt;
  file.remove_prefix(kHead + size + kTail);
  return data;
}

}  // namespace looptorch::report
