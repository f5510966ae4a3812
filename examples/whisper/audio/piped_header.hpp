// SPDX-License-Identifier: MIT
// Tells whether a pipe begins with a file's header or with raw samples. `sox talk.mp3 -t wav - |
// whisper_transcribe -` sends a header, for example. Read as samples, a header would sound as a click, and
// the sample rate would be wrong.
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

/// Returns the sample format of a WAV header's `fmt ` chunk, if raw input could have it.
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
  constexpr std::uint64_t kUnknown = 0x7ffff000;  // a pipe's header has a size from here on, or 0
  std::optional<PcmFormat> format;
  for (std::size_t at = 12; at < PcmReader::kMaxPeeked;) {
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
    if (is_data || size > PcmReader::kMaxPeeked) return false;
    const auto chunk = reader.peek(at + size);
    if (is_format && chunk.size() >= at + size) format = pcm_format(chunk.substr(at, size));
    at += size + size % 2;
  }
  return false;
}

/// True if the input begins with three frames, or ends after fewer. `size` returns a frame's length in bytes
/// by its first `header` bytes, or 0 if they begin no frame. Waits for three frames.
template <class Size>
bool begins_with_frames(PcmReader& reader, std::size_t header, Size size) {
  std::size_t at = 0;
  for (int i = 0; i < 3; ++i) {
    const auto bytes = reader.peek(at + header);
    if (i > 0 && bytes.size() == at) return true;
    const std::size_t frame = bytes.size() < at + header ? 0 : size(bytes.substr(at, header));
    if (frame < header) return false;
    at += frame;
  }
  return true;
}

/// True for MPEG audio, whose frames are all of one kind.
inline bool begins_with_mpeg(PcmReader& reader) {
  using looptorch::audio::detail::mpeg_frame, looptorch::audio::detail::MpegFrame;
  std::optional<std::uint32_t> kind;
  return begins_with_frames(reader, MpegFrame::kHeader, [&](std::string_view header) -> std::size_t {
    const auto frame = mpeg_frame(header);
    if (!frame || frame->kind != kind.value_or(frame->kind)) return 0;
    kind = frame->kind;
    return static_cast<std::size_t>(frame->bytes);
  });
}

inline unsigned byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

/// Returns the bytes of an AAC frame (ADTS) that begins with `header`; 0 if none does.
inline std::size_t adts_frame(std::string_view header) {
  if (byte_at(header, 0) != 0xff || (byte_at(header, 1) & 0xf6) != 0xf0) return 0;
  if ((byte_at(header, 2) >> 2 & 15) > 12) return 0;  // the rate
  return (byte_at(header, 3) & 3) << 11 | byte_at(header, 4) << 3 | byte_at(header, 5) >> 5;
}

/// Returns the bytes of the AC-3 or E-AC-3 frame that begins with `header`; 0 if none does.
inline std::size_t ac3_frame(std::string_view header) {
  constexpr std::array<unsigned, 19> kBitRates{32,  40,  48,  56,  64,  80,  96,  112, 128, 160,
                                               192, 224, 256, 320, 384, 448, 512, 576, 640};
  constexpr std::string_view kSync = "\x0b\x77";
  if (!header.starts_with(kSync) || header.substr(2, 2) == kSync) return 0;  // a constant sample repeats it
  const unsigned version = byte_at(header, 5) >> 3, rate = byte_at(header, 4) >> 6;
  if (version > 16) return 0;
  if (version > 10) return 2 * ((byte_at(header, 2) & 7) << 8 | byte_at(header, 3)) + 2;
  const unsigned size = byte_at(header, 4) & 0x3f;
  if (rate == 3 || size / 2 >= kBitRates.size()) return 0;
  const unsigned bits = kBitRates[size / 2];
  return rate == 0 ? 4 * bits : rate == 2 ? 6 * bits : 2 * (bits * 96'000 / 44'100 + size % 2);
}

/// Returns the bytes of an MPEG transport stream's packet with this `header`; 0 if it is none.
inline std::size_t transport_packet(std::string_view header) {
  const bool has_content = byte_at(header, 3) & 0x30, is_damaged = byte_at(header, 1) & 0x80;
  return header.starts_with('G') && has_content && !is_damaged ? 188 : 0;
}

/// True if `bytes` begin with `magic`; a question mark matches any byte.
inline bool matches(std::string_view bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin(),
                                                    [](char a, char b) { return a == '?' || a == b; });
}

[[noreturn]] inline void refuse_piped(const auto&... why) {
  throw looptorch::audio::ClipError(looptorch::message("-: ", why...));
}

