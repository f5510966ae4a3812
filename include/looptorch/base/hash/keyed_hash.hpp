// SPDX-License-Identifier: MIT
// Hashes the keys of hash tables that are filled from a file, such as a JSON object's. The hash depends on a
// secret that each process draws anew: otherwise a prepared file could make all keys collide, and make every
// look-up slow. Costs one multiplication for each 8 bytes and one more. Not for cryptography. Never store
// these hashes; for a hash that is the same in every run use `stable_hash`.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

namespace looptorch {

namespace detail {

__extension__ using Uint128 = unsigned __int128;

/// The secret of this process. Factors are odd, so that a multiplication loses no bit.
struct HashSecret {
  std::uint64_t start, factor, last_factor;
};

[[nodiscard]] inline const HashSecret& hash_secret() {
  static const HashSecret kSecret = [] {  // not by std::random_device: <random> takes long to compile
    HashSecret drawn{};
    if (::getentropy(&drawn, sizeof drawn) != 0)
      throw std::system_error(errno, std::generic_category(), "getentropy");
    return HashSecret{drawn.start, drawn.factor | 1, drawn.last_factor | 1};
  }();
  return kSecret;
}

/// Returns the xor of the two halves of the 128-bit product.
[[nodiscard]] inline std::uint64_t fold_multiply(std::uint64_t value, std::uint64_t factor) {
  const auto product = static_cast<Uint128>(value) * factor;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Returns the first `size` bytes, at most 8, as a number, without a loop or a call.
[[nodiscard]] inline std::uint64_t read_block(const char* bytes, std::size_t size) {
  std::uint64_t block = 0;
  std::uint32_t low = 0, high = 0;
  if (size >= 8) {
    std::memcpy(&block, bytes, 8);
  } else if (size >= 4) {
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + size - 4, 4);
    block = std::uint64_t{high} << 32 | low;
  } else if (size > 0) {
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(bytes[i])}; };
    block = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
  }
  return block;
}

}  // namespace detail

/// Returns the hash of a number; the same within a process only.
[[nodiscard]] inline std::size_t keyed_hash(std::uint64_t value) {
  const auto& [start, factor, last_factor] = detail::hash_secret();
  return static_cast<std::size_t>(
      detail::fold_multiply(detail::fold_multiply(value ^ start, factor), last_factor));
}

/// Returns the hash of a text; the same within a process only.
[[nodiscard]] inline std::size_t keyed_hash(std::string_view bytes) {
  const auto& [start, factor, last_factor] = detail::hash_secret();
  auto hash = start ^ bytes.size();
  for (; bytes.size() > 8; bytes.remove_prefix(8))
    hash = detail::fold_multiply(hash ^ detail::read_block(bytes.data(), 8), factor);
  hash = detail::fold_multiply(hash ^ detail::read_block(bytes.data(), bytes.size()), factor);
  return static_cast<std::size_t>(detail::fold_multiply(hash, last_factor));
}

/// Hashes strings in the standard's unordered containers, which then accept a string_view as key:
///
///     std::unordered_map<std::string, std::int64_t, looptorch::KeyedHash, std::equal_to<>> ids;
struct KeyedHash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view key) const { return keyed_hash(key); }
};

}  // namespace looptorch
