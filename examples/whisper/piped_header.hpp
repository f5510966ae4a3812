// SPDX-License-Identifier: MIT
// What a pipe begins with: a file, of which `sox talk.mp3 -t wav - | whisper_transcribe -` writes one, or raw
// samples. A header that was taken for samples would be heard as a click, and the rest at a wrong rate.
#pragma once

#include <looptorch/audio/clip_limits.hpp>
#include <looptorch/audio/sound_file/mpeg_frame.hpp>
#include <looptorch/audio/sound_file/ogg_pages.hpp>
#include <looptorch/base/error.hpp>

#include "pcm_input.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace whisper {

namespace detail {

/// Returns the little-endian number of `count` bytes from `at` on.
inline std::uint64_t number_at(std::string_view bytes, std::size_t at, int count) {
  return looptorch::audio::detail::little_endian(reinterpret_cast<const unsigned char*>(bytes.data() + at),
                                                 count);
}

/// Returns the samples that a WAV header's `fmt ` chunk announces, if a pipe of raw ones could have them.
inline std::optional<PcmFormat> pcm_format(std::string_view chunk) {
  constexpr std::uint64_t kIntegers = 1, kFloats = 3, kExtensible = 0xfffe;
  if (chunk.size() < 16) return std::nullopt;
  auto kind = number_at(chunk, 0, 2);
  const auto bits = number_at(chunk, 14, 2);
  if (kind == kExtensible && chunk.size() >= 40) kind = number_at(chunk, 24, 2);
  PcmFormat format{.sample_rate = static_cast<std::int64_t>(number_at(chunk, 4, 4)),
                   .samples = kind == kFloats ? "f32le" : "s16le",
                   .channels = static_cast<std::int64_t>(number_at(chunk, 2, 2))};
  const bool fits = (kind == kIntegers && bits == 16) || (kind == kFloats && bits == 32);
  if (!fits || format.channels < 1 || format.sample_rate < 1 || number_at(chunk, 12, 2) != format.bytes())
    return std::nullopt;
  return format;
}

/// Reads the header of a WAV file whose samples need no decoding, and returns true; false for other kinds.
inline bool take_wav_header(PcmReader& reader) {
  constexpr std::uint64_t kUnknown = 0x7ffff000;  // sizes from here on are those of a pipe, and 0
  std::optional<PcmFormat> format;
  for (std::size_t at = 12; at < PcmReader::kMostPeeked;) {
    const auto header = reader.peek(at + 8);
    if (header.size() < at + 8) return false;
    const auto name = header.substr(at, 4);
    const bool is_data = name == "data", is_format = name == "fmt ";
    const auto size = number_at(header, at + 4, 4);
    at += 8;
    if (is_data && format) {
      const bool is_known = size > 0 && size < kUnknown;
      reader.take_header(at, *format, is_known ? std::optional(size) : std::nullopt);
      return true;
    }
    if (is_data || size > PcmReader::kMostPeeked) return false;
    const auto chunk = reader.peek(at + size);
    if (is_format && chunk.size() >= at + size) format = pcm_format(chunk.substr(at, size));
    at += size + size % 2;
  }
  return false;
}

/// True if frames of MPEG audio follow one another from the beginning on. Waits for the bytes of three.
inline bool begins_with_frames(PcmReader& reader) {
  using looptorch::audio::detail::mpeg_frame, looptorch::audio::detail::MpegFrame;
  std::size_t at = 0;
  std::uint32_t kind = 0;
  for (int i = 0; i < 3; ++i) {
    const auto bytes = reader.peek(at + MpegFrame::kHeader);
    if (i > 0 && bytes.size() == at) return true;
    const auto frame = bytes.size() < at ? std::nullopt : mpeg_frame(bytes.substr(at));
    if (!frame || (i > 0 && frame->kind != kind)) return false;
    kind = frame->kind;
    at += static_cast<std::size_t>(frame->bytes);
  }
  return true;
}

/// True if `bytes` begin with `magic`, in which a question mark stands for any byte.
inline bool matches(std::string_view bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin(),
                                                    [](char a, char b) { return a == '?' || a == b; });
}

/// Throws ClipError for a file that libsndfile does not read. Heard as samples, it would be noise.
inline void refuse_container(std::string_view bytes) {
  constexpr std::array<std::pair<std::string_view, const char*>, 6> kOthers{
      {{"????ftyp", "MP4"},
       {"\x1a\x45\xdf\xa3", "Matroska or WebM"},
       {"RIFF????AVI ", "AVI"},
       {"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"},
       {"FLV\x01", "FLV"},
       {"#!AMR", "AMR"}}};
  for (const auto& [magic, name] : kOthers)
    if (matches(bytes, magic))
      throw looptorch::audio::ClipError(looptorch::message(
          "-: begins as ", name,
          ", which libsndfile does not read; put `ffmpeg -i - -f wav - |` before this program"));
}

}  // namespace detail

/// Returns true if the pipe holds a file that is to be read as a whole. False if samples follow: those of
/// `reader`'s format or, behind the header of a WAV file, that it now has. Throws ClipError for a file that
/// cannot be read.
inline bool begins_as_file(PcmReader& reader) {
  using namespace std::string_view_literals;
  constexpr std::array kFiles{"RIFF????WAVE"sv,         "RIFX????WAVE"sv, "RF64????WAVE"sv, "FORM????AIFF"sv,
                              "FORM????AIFC"sv,         "fLaC"sv,         "OggS\0"sv,       "caff\0\1"sv,
                              "riff\x2e\x91\xcf\x11"sv, "NIST_1A\n"sv,    ".snd\0\0"sv};
  const auto bytes = reader.peek(12);
  detail::refuse_container(bytes);
  if (detail::matches(bytes, kFiles.front())) return !detail::take_wav_header(reader);
  if (std::ranges::any_of(kFiles, [&](auto magic) { return detail::matches(bytes, magic); })) return true;
  const auto is_size = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (bytes.starts_with("ID3") && bytes.size() >= 10) return std::ranges::all_of(bytes.substr(6, 4), is_size);
  return detail::begins_with_frames(reader);
}

}  // namespace whisper
