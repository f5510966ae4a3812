// SPDX-License-Identifier: MIT
// Reads a sound file through libsndfile, for `decode`, `probe` and SampleStream, and corrects what libsndfile
// gets wrong. Finds the exact length where libsndfile estimates it, reads all streams of a file that was
// joined from several, and reads samples after a header that was never finished.
#pragma once

#include <looptorch/audio/resample.hpp>
#include <looptorch/audio/sound_file/announced_data.hpp>
#include <looptorch/audio/sound_file/flac_frame.hpp>
#include <looptorch/audio/sound_file/flac_joined.hpp>
#include <looptorch/audio/sound_file/mpeg_parts.hpp>
#include <looptorch/audio/sound_file/ogg_headers.hpp>
#include <looptorch/audio/sound_file/ogg_links.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>
#include <looptorch/audio/sound_file/sound_part.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/data/datasets/audio_files.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::audio {
namespace detail {

/// True once the warning about an unfinished header was printed. Tests reset it.
inline std::atomic<bool> warned_of_unfinished = false;

/// Warns of a file with an unfinished header, once a process: a corpus may consist of them.
inline void warn_unfinished(const std::filesystem::path& path, std::uint64_t bytes) {
  if (warned_of_unfinished.exchange(true)) return;
  TORCH_WARN(
      "looptorch: ", path.string(), ": its header was never finished, so the ", bytes,
      " bytes up to the file's end count as samples; if it was cut off, that cannot be known. Other files "
      "like it are read in the same way, without a warning");
}

/// True if the last frame's checksum is right; an ID3v1 tag may follow it. Also true for a file that was
/// truncated between two frames. libsndfile silently drops an incomplete last frame of a stream from a pipe,
/// which does not state its length.
[[nodiscard]] inline bool flac_ends_whole(const PiecedFile& file) {
  constexpr std::uint64_t kLargestFrame = std::uint64_t{1} << 22, kTag = 128;
  std::string end(static_cast<std::size_t>(std::min(file.size(), kLargestFrame)), '\0');
  file.read_at(file.size() - end.size(), end.data(), end.size());
  if (end.size() > kTag && std::string_view(end).substr(end.size() - kTag).starts_with("TAG"))
    end.resize(end.size() - kTag);
  const std::string_view bytes = end;
  for (std::size_t at = bytes.size(); at-- > 0;) {
    const std::string_view last = bytes.substr(at);
    const auto frame = flac_frame(last);
    if (frame && last.size() <= frame->limit && crc_of<std::uint16_t>(last, 0x8005) == 0) return true;
  }
  return false;
}

}  // namespace detail

/// Thrown for a file that cannot be used as audio. The message is one sentence that begins with the path.
struct AudioError : Error {
  using Error::Error;
};

/// Thrown for a range without a sample in an intact file.
struct AudioRangeError : AudioError {
  using AudioError::AudioError;
};

namespace detail {

/// More frames per byte mean a broken header: FLAC, which packs silence best, has at most 65535 in 11 bytes.
inline constexpr std::int64_t kMaxFramesPerByte = 8192;

[[noreturn]] inline void refuse(const std::filesystem::path& path, const auto&... reason) {
  throw AudioError(looptorch::message(path.string(), ": ", reason...));
}

/// A file that libsndfile can read, without a sign of truncation.
class SoundFile {
 public:
  /// Messages about the sound begin with `name`; if that is empty, with `path`. Throws FileError for a path
  /// that is no readable file, and AudioError.
  explicit SoundFile(const std::filesystem::path& path, const std::filesystem::path& name = {})
      : path_(path), name_(name.empty() ? path : name), file_(std::make_shared<const InputFile>(path)) {
    find_parts();
    for (SoundPart& part : parts_) measure(part);
    if (frames_ <= 0) refuse(name_, "holds no samples");
    if (frames_ > most_frames())
      refuse(name_, "announces ", frames_, " samples a channel, which is not credible");
  }

  [[nodiscard]] std::int64_t frames() const { return frames_; }
  [[nodiscard]] std::int64_t rate() const { return rate_; }

