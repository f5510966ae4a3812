// SPDX-License-Identifier: MIT
// Parses the header of an MPEG audio frame (ISO 11172-3, 13818-3, and the low rates known as MPEG 2.5). Also
// parses the silent frame in which encoders (Xing, LAME, Fraunhofer) write the length of a stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace looptorch::audio::detail {

/// Returns the big-endian number of `count` bytes from `at` on; 0 if they are not there.
[[nodiscard]] inline std::uint64_t big_endian(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  if (at + count > bytes.size()) return 0;
  for (std::size_t i = at; i < at + count; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

struct MpegFrame {
  static constexpr std::size_t kHeader = 4;

  std::uint32_t kind = 0;  ///< version, layer, rate, and mono or not: equal in frames that one decoder reads
  int layer = 0, rate = 0, channels = 0;
  bool is_low = false;  ///< MPEG 2 or 2.5, with half as many samples in layer III
  bool has_checksum = false;
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const MpegFrame&, const MpegFrame&) = default;
};

/// Returns the frame with its header at the start of `bytes`, if any. A free bit rate is not supported.
[[nodiscard]] inline std::optional<MpegFrame> mpeg_frame(std::string_view bytes) {
  using Row = std::array<int, 15>;
  static constexpr std::array<Row, 5> kBitRates{
      Row{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},  // MPEG 1, layer I
      Row{0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},     // layer II
      Row{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},      // layer III
      Row{0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},     // MPEG 2, layer I
      Row{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}};         // layers II and III
  static constexpr std::array<int, 3> kRates{44100, 48000, 32000};
  const auto header = static_cast<std::uint32_t>(big_endian(bytes, 0, MpegFrame::kHeader));
  const std::uint32_t version = header >> 19 & 3, layer = 4 - (header >> 17 & 3);
  const std::uint32_t bit_rate = header >> 12 & 15, rate = header >> 10 & 3;
  if (header >> 21 != 0x7ff || version == 1 || layer == 4 || rate == 3 || bit_rate == 0 || bit_rate == 15)
    return std::nullopt;
  const bool is_low = version != 3, is_mono = (header >> 6 & 3) == 3;
  MpegFrame frame{.kind = (header & 0x001e0c00) | std::uint32_t{is_mono},
                  .layer = static_cast<int>(layer),
                  .rate = kRates[rate] >> (version == 3   ? 0
                                           : version == 2 ? 1
                                                          : 2),
                  .channels = is_mono ? 1 : 2,
                  .is_low = is_low,
                  .has_checksum = (header >> 16 & 1) == 0};
  const std::size_t row = is_low ? (layer == 1 ? 3 : 4) : layer - 1;
  const std::int64_t bits = 1000 * kBitRates[row][bit_rate], padding = header >> 9 & 1;
  frame.samples = layer == 1 ? 384 : layer == 3 && is_low ? 576 : 1152;
  frame.bytes = static_cast<std::uint64_t>(layer == 1 ? (12 * bits / frame.rate + padding) * 4
                                                      : frame.samples / 8 * bits / frame.rate + padding);
  return frame;
}

/// The contents of a frame without sound (Xing, Info, VBRI), which describes the frames after it. A missing
/// value is 0.
struct MpegInfo {
  std::int64_t frames = 0;
  std::uint64_t bytes = 0;              ///< of this frame and those after it
  bool has_delay = false;               ///< the next two are stated
  std::int64_t delay = 0, padding = 0;  ///< samples that the encoder put before and after the sound
};

namespace mpeg {

/// Reads Xing's or LAME's information, with its name at `at`.
inline std::optional<MpegInfo> xing(std::string_view frame, std::size_t at) {
  const std::string_view name = frame.substr(at < frame.size() ? at : frame.size(), 4);
  if (name != "Xing" && name != "Info") return std::nullopt;
  constexpr std::uint64_t kFrames = 1, kBytes = 2, kSeekTable = 4, kQuality = 8;
  constexpr std::size_t kSeekTableBytes = 100, kDelay = 21;
  const std::uint64_t flags = big_endian(frame, at + 4, 4);
  MpegInfo info;
  at += 8;
  const auto next = [&] { return big_endian(frame, (at += 4) - 4, 4); };
  if (flags & kFrames) info.frames = static_cast<std::int64_t>(next());
  if (flags & kBytes) info.bytes = next();
  if (flags & kSeekTable) at += kSeekTableBytes;
  if (flags & kQuality) at += 4;
  if (at >= frame.size() || frame[at] == '\0') return info;  // no encoder's name
  const std::uint64_t both = big_endian(frame, at + kDelay, 3);
  info.has_delay = at + kDelay + 3 <= frame.size();
  info.delay = static_cast<std::int64_t>(both >> 12);
  info.padding = static_cast<std::int64_t>(both & 0xfff);
  return info;
}

/// Reads Fraunhofer's information.
inline std::optional<MpegInfo> vbri(std::string_view frame) {
  constexpr std::size_t kAt = 36, kBytes = 10, kFrames = 14;
  if (frame.size() < kAt + kFrames + 4 || frame.substr(kAt, 4) != "VBRI") return std::nullopt;
  return MpegInfo{.frames = static_cast<std::int64_t>(big_endian(frame, kAt + kFrames, 4)),
                  .bytes = big_endian(frame, kAt + kBytes, 4)};
}

}  // namespace mpeg

/// Returns the frame's information on its stream, if `bytes` hold that instead of sound.
[[nodiscard]] inline std::optional<MpegInfo> mpeg_info(const MpegFrame& frame, std::string_view bytes) {
  if (frame.layer != 3) return std::nullopt;
  const std::size_t side = frame.is_low ? (frame.channels == 1 ? 9 : 17) : (frame.channels == 1 ? 17 : 32);
  auto info = mpeg::xing(bytes, MpegFrame::kHeader + side);
  if (!info && frame.has_checksum) info = mpeg::xing(bytes, MpegFrame::kHeader + 2 + side);
  return info ? info : mpeg::vbri(bytes);
}

}  // namespace looptorch::audio::detail
