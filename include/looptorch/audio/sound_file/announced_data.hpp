// SPDX-License-Identifier: MIT
// Reads from the header how many bytes of samples a file should have, for formats without compression (WAV,
// AIFF, AU, W64, CAF, NIST SPHERE). libsndfile silently shortens one that was truncated.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace looptorch::audio::detail {

/// The range in which a file should have its samples: `bytes` from `offset` on.
struct AnnouncedData {
  std::uint64_t offset;
  std::uint64_t bytes;
};

/// The layout of chunks, each with a name and a size, in a family of formats.
struct ChunkLayout {
  std::uint64_t first;      ///< offset of the first chunk
  std::uint64_t name = 4;   ///< bytes of a name, of which the first 4 are compared
  std::uint64_t size = 4;   ///< bytes of a size
  std::uint64_t align = 2;  ///< alignment of the next chunk
  bool is_big_endian = false;
  bool counts_itself = false;  ///< the size includes name and size
  std::string_view data = "data";
};

/// Reads a file's header.
class DataHeader {
 public:
  explicit DataHeader(const InputFile& file) : file_(file), magic_(text(0)), form_(text(8)) {}

  /// Returns the range, or nothing for other formats, for files without samples, and for headers written by a
  /// pipe, which did not know the size.
  std::optional<AnnouncedData> data() {
    if (magic_ == ".snd" || magic_ == "dns.") return of_au(magic_ == ".snd");
    if (magic_ == "NIST") return of_nist();
    if (const auto layout = this->layout()) return in_chunks(*layout);
    return std::nullopt;
  }

 private:
  static constexpr std::uint64_t kUnknown = 0xffffffff;
  static constexpr int kMaxChunks = 4096;  // more of them are an attack, not a header

  std::optional<ChunkLayout> layout() const {
    const bool is_wave = form_ == "WAVE";
    if ((magic_ == "RIFF" || magic_ == "RF64") && is_wave) return ChunkLayout{.first = 12};
    if (magic_ == "RIFX" && is_wave) return ChunkLayout{.first = 12, .is_big_endian = true};
    if (magic_ == "FORM" && (form_ == "AIFF" || form_ == "AIFC"))
      return ChunkLayout{.first = 12, .is_big_endian = true, .data = "SSND"};
    if (magic_ == "riff")  // W64: names are 16 bytes
      return ChunkLayout{.first = 40, .name = 16, .size = 8, .align = 8, .counts_itself = true};
    if (magic_ == "caff") return ChunkLayout{.first = 8, .size = 8, .align = 1, .is_big_endian = true};
    return std::nullopt;
  }

  std::optional<AnnouncedData> in_chunks(const ChunkLayout& layout) {
    const std::uint64_t header = layout.name + layout.size;
    std::optional<std::uint64_t> long_size;  // RF64's
    std::uint64_t offset = layout.first;
    for (int chunk = 0; chunk < kMaxChunks && offset + header <= file_.size(); ++chunk) {
      const std::string name = text(offset);
      std::uint64_t bytes = integer(offset + layout.name, layout.size, layout.is_big_endian);
      if (layout.counts_itself) bytes -= std::min(bytes, header);
      offset += header;
      if (name == "ds64" && bytes >= 16) long_size = integer(offset + 8, 8, false);
      if (name == layout.data) return sized(offset, bytes, layout, long_size);
      if (bytes > file_.size()) return std::nullopt;
      offset = (offset + bytes + layout.align - 1) / layout.align * layout.align;
    }
    return std::nullopt;
  }

  static std::optional<AnnouncedData> sized(std::uint64_t offset, std::uint64_t bytes,
                                            const ChunkLayout& layout,
                                            std::optional<std::uint64_t> long_size) {
    constexpr std::uint64_t kPiped = 0x7ffff000;  // sox; ffmpeg and others write 0xffffffff
    if (layout.size == 8)
      return bytes >> 63 ? std::nullopt : std::optional(AnnouncedData{offset, bytes});  // CAF: -1
    if (bytes == kUnknown && long_size) return AnnouncedData{offset, *long_size};
    return bytes >= kPiped ? std::nullopt : std::optional(AnnouncedData{offset, bytes});
  }

  std::optional<AnnouncedData> of_au(bool is_big_endian) const {
    const std::uint64_t offset = integer(4, 4, is_big_endian), bytes = integer(8, 4, is_big_endian);
    return bytes == kUnknown ? std::nullopt : std::optional(AnnouncedData{offset, bytes});
  }

  /// Reads SPHERE's header: text of a fixed size, a line a field: "sample_count -i 48000".
  std::optional<AnnouncedData> of_nist() const {
    constexpr std::uint64_t kHeader = 1024;
    const std::string header = text(0, kHeader);
    std::uint64_t bytes = 1;
    for (const char* field : {"\nchannel_count ", "\nsample_n_bytes ", "\nsample_count "}) {
      const auto value = number_in(header, field);
      if (!value || __builtin_mul_overflow(bytes, *value, &bytes)) return std::nullopt;
    }
    return AnnouncedData{kHeader, bytes};
  }

  /// Returns the number behind the field's type, which libsndfile writes as text where others write a number.
  static std::optional<std::uint64_t> number_in(std::string_view header, std::string_view field) {
    const auto begin = header.find(field);
    const auto space = begin == header.npos ? begin : header.find(' ', begin + field.size());
    if (space == header.npos) return std::nullopt;
    const auto digits = header.substr(space + 1);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() ? std::optional(value) : std::nullopt;
  }

  /// Returns `size` characters, or none beyond the file's end.
  std::string text(std::uint64_t offset, std::size_t size = 4) const {
    std::string characters(size, '\0');
    if (offset + size > file_.size()) return {};
    file_.read_at(offset, characters.data(), size);
    return characters;
  }

  std::uint64_t integer(std::uint64_t offset, std::uint64_t bytes, bool is_big_endian) const {
    std::array<unsigned char, 8> raw{};
    if (offset + bytes > file_.size()) return 0;
    file_.read_at(offset, raw.data(), bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | raw[is_big_endian ? i : bytes - 1 - i];
    return value;
  }

  const InputFile& file_;
  std::string magic_, form_;
};

}  // namespace looptorch::audio::detail