  /// Returns the frames of `range`, the mean of all channels. Allocates as frames arrive, so that the length
  /// in a damaged header does not cause an out-of-memory error. Ranges that follow one another are decoded
  /// once.
  at::Tensor read(SampleRange range) {
    const std::int64_t count = range.end - range.begin;
    at::Tensor samples = at::empty({std::min(count, kUnseen)}, at::kFloat);
    for (std::int64_t done = 0;;) {
      read(range.begin + done, samples.mutable_data_ptr<float>() + done, samples.numel() - done);
      done = samples.numel();
      if (done == count) return samples;
      samples.resize_({std::min(count, 2 * done)});
    }
  }

 private:
  static constexpr std::int64_t kUnseen = std::int64_t{1} << 24;  // frames allocated unseen: 64 MiB

  [[nodiscard]] std::int64_t most_frames() const {
    return static_cast<std::int64_t>(file_->size()) * kMaxFramesPerByte;
  }

  /// Finds the streams that libsndfile reads one after the other.
  void find_parts() {
    if (file_->size() == 0) refuse(name_, "is an empty file");
    const PiecedFile whole(file_);
    // Ogg: Vorbis, Opus or FLAC, one stream or several.
    if (ogg_begins_at(whole, 0)) return take_ogg(whole, ogg_links(whole));
    // FLAC files joined into one.
    if (const auto begins = FlacScan(*file_).beginnings(); begins.size() > 1) return take_flac(whole, begins);
    // WAV, AIFF, AU, W64, CAF, SPHERE: a header announces the bytes of samples.
    if (auto data = DataHeader(*file_).data()) return take_announced(*std::move(data));
    // MPEG, as MP3, after any tags.
    if (take_mpeg(MpegScan(*file_).parts())) return;
    // All else that libsndfile reads. Given the name, it searches any .mp3 for frames and prints messages.
    const bool by_name = !small_extension(path_).starts_with(".mp");
    parts_.push_back(by_name ? SoundPart(path_) : SoundPart(whole));
    if (parts_.back().open() && !parts_.back().is_mpeg()) return;
    // MPEG that begins with the rest of a frame.
    if (take_mpeg(MpegScan(*file_).parts(/*anywhere=*/true))) return;
    if (parts_.back().is_open() || !by_name) parts_.back() = SoundPart(whole, /*delay=*/0);
  }

  void take_ogg(const PiecedFile& whole, const std::vector<OggLink>& links) {
    std::vector<PiecedFile> streams;
    for (const OggLink& link : links) {
      if (!link.is_whole)
        refuse(name_, "cut off: ", links.size() == 1 ? "it does" : "one of its streams does",
               " not end with the last page of an Ogg stream");
      if (const auto& gap = link.gap)
        refuse(name_, "damaged: at byte ", gap->page.begin, " page ", gap->page.number,
               " of its Ogg stream stands where page ", gap->expected, " should be");
      streams.push_back(whole.range(link.begin, link.end));
    }
    if (streams.size() > 1) unify_opus_rates(streams);
    for (PiecedFile& stream : streams) parts_.emplace_back(std::move(stream));
  }

  void take_flac(const PiecedFile& whole, const std::vector<std::uint64_t>& begins) {
    for (std::size_t i = 0; i < begins.size(); ++i) {
      PiecedFile stream = whole.range(begins[i], i + 1 < begins.size() ? begins[i + 1] : whole.size());
      if (!flac_ends_whole(stream))
        refuse(name_, "cut off: one of the FLAC files that it was joined of, which begins at byte ",
               begins[i], ", does not end with a whole FLAC frame");
      parts_.emplace_back(std::move(stream));
    }
  }

  void take_announced(AnnouncedData data) {
    if (data.is_shorten)
      refuse(name_, "is compressed by Shorten, which libsndfile cannot read", conversion_command());
    const std::uint64_t there = file_->size() - std::min(data.offset, file_->size());
    if (data.bytes > there)
      refuse(name_, "cut off: its header announces ", data.bytes, " bytes of samples, ", there, " are there");
    if (data.is_beyond)
      refuse(name_, "is longer than can be read of its format: ", data.bytes,
             " bytes follow its header; write it as FLAC, W64 or RF64");
    if (data.is_mpeg && take_mpeg(MpegScan(*file_).parts(/*anywhere=*/true))) return;
    if (data.finished.empty()) return void(parts_.emplace_back(path_));
    warn_unfinished(name_, data.bytes);
    parts_.emplace_back(PiecedFile(file_, std::move(data.finished)));
  }

