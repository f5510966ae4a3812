// SPDX-License-Identifier: MIT
// Presents ranges of a file and bytes in memory to libsndfile as one file, without a copy on disk. SoundFile
// uses it for files that libsndfile would not read to their end: of several recordings joined into one file
// it presents one after the other, and for a recording that was interrupted it completes the header. OggSeek
// uses it to put later pages right after a stream's headers.
#pragma once

#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::audio::detail {

/// Bytes in memory or, without any, a range of the file.
struct FilePiece {
  std::string bytes = {};
  std::uint64_t begin = 0, end = 0;

  [[nodiscard]] std::uint64_t size() const { return bytes.empty() ? end - begin : bytes.size(); }
};

/// The pieces as one file. Reads throw FileError.
class PiecedFile {
 public:
  PiecedFile(std::shared_ptr<const InputFile> file, std::vector<FilePiece> pieces)
      : file_(std::move(file)), pieces_(std::move(pieces)) {
    for (const FilePiece& piece : pieces_) ends_.push_back(size() + piece.size());
  }
  /// The whole file.
  explicit PiecedFile(const std::shared_ptr<const InputFile>& file)
      : PiecedFile(file, {{.end = file->size()}}) {}

  [[nodiscard]] std::uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  /// Reads `size` bytes from `offset` on. Throws FileError if the file ends before that.
  void read_at(std::uint64_t offset, void* data, std::size_t size) const {
    auto* out = static_cast<char*>(data);
    if (offset > this->size() || size > this->size() - offset)
      throw FileError(message(file_->path().string(), ": ends at byte ", this->size(), ", too early"));
    auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
    for (; size > 0; ++i) {
      const FilePiece& piece = pieces_[i];
      const std::uint64_t within = offset - (ends_[i] - piece.size());
      const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(size, ends_[i] - offset));
      if (piece.bytes.empty())
        file_->read_at(piece.begin + within, out, some);
      else
        std::memcpy(out, piece.bytes.data() + within, some);
      out += some;
      offset += some;
      size -= some;
    }
  }

  /// Returns `before`, followed by the bytes from `begin` to `end`.
  [[nodiscard]] PiecedFile range(std::uint64_t begin, std::uint64_t end, std::string before = {}) const {
    std::vector<FilePiece> pieces;
    if (!before.empty()) pieces.push_back({.bytes = std::move(before)});
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const std::uint64_t piece_begin = ends_[i] - pieces_[i].size();
      const std::uint64_t from = std::max(begin, piece_begin), to = std::min(end, ends_[i]);
      if (from < to) pieces.push_back(cut(pieces_[i], from - piece_begin, to - piece_begin));
    }
    return {file_, std::move(pieces)};
  }

 private:
  static FilePiece cut(const FilePiece& piece, std::uint64_t from, std::uint64_t to) {
    if (piece.bytes.empty()) return {.begin = piece.begin + from, .end = piece.begin + to};
    return {.bytes = piece.bytes.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from))};
  }

  std::shared_ptr<const InputFile> file_;
  std::vector<FilePiece> pieces_;
  std::vector<std::uint64_t> ends_;  // of each piece, in the whole
};

}  // namespace looptorch::audio::detail
