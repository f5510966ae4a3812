// SPDX-License-Identifier: MIT
// Reads from the header of an uncompressed file (WAV, AIFF, AU, W64, CAF, NIST SPHERE) where its samples
// should be and how many bytes they should have. SoundFile compares this with the file's size to detect
// truncation, which libsndfile ignores. Also finds the samples after an unfinished header, such as a pipe or
// an interrupted recorder leaves; libsndfile would find none.
#pragma once

#include <looptorch/audio/sound_file/pieced_file.hpp>
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
#include <vector>

namespace looptorch::audio::detail {

/// The range in which a file should have its samples: `bytes` from `offset` on.
struct AnnouncedData {
  std::uint64_t offset;
  std::uint64_t bytes;
  /// The file with its header's missing size filled in; empty if the header states the size.
  std::vector<FilePiece> finished = {};
  bool is_mpeg = false;  ///< The samples are frames of MPEG audio, in a WAV file.
  /// True if more bytes follow the header than can be read: more than 32 bits count, so that the stated size
  /// is wrong, or in AU more than libsndfile reads.
  bool is_beyond = false;
  bool is_shorten = false;  ///< SPHERE's samples are compressed by Shorten.
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
  std::uint64_t lead = 0;  ///< bytes between the data's size and the samples, which the size counts, too
  std::uint64_t placeholder = 0x7ffff000;  ///< least size that stands for an unknown one: sox's
};

/// Reads a file's header.
class DataHeader {
 public:
  explicit DataHeader(const InputFile& file) : file_(file), magic_(text(0)), form_(text(8)) {}

  /// Returns the range, up to the file's end if the header was never finished. Returns nothing for other
  /// formats and for files without samples.
  std::optional<AnnouncedData> data() {
    if (magic_ == ".snd" || magic_ == "dns.") return of_au(magic_ == ".snd");
    if (magic_ == "NIST") return of_nist();
    const auto layout = this->layout();
    auto data = layout ? in_chunks(*layout) : std::nullopt;
    if (data) data->is_mpeg = is_mpeg_;
    return data;
  }

 private:
  static constexpr std::uint64_t kUnknown = 0xffffffff;
  /// Least size in 64 bits that stands for an unknown one: ffmpeg's is 2^63 - 1, less the chunk's header.
  static constexpr std::uint64_t kLongPlaceholder = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kMpeg = 0x50, kMpegLayer3 = 0x55;  // kinds of samples in WAV
  static constexpr int kMaxChunks = 4096;  // more of them are an attack, not a header

  /// A number in the header.
  struct Field {
    std::uint64_t offset, bytes;
    bool is_big_endian;
  };

  std::optional<ChunkLayout> layout() const {
    const bool is_wave = form_ == "WAVE";
    if ((magic_ == "RIFF" || magic_ == "RF64") && is_wave) return ChunkLayout{.first = 12};
    if (magic_ == "RIFX" && is_wave) return ChunkLayout{.first = 12, .is_big_endian = true};
    if (magic_ == "FORM" && (form_ == "AIFF" || form_ == "AIFC"))
      return ChunkLayout{
          .first = 12, .is_big_endian = true, .data = "SSND", .lead = 8, .placeholder = 0x7f000000};
    if (magic_ == "riff")  // W64: names are 16 bytes
      return ChunkLayout{.first = 40, .name = 16, .size = 8, .align = 8, .counts_itself = true};
    if (magic_ == "caff")
      return ChunkLayout{.first = 8, .size = 8, .align = 1, .is_big_endian = true, .lead = 4};
    return std::nullopt;
  }

  std::optional<AnnouncedData> in_chunks(const ChunkLayout& layout) {
    std::optional<Field> long_size;  // RF64's
    std::uint64_t offset = layout.first;
    for (int i = 0; i < kMaxChunks; ++i) {
      const auto chunk = chunk_at(offset, layout);
      if (!chunk) return std::nullopt;
      if (chunk->name == "ds64" && chunk->bytes >= 16) long_size = {{chunk->begin + 8, 8, false}};
      if (chunk->name == "fmt " && form_ == "WAVE") {
        const auto kind = integer({chunk->begin, 2, layout.is_big_endian});
        is_mpeg_ = kind == kMpeg || kind == kMpegLayer3;
      }
      if (chunk->name == layout.data) return sized(*chunk, layout, long_size);
      if (chunk->bytes > file_.size()) return std::nullopt;
      offset = chunk->next;
    }
    return std::nullopt;
  }

  struct Chunk {
    std::string name;
    std::uint64_t begin, bytes, next;
  };

  /// Returns the chunk whose header is at `offset`, if that is within the file.
  [[nodiscard]] std::optional<Chunk> chunk_at(std::uint64_t offset, const ChunkLayout& layout) const {
    const std::uint64_t header = layout.name + layout.size;
    if (offset + header > file_.size()) return std::nullopt;
    std::uint64_t bytes = integer({offset + layout.name, layout.size, layout.is_big_endian});
    if (layout.counts_itself) bytes -= std::min(bytes, header);
    const std::uint64_t begin = offset + header;
    const std::uint64_t next = (begin + bytes + layout.align - 1) / layout.align * layout.align;
    return Chunk{text(offset), begin, bytes, next};
  }

