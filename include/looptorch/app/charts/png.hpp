// SPDX-License-Identifier: MIT
// Writes pictures as PNG files (RFC 2083) without a library: uncompressed, three bytes a pixel.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/hash/crc32.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace looptorch::app {

/// Returns the bytes of a PNG file that shows `pixels`: uint8 `[rows, columns, 3]`, red, green, blue, the top
/// row first. Throws UsageError for another type or shape.
[[nodiscard]] std::string png_of(const at::Tensor& pixels);

/// Writes a PNG file in one step. Throws FileError, and what png_of throws.
inline void write_png(const std::filesystem::path& file, const at::Tensor& pixels) {
  write_file_atomically(file, png_of(pixels));
}

/// Writes a PNG file in one step. Warns and returns false if that fails, as on a full disk, so that the run
/// continues without its picture.
inline bool try_write_png(const std::filesystem::path& file, const at::Tensor& pixels) {
  try {
    write_png(file, pixels);
    return true;
  } catch (const FileError& error) {
    TORCH_WARN("looptorch: ", error.what(), ". The run goes on without this picture");
    return false;
  }
}

namespace detail {

/// Returns the checksum of zlib streams.
inline std::uint32_t adler32(std::string_view bytes) {
  constexpr std::uint32_t kPrime = 65521;
  std::uint32_t sum = 1, sum_of_sums = 0;
  for (const char byte : bytes) {
    sum = (sum + static_cast<unsigned char>(byte)) % kPrime;
    sum_of_sums = (sum_of_sums + sum) % kPrime;
  }
  return sum_of_sums << 16 | sum;
}

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

inline std::string zlib_stored(std::string_view bytes) {
  constexpr std::size_t kLongest = 65535;
  std::string stream = "\x78\x01";
  for (std::size_t begin = 0;; begin += kLongest) {
    const auto block = bytes.substr(begin, kLongest);
    const bool is_last = begin + block.size() == bytes.size();
    const auto length = static_cast<std::uint16_t>(block.size());
    stream += is_last ? '\x01' : '\x00';
    for (const std::uint16_t number : {length, static_cast<std::uint16_t>(~length)}) {
      stream += static_cast<char>(number & 0xFF);
      stream += static_cast<char>(number >> 8);
    }
    stream += block;
    if (is_last) return stream + big_endian(adler32(bytes));
  }
}

inline std::string png_chunk(std::string_view type, std::string_view data) {
  const auto body = std::string(type).append(data);
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(looptorch::detail::crc32<looptorch::detail::kCrc32>(body));
}

}  // namespace detail

inline std::string png_of(const at::Tensor& pixels) {
  if (pixels.scalar_type() != at::kByte || pixels.dim() != 3 || pixels.size(2) != 3 || pixels.numel() == 0)
    throw UsageError(
        message("png_of: expected bytes [rows, columns, 3], got ", pixels.toString(), " ", pixels.sizes()));
  const auto rows = pixels.size(0), width = 3 * pixels.size(1);
  // Each row begins with its filter, 0: none.
  const auto filtered = at::constant_pad_nd(pixels.cpu().reshape({rows, width}), {1, 0}).contiguous();
  const std::string_view bytes(reinterpret_cast<const char*>(filtered.const_data_ptr<std::uint8_t>()),
                               static_cast<std::size_t>(filtered.numel()));
  using namespace std::string_view_literals;
  const auto size = detail::big_endian(static_cast<std::uint32_t>(pixels.size(1))) +
                    detail::big_endian(static_cast<std::uint32_t>(rows));
  return std::string("\x89PNG\r\n\x1A\n"sv)
      .append(detail::png_chunk("IHDR", size + std::string("\x08\x02\x00\x00\x00"sv)))  // 8 bits, RGB
      .append(detail::png_chunk("IDAT", detail::zlib_stored(bytes)))
      .append(detail::png_chunk("IEND", {}));
}

}  // namespace looptorch::app