/// Throws ClipError for a file that libsndfile does not read. As raw samples it would be noise.
inline void refuse_container(PcmReader& reader) {
  using namespace std::string_view_literals;
  constexpr std::array<std::pair<std::string_view, const char*>, 12> kOthers{
      {{"????ftyp", "MP4"},
       {"\x1a\x45\xdf\xa3", "Matroska or WebM"},
       {"RIFF????AVI ", "AVI"},
       {"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"},
       {"FLV\x01", "FLV"},
       {"#!AMR", "AMR"},
       {".SoX", "SoX's own format"},
       {"XoS.", "SoX's own format"},
       {"wvpk???\0"sv, "WavPack"},
       {"TTA1?\0"sv, "TTA"},
       {"TTA2", "TTA"},
       {"nut/multimed", "NUT"}}};
  const auto refuse = [](const char* name) {
    refuse_piped("begins as ", name,
                 ", which libsndfile does not read; put `ffmpeg -i - -f wav - |` before this program");
  };
  const auto bytes = reader.peek(12);
  for (const auto& [magic, name] : kOthers)
    if (matches(bytes, magic)) refuse(name);
  if (begins_with_frames(reader, 6, adts_frame)) refuse("AAC");
  if (begins_with_frames(reader, 6, ac3_frame)) refuse("AC-3");
  if (begins_with_frames(reader, 4, transport_packet)) refuse("an MPEG transport stream");
}

/// Throws ClipError for text, such as a server's error, and for a damaged file's header.
inline void refuse_damage(PcmReader& reader) {
  const auto bytes = reader.peek(12);
  constexpr std::array<std::string_view, 4> kHeaders{"RIFF", "RIFX", "RF64", "FORM"};
  if (bytes.size() < 12 && std::ranges::any_of(kHeaders, [&](auto name) { return bytes.starts_with(name); }))
    refuse_piped("cut off: it ends within the header of a file, after ", bytes.size(), " bytes");
  if (bytes.starts_with("\xef\xbb\xbfRIFF"))
    refuse_piped("a byte order mark lies before its RIFF header; put `tail -c +4 |` before this program");
  constexpr std::array<std::string_view, 4> kTexts{"<!doctype", "<html", "<?xml", "{"};
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const auto begins = [&](std::string_view text) {
    return bytes.size() >= text.size() && std::ranges::equal(bytes.substr(0, text.size()), text, {}, lower);
  };
  if (bytes.size() < 2 || std::ranges::none_of(kTexts, begins)) return;
  const auto more = reader.peek(32).substr(0, 32);
  if (std::ranges::all_of(more, [](char c) { return (c >= ' ' && c <= '~') || (c >= '\t' && c <= '\r'); }))
    refuse_piped("begins as ", bytes.front() == '{' ? "JSON" : "HTML or XML",
                 ", which is text and no sound; it may be a server's answer instead of the recording");
}

}  // namespace detail

/// Returns true if the pipe holds a file to be read as a whole, false if samples follow. These are raw in
/// `reader`'s format, or a WAV file's, whose format `reader` then has. Throws ClipError for an unreadable
/// file.
inline bool begins_as_file(PcmReader& reader) {
  using namespace std::string_view_literals;
  constexpr std::array kFiles{"RIFF????WAVE"sv,
                              "RIFX????WAVE"sv,
                              "RF64????WAVE"sv,
                              "FORM????AIFF"sv,
                              "FORM????AIFC"sv,
                              "FORM????8SVX"sv,
                              "FORM????16SV"sv,
                              "fLaC"sv,
                              "OggS\0"sv,
                              "caff\0\1"sv,
                              "riff\x2e\x91\xcf\x11"sv,
                              "NIST_1A\n"sv,
                              ".snd\0\0"sv,
                              " paf\0\0\0\0"sv,
                              "fap \0\0\0\0"sv,
                              "\x64\xa3?\0?????\0\0\0"sv,
                              "\x64\xa3?\0????\0\0\0?"sv,
                              "\0?\xa3\x64????\0\0\0?"sv,
                              "Creative Voi"sv,
                              "MATLAB 5.0 M"sv};
  detail::refuse_container(reader);
  detail::refuse_damage(reader);
  const auto bytes = reader.peek(12);
  if (detail::matches(bytes, kFiles.front())) return !detail::take_wav_header(reader);
  if (std::ranges::any_of(kFiles, [&](auto magic) { return detail::matches(bytes, magic); })) return true;
  const auto is_size = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (bytes.starts_with("ID3") && bytes.size() >= 10) return std::ranges::all_of(bytes.substr(6, 4), is_size);
  return detail::begins_with_mpeg(reader);
}

}  // namespace whisper