  std::optional<AnnouncedData> sized(const Chunk& data, const ChunkLayout& layout,
                                     const std::optional<Field>& long_size) {
    Field size{data.begin - layout.size, layout.size, layout.is_big_endian};
    std::uint64_t bytes = data.bytes;
    const std::uint64_t there = file_.size() - data.begin;
    if (bytes == kUnknown && layout.size == 4 && long_size) bytes = integer(size = *long_size);
    if (size.bytes == 4 && there > kUnknown) return beyond(data.begin, there);
    const std::uint64_t placeholder = size.bytes == 8 ? kLongPlaceholder : layout.placeholder;
    const bool is_unknown = bytes >= placeholder && bytes > there;
    if (is_unknown || (bytes <= layout.lead && there > bytes && !are_chunks(data.begin + bytes, layout)))
      return unfinished(data.begin + layout.lead, size, layout.lead,
                        layout.counts_itself ? layout.name + layout.size : 0);
    return AnnouncedData{data.begin, bytes};
  }

  static AnnouncedData beyond(std::uint64_t offset, std::uint64_t bytes) {
    return {.offset = offset, .bytes = bytes, .is_beyond = true};
  }

  /// True if the bytes from `offset` to the file's end are whole chunks.
  [[nodiscard]] bool are_chunks(std::uint64_t offset, const ChunkLayout& layout) const {
    offset = (offset + layout.align - 1) / layout.align * layout.align;
    for (int i = 0; i < kMaxChunks && offset < file_.size(); ++i) {
      const auto chunk = chunk_at(offset, layout);
      if (!chunk || chunk->bytes > file_.size() || chunk->begin + chunk->bytes > file_.size()) return false;
      if (std::ranges::any_of(chunk->name, [](char c) { return c < ' ' || c > '~'; })) return false;
      offset = chunk->next;
    }
    return offset >= file_.size();
  }

  /// Returns the samples from `begin` on, with a header whose `size` counts them and `more` bytes. Skips
  /// copies of the header, which libsndfile and sox write before and after them into a pipe.
  [[nodiscard]] std::optional<AnnouncedData> unfinished(std::uint64_t begin, const Field& size,
                                                        std::uint64_t lead, std::uint64_t more) const {
    std::uint64_t first = begin, end = file_.size();
    const auto is_copy = [&](std::uint64_t at) {
      constexpr std::size_t kCompared = 8;
      return begin >= 2 * kCompared && text(at, kCompared) == text(0, kCompared);
    };
    while (first + begin <= end && is_copy(first)) first += begin;
    while (end >= first + begin && is_copy(end - begin)) end -= begin;
    if (begin > file_.size() || first >= end) return std::nullopt;
    AnnouncedData data{first, end - first};
    const std::uint64_t stated = std::min(data.bytes + lead + more, largest(size));
    data.finished = {{.end = size.offset},
                     {.bytes = encoded(stated, size)},
                     {.begin = size.offset + size.bytes, .end = begin},
                     {.begin = first, .end = end}};
    std::erase_if(data.finished, [](const FilePiece& piece) { return piece.size() == 0; });
    return data;
  }

  [[nodiscard]] static std::uint64_t largest(const Field& field) {
    return field.bytes == 8 ? ~std::uint64_t{0} : kUnknown;
  }

  [[nodiscard]] static std::string encoded(std::uint64_t value, const Field& field) {
    std::string bytes(static_cast<std::size_t>(field.bytes), '\0');
    for (std::size_t i = 0; i < field.bytes; ++i, value >>= 8)
      bytes[field.is_big_endian ? static_cast<std::size_t>(field.bytes) - 1 - i : i] =
          static_cast<char>(value);
    return bytes;
  }

  std::optional<AnnouncedData> of_au(bool is_big_endian) const {
    constexpr std::uint64_t kReadable = 0x7fffffff;
    const Field size{8, 4, is_big_endian};
    const std::uint64_t offset = integer({4, 4, is_big_endian}), bytes = integer(size);
    if (file_.size() > offset && file_.size() - offset > kReadable)
      return beyond(offset, file_.size() - offset);
    if (bytes == kUnknown || (bytes == 0 && file_.size() > offset)) return unfinished(offset, size, 0, 0);
    return AnnouncedData{offset, bytes};
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
    const bool is_shorten = header.find(",embedded-shorten") != header.npos;
    return AnnouncedData{.offset = kHeader, .bytes = bytes, .is_shorten = is_shorten};
  }

  /// Returns the number after the field's type. libsndfile gives numbers the type of a text, others do not.
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

  std::uint64_t integer(const Field& field) const {
    std::array<unsigned char, 8> raw{};
    if (field.offset + field.bytes > file_.size()) return 0;
    file_.read_at(field.offset, raw.data(), field.bytes);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < field.bytes; ++i)
      value = value << 8 | raw[field.is_big_endian ? i : static_cast<std::size_t>(field.bytes) - 1 - i];
    return value;
  }

  const InputFile& file_;
  std::string magic_, form_;
  bool is_mpeg_ = false;
};

}  // namespace looptorch::audio::detail
