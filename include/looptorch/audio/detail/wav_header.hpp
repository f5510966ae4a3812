// SPDX-License-Identifier: MIT
// How many bytes of samples a WAV file announces: libsndfile shortens a file that was cut off without a word.
#pragma once

#include <looptorch/state/file.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace looptorch::audio::detail {

/// Where the samples of a WAV file should be: `bytes` from `offset` on.
struct WavData {
  std::uint64_t offset;
  std::uint64_t bytes;
};

/// Walks the chunks of RIFF, RIFX (big-endian) and RF64 (64-bit sizes) files.
class WavHeader {
 public:
  explicit WavHeader(const InputFile& file) : file_(file) {}

  /// Nothing for other formats, without a data chunk, and for headers written by a pipe, which did not know
  /// the size.
  std::optional<WavData> data() {
    if (!is_wav()) return std::nullopt;
    std::uint64_t offset = 12;
    while (const auto chunk = chunk_at(offset)) {
      if (chunk->id == "ds64" && chunk->bytes >= 16) long_size_ = integer(offset + 16, 8);
      if (chunk->id == "data") return sized(offset + 8, chunk->bytes);
      offset += 8 + chunk->bytes + chunk->bytes % 2;
    }
    return std::nullopt;
  }

 private:
  struct Chunk {
    std::string_view id;
    std::uint64_t bytes;
  };

  bool is_wav() {
    if (file_.size() < 12) return false;
    const std::string_view riff = text(0);
    is_big_endian_ = riff == "RIFX";
    return (riff == "RIFF" || riff == "RF64" || is_big_endian_) && text(8) == "WAVE";
  }

  std::optional<Chunk> chunk_at(std::uint64_t offset) {
    if (offset + 8 > file_.size()) return std::nullopt;
    const std::uint64_t bytes = integer(offset + 4, 4);
    return Chunk{text(offset), bytes};
  }

  std::optional<WavData> sized(std::uint64_t offset, std::uint64_t bytes) const {
    constexpr std::uint64_t kPiped = 0x7ffff000;  // sox; ffmpeg and others write 0xffffffff
    if (bytes == 0xffffffff && long_size_) return WavData{offset, *long_size_};
    return bytes >= kPiped ? std::nullopt : std::optional(WavData{offset, bytes});
  }

  std::string_view text(std::uint64_t offset) {
    file_.read_at(offset, text_.data(), text_.size());
    return {text_.data(), text_.size()};
  }

  std::uint64_t integer(std::uint64_t offset, std::size_t bytes) const {
    std::array<unsigned char, 8> raw{};
    if (offset + bytes > file_.size()) return 0;
    file_.read_at(offset, raw.data(), bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | raw[is_big_endian_ ? i : bytes - 1 - i];
    return value;
  }

  const InputFile& file_;
  std::array<char, 4> text_{};
  bool is_big_endian_ = false;
  std::optional<std::uint64_t> long_size_;
};

}  // namespace looptorch::audio::detail