  /// Takes the streams of an MPEG file. Returns false if there are none.
  bool take_mpeg(const MpegParts& mpeg) {
    if (!mpeg.cut.empty()) refuse(name_, "cut off: ", mpeg.cut);
    if (mpeg.parts.empty()) return false;
    parts_.clear();
    for (const MpegPart& part : mpeg.parts)
      parts_.emplace_back(PiecedFile(file_, part.pieces), part.delay(), part.samples());
    return true;
  }

  void measure(SoundPart& part) {
    if (!part.is_open() && !part.open())
      refuse(name_, "not audio that libsndfile can read: ", reason(), conversion());
    if (!part.has_length() && part.is_flac() && !flac_ends_whole(PiecedFile(file_)))
      refuse(name_, "cut off: it does not end with a whole FLAC frame");
    if (!part.has_length() && !part.count(most_frames() + 1))
      refuse(name_, "cut off or damaged: reading ended after ", part.frames(), " samples a channel");
    if (rate_ == 0) rate_ = part.rate();
    if (part.rate() != rate_)
      refuse(name_, "changes its rate from ", rate_, " to ", part.rate(), " Hz after ",
             static_cast<double>(frames_) / static_cast<double>(rate_),
             " s; write it at one rate first, as `ffmpeg -i IN OUT.flac` does");
    frames_ += part.frames();
    if (parts_.size() > 1) part.close();
  }

  /// Returns libsndfile's reason, reworded if it misleads: its MP3 reader reports a file without MPEG frames
  /// as missing.
  static std::string_view reason() {
    const std::string_view reported = sf_strerror(nullptr);
    if (reported.starts_with("File does not exist")) return "its format is not recognised";
    if (reported.find("SF_INFO struct incomplete") != reported.npos)
      return "its header states a rate or a number of channels that cannot be, or two blocks of samples";
    return reported;
  }

  /// Returns the command that converts a file of a kind that libsndfile does not read; empty if none is
  /// known.
  [[nodiscard]] std::string conversion() const {
    struct Kind {
      std::size_t at;
      std::string_view bytes, name;
    };
    static constexpr Kind kKinds[] = {{4, "ftyp", "M4A or MP4"},
                                      {0, "\xff\xf1", "AAC"},
                                      {0, "\xff\xf9", "AAC"},
                                      {0, "\x30\x26\xb2\x75", "WMA or WMV"},
                                      {0, "\x1a\x45\xdf\xa3", "WebM or Matroska"},
                                      {0, "#!AMR", "AMR"}};
    char begin[12] = {};
    file_->read_at(0, begin, std::min<std::uint64_t>(file_->size(), sizeof begin));
    const std::string_view bytes(begin, sizeof begin);
    const auto* const kind = std::find_if(std::begin(kKinds), std::end(kKinds), [bytes](const Kind& each) {
      return bytes.substr(each.at).starts_with(each.bytes);
    });
    if (kind == std::end(kKinds)) return {};
    return looptorch::message("; it is ", kind->name, conversion_command());
  }

  [[nodiscard]] std::string conversion_command() const {
    const std::filesystem::path flac = std::filesystem::path(name_).replace_extension(".flac");
    return looptorch::message(": ffmpeg -i \"", name_.string(), "\" \"", flac.string(), "\" converts it");
  }

  void read(std::int64_t first, float* out, std::int64_t count) {
    std::int64_t begin = 0;  // of the part
    for (SoundPart& part : parts_) {
      const std::int64_t end = begin + part.frames();
      const std::int64_t some = std::min(count, end - first);
      if (some > 0) {
        const std::int64_t got = part.read(first - begin, out, some);
        if (got < some)
          refuse(name_, "cut off or damaged: it announces ", frames_,
                 " samples a channel, reading ended after ", first + got);
        if (parts_.size() > 1 && first + some == end) part.close();
        first += some, out += some, count -= some;
      }
      begin = end;
    }
  }

  std::filesystem::path path_, name_;
  std::shared_ptr<const InputFile> file_;
  std::vector<SoundPart> parts_;
  std::int64_t frames_ = 0, rate_ = 0;
};

}  // namespace detail
}  // namespace looptorch::audio
