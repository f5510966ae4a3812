// SPDX-License-Identifier: MIT
// Counts the frames of an MPEG file (MP3, MP2) to find its length: a length stated in the file may be wrong,
// and many files state none. If the file was joined from several, splits it into parts, each of which one
// decoder can read. Reads the whole file: 3 ms for 10 MB in memory.
#pragma once

#include <looptorch/audio/sound_file/mpeg_frame.hpp>
#include <looptorch/audio/sound_file/mpeg_tags.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::audio::detail {

/// Frames of one kind, without what lies between them.
struct MpegPart {
  MpegFrame kind;
  std::optional<MpegInfo> info = {};
  std::vector<FilePiece> pieces = {};
  std::int64_t frames = 0;

  /// Returns the samples before the sound: the encoder's and the decoder's delay.
  [[nodiscard]] std::int64_t delay() const {
    return info && info->has_delay ? std::min(info->delay + kDecoderDelay, decoded()) : 0;
  }
  /// Returns the samples of the sound.
  [[nodiscard]] std::int64_t samples() const {
    const std::int64_t behind =
        info && is_counted() ? std::max<std::int64_t>(info->padding - kDecoderDelay, 0) : 0;
    return std::max<std::int64_t>(decoded() - delay() - behind, 0);
  }
  /// True if frames that were announced are missing. Some encoders count the frame that announces them.
  [[nodiscard]] bool is_cut() const {
    if (!info || frames >= info->frames) return false;
    return info->bytes > 0 ? bytes() < info->bytes : frames + 1 < info->frames;
  }

  void add(std::uint64_t begin, std::uint64_t end) {
    if (!pieces.empty() && pieces.back().end == begin)
      pieces.back().end = end;
    else
      pieces.push_back({.begin = begin, .end = end});
  }

  std::uint64_t info_bytes = 0;  ///< size of the frame that holds `info`

 private:
  static constexpr std::int64_t kDecoderDelay = 529;

  [[nodiscard]] std::int64_t decoded() const { return frames * kind.samples; }
  [[nodiscard]] bool is_counted() const { return info->frames == frames || info->frames == frames + 1; }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = info_bytes;
    for (const FilePiece& piece : pieces) sum += piece.size();
    return sum;
  }
};

/// The parts of a file, and a sentence if it was truncated.
struct MpegParts {
  std::vector<MpegPart> parts = {};
  std::string cut = {};
};

class MpegScan {
 public:
  explicit MpegScan(const InputFile& file) : bytes_(file) {}

  /// Returns the parts of a file that begins with a frame, after any tags; none if it does not. With
  /// `anywhere` the first kilobytes may be the rest of a frame.
  [[nodiscard]] MpegParts parts(bool anywhere = false) {
    skip_tags();
    if (anywhere)
      at_ = next_frame(at_, std::min(size(), at_ + kRestOfFrame), kSureAnywhere).value_or(size());
    else if (!is_followed(at_, kSure, /*may_be_cut=*/true))
      return {};
    while (at_ < size() && found_.cut.empty()) take();
    for (const MpegPart& part : found_.parts)
      if (found_.cut.empty() && part.is_cut())
        found_.cut =
            message("its header announces ", part.info->frames, " MPEG frames, ", part.frames, " are there");
    std::erase_if(found_.parts, [](const MpegPart& part) { return part.frames == 0; });
    return std::move(found_);
  }

 private:
  static constexpr int kSure = 2, kSureAnywhere = 4;  // frames in a row
  static constexpr std::uint64_t kRestOfFrame = 4096;

  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }

  [[nodiscard]] std::optional<MpegFrame> frame_at(std::uint64_t offset) {
    return mpeg_frame(bytes_.at(offset, MpegFrame::kHeader));
  }

  /// Skips the tags at the beginning, and zeros after them, which their sizes may not count.
  void skip_tags() {
    while (const std::uint64_t tag = mpeg_tag_bytes(bytes_, at_)) {
      at_ += tag;
      while (bytes_.at(at_, 1) == std::string_view("\0", 1)) ++at_;
    }
  }

  /// True if `count` frames of one kind follow one another from `offset` on. Before a tag or at the file's
  /// end fewer suffice, and with `may_be_cut` the last frame may be truncated there.
  [[nodiscard]] bool is_followed(std::uint64_t offset, int count, bool may_be_cut = false) {
    std::optional<MpegFrame> last;
    for (int i = 0; i < count; ++i) {
      const bool is_end = may_be_cut ? offset + MpegFrame::kHeader > size() : offset == size();
      if (i > 0 && (is_end || mpeg_tag_bytes(bytes_, offset) > 0)) return true;
      const auto frame = frame_at(offset);
      if (!frame || (last && frame->kind != last->kind)) return false;
      offset += frame->bytes;
      last = frame;
    }
    return true;
  }

  /// Returns the first of `sure` frames in a row between two offsets.
  [[nodiscard]] std::optional<std::uint64_t> next_frame(std::uint64_t begin, std::uint64_t end, int sure) {
    for (; begin < end; ++begin) {
      const std::string_view bytes = bytes_.at(begin, 1);
      if (bytes == "\xff" && is_followed(begin, sure)) return begin;
      if (mpeg_tag_bytes(bytes_, begin) > 0) return begin;
    }
    return std::nullopt;
  }

  /// Consumes a tag, a frame, or bytes that are neither.
  void take() {
    if (const std::uint64_t tag = mpeg_tag_bytes(bytes_, at_)) {
      at_ += tag;
      return;
    }
    const auto frame = frame_at(at_);
    const bool is_first = found_.parts.empty();
    const bool goes_on = frame && !is_first && frame->kind == found_.parts.back().kind.kind;
    if (goes_on || (frame && is_followed(at_, is_first ? kSure : kSure + 1, /*may_be_cut=*/is_first)))
      return take(*frame, !goes_on);
    if (size() - at_ < MpegFrame::kHeader && bytes_.at(at_, 1) == "\xff")
      found_.cut = "its last MPEG frame ends within its header";
    at_ = next_frame(at_ + 1, size(), kSure).value_or(size());
  }

  void take(const MpegFrame& frame, bool is_new) {
    const std::uint64_t end = at_ + frame.bytes;
    if (end > size()) {
      found_.cut = message("its last MPEG frame has ", size() - at_, " of ", frame.bytes, " bytes");
      return;
    }
    const auto info = info_of(frame);
    if (is_new || info)
      found_.parts.push_back({.kind = frame, .info = info, .info_bytes = info ? frame.bytes : 0});
    if (!info) {
      found_.parts.back().add(at_, end);
      ++found_.parts.back().frames;
    }
    at_ = end;
  }

  [[nodiscard]] std::optional<MpegInfo> info_of(const MpegFrame& frame) {
    return mpeg_info(frame, bytes_.at(at_, static_cast<std::size_t>(frame.bytes)));
  }

  ByteWindow bytes_;
  std::uint64_t at_ = 0;
  MpegParts found_;
};

}  // namespace looptorch::audio::detail
