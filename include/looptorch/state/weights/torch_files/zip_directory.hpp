// SPDX-License-Identifier: MIT
// Reads the directory of a ZIP archive in memory: where each stored file is. Supports ZIP64. Skips compressed
// files: archives of tensors store theirs uncompressed, so that the data can be mapped.
#pragma once

#include <looptorch/base/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Thrown for an archive that is damaged, or that needs more than this reader knows.
struct ZipError : Error {
  using Error::Error;
};

class ZipDirectory {
 public:
  /// True for the first bytes of an archive.
  [[nodiscard]] static bool begins(std::string_view bytes) { return bytes.starts_with("PK\x03\x04"); }

  /// Throws ZipError for a directory that is not valid, and for entries that reach beyond the bytes.
  explicit ZipDirectory(std::string_view bytes) : bytes_(bytes) {
    const End end = find_end();
    std::uint64_t at = end.begin;
    for (std::uint64_t i = 0; i < end.count; ++i) at = read_entry(at);
  }

  /// Returns the bytes of each uncompressed file, by its name.
  [[nodiscard]] const std::map<std::string, std::string_view>& files() const { return files_; }
  /// Returns the names of the compressed files.
  [[nodiscard]] const std::vector<std::string>& compressed() const { return compressed_; }

 private:
  struct End {
    std::uint64_t begin, count;
  };

  [[noreturn]] static void fail(const std::string& what) { throw ZipError("the archive " + what); }

  [[nodiscard]] std::string_view range(std::uint64_t begin, std::uint64_t size) const {
    if (begin > bytes_.size() || size > bytes_.size() - begin) fail("refers to what lies beyond its end");
    return bytes_.substr(begin, size);
  }
  template <class Number>
  [[nodiscard]] Number number(std::uint64_t at) const {  // little-endian
    Number number;
    std::memcpy(&number, range(at, sizeof number).data(), sizeof number);
    return number;
  }
  [[nodiscard]] bool has(std::uint64_t at, std::uint32_t signature) const {
    return at <= bytes_.size() && bytes_.size() - at >= 4 && number<std::uint32_t>(at) == signature;
  }

  /// Finds the directory by the record at the archive's end, which a comment of up to 64 KB may follow.
  [[nodiscard]] End find_end() const {
    constexpr std::uint64_t kRecord = 22, kMaxComment = 0xFFFF, kLocator = 20;
    if (bytes_.size() < kRecord) fail("is cut off");
    std::uint64_t at = bytes_.size() - kRecord;
    const std::uint64_t least = at - std::min<std::uint64_t>(at, kMaxComment);
    while (!has(at, 0x06054b50)) {
      if (at == least) fail("has no directory: it is cut off, or its download was");
      --at;
    }
    if (at >= kLocator && has(at - kLocator, 0x07064b50)) {  // ZIP64's
      const auto wide = number<std::uint64_t>(at - kLocator + 8);
      if (!has(wide, 0x06064b50)) fail("has a damaged directory");
      return {number<std::uint64_t>(wide + 48), number<std::uint64_t>(wide + 32)};
    }
    return {number<std::uint32_t>(at + 16), number<std::uint16_t>(at + 10)};
  }

  /// Returns where the next entry begins.
  std::uint64_t read_entry(std::uint64_t at) {
    constexpr std::uint64_t kFixed = 46;
    if (!has(at, 0x02014b50)) fail("has a damaged directory");
    const auto flags = number<std::uint16_t>(at + 8), method = number<std::uint16_t>(at + 10);
    const auto name_size = number<std::uint16_t>(at + 28), extra_size = number<std::uint16_t>(at + 30);
    std::string name(range(at + kFixed, name_size));
    std::uint64_t size = number<std::uint32_t>(at + 24), local = number<std::uint32_t>(at + 42);
    read_wide(range(at + kFixed + name_size, extra_size), number<std::uint32_t>(at + 20), size, local);
    const std::uint64_t next = at + kFixed + name_size + extra_size + number<std::uint16_t>(at + 32);
    if (method != 0 || (flags & 1) != 0) {  // compressed or encrypted
      compressed_.push_back(std::move(name));
      return next;
    }
    if (!has(local, 0x04034b50)) fail(message("has no \"", name, "\" where its directory says"));
    const std::uint64_t begin =
        local + 30 + number<std::uint16_t>(local + 26) + number<std::uint16_t>(local + 28);
    if (!files_.emplace(std::move(name), range(begin, size)).second) fail("holds a file twice");
    return next;
  }

  /// Reads ZIP64's sizes from the extra field, which has only the sizes that do not fit into 32 bits.
  static void read_wide(std::string_view extra, std::uint64_t compressed, std::uint64_t& size,
                        std::uint64_t& local) {
    constexpr std::uint64_t kDoesNotFit = 0xFFFFFFFF;
    while (extra.size() >= 4) {
      std::uint16_t id, length;
      std::memcpy(&id, extra.data(), 2), std::memcpy(&length, extra.data() + 2, 2);
      extra.remove_prefix(4);
      if (length > extra.size()) fail("has a damaged directory");
      std::string_view field = extra.substr(0, length);
      extra.remove_prefix(length);
      if (id != 1) continue;
      const auto next = [&](std::uint64_t& value) {
        if (field.size() < 8) fail("has a damaged directory");
        std::memcpy(&value, field.data(), 8);
        field.remove_prefix(8);
      };
      if (size == kDoesNotFit) next(size);
      if (compressed == kDoesNotFit) next(compressed);
      if (local == kDoesNotFit) next(local);
    }
  }

  std::string_view bytes_;
  std::map<std::string, std::string_view> files_;
  std::vector<std::string> compressed_;
};

}  // namespace looptorch::detail
