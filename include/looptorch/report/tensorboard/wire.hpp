// SPDX-License-Identifier: MIT
// Writes and reads the types of Protocol Buffers fields that TensorBoard's events use (protobuf.dev,
// "Encoding"), without a library.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::report::detail {

/// A message under construction. Fields appear in the order in which they are added.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    put_varint(key(field, kVarint));
    put_varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    put_varint(key(field, kFixed64));
    put_fixed(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& single(int field, float value) {
    put_varint(key(field, kFixed32));
    put_fixed(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  /// Adds a string, bytes or another message.
  Message& bytes(int field, std::string_view value) {
    put_varint(key(field, kLength));
    put_varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  enum Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
  static std::uint64_t key(int field, Wire wire) { return static_cast<std::uint64_t>(field) << 3 | wire; }

  void put_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class Bits>
  void put_fixed(Bits bits) {
    for (std::size_t i = 0; i < sizeof bits; ++i) bytes_ += static_cast<char>((bits >> (8 * i)) & 0xFF);
  }

  std::string bytes_;
};

/// Returns the varint at the front of `bytes` and removes it; nothing if it is cut off.
inline std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) return bytes.remove_prefix(i + 1), value;
  }
  return std::nullopt;
}

/// Returns the value of the first varint field with this number at a message's top level; nothing if it has
/// none.
inline std::optional<std::uint64_t> find_number(std::string_view message, int field) {
  while (!message.empty()) {
    const auto key = take_varint(message);
    if (!key) return std::nullopt;
    std::size_t skipped = 0;
    switch (*key & 7) {
      case 0: {
        const auto value = take_varint(message);
        if (!value || *key >> 3 == static_cast<std::uint64_t>(field)) return value;
        break;
      }
      case 1:
        skipped = 8;
        break;
      case 2: {
        const auto size = take_varint(message);
        if (!size) return std::nullopt;
        skipped = *size;
        break;
      }
      case 5:
        skipped = 4;
        break;
      default:
        return std::nullopt;
    }
    if (skipped > message.size()) return std::nullopt;
    message.remove_prefix(skipped);
  }
  return std::nullopt;
}

}  // namespace looptorch::report::detail
