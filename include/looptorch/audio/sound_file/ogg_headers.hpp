// SPDX-License-Identifier: MIT
// Extracts the headers of a Vorbis or Opus stream. A decoder needs them even if it starts in the middle, so
// OggSeek gives libsndfile the headers followed by later pages. libsndfile's own seek is not used, since it
// can end at another position than it reports (libsndfile's issues 794 and 885).
#pragma once

#include <looptorch/audio/sound_file/ogg_pages.hpp>
#include <looptorch/audio/sound_file/pieced_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::audio::detail {

inline constexpr std::size_t kOggPacket = OggPage::kHeader + 1;  // a first page holds one short packet

/// Writes the checksum of the first page of `bytes`: CRC-32 with 0x04c11db7, not reflected, from 0.
inline void sign_first_page(std::string& bytes) {
  constexpr std::size_t kChecksum = 22;
  const std::size_t end = kOggPacket + static_cast<unsigned char>(bytes[kOggPacket - 1]);
  for (std::size_t i = 0; i < 4; ++i) bytes[kChecksum + i] = 0;
  std::uint32_t sum = 0;
  for (const char each : std::string_view(bytes).substr(0, end)) {
    sum ^= std::uint32_t{static_cast<unsigned char>(each)} << 24;
    for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7U : 0U);
  }
  for (std::size_t i = 0; i < 4; ++i) bytes[kChecksum + i] = static_cast<char>(sum >> 8 * i);
}

/// True for a stream of Opus, by its first page.
[[nodiscard]] inline bool is_opus_page(std::string_view bytes) {
  constexpr std::size_t kHead = 19;  // bytes of the packet
  return bytes.size() >= kOggPacket + kHead && bytes.substr(kOggPacket, 8) == "OpusHead";
}

/// Sets the rate in the headers of Opus streams to the highest of them, at which libsndfile then decodes all.
/// Opus can be decoded at any rate: the header only states that of the sound before encoding.
inline void unify_opus_rates(std::vector<PiecedFile>& streams) {
  constexpr std::size_t kRate = kOggPacket + 12;
  std::vector<std::string> pages;
  std::string highest(4, '\0');  // little-endian
  const auto rate_of = [](std::string_view bytes) {
    return little_endian(reinterpret_cast<const unsigned char*>(bytes.data()), 4);
  };
  for (const PiecedFile& stream : streams) {
    const auto page = ogg_page_at(stream, 0);
    std::string& bytes = pages.emplace_back(page ? static_cast<std::size_t>(page->end) : 0, '\0');
    stream.read_at(0, bytes.data(), bytes.size());
    if (!is_opus_page(bytes)) return;
    highest =
        std::max(highest, bytes.substr(kRate, 4), [&](auto& a, auto& b) { return rate_of(a) < rate_of(b); });
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const std::size_t end = pages[i].size();
    pages[i].replace(kRate, highest.size(), highest);
    sign_first_page(pages[i]);
    streams[i] = streams[i].range(end, streams[i].size(), std::move(pages[i]));
  }
}

/// The headers of a stream of Vorbis or Opus.
class OggHeaders {
 public:
  OggHeaders(const PiecedFile& file, const OggIndex& index)
      : bytes_(static_cast<std::size_t>(index.headers()), '\0') {
    file.read_at(0, bytes_.data(), bytes_.size());
    if (is_opus_page(bytes_)) take_pre_skip();
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

  /// Returns the samples at 48 kHz that an Opus decoder drops at the stream's beginning. `bytes` states 0
  /// instead, since it precedes later pages.
  [[nodiscard]] std::int64_t pre_skip() const { return pre_skip_; }

 private:
  static constexpr std::size_t kPreSkip = kOggPacket + 10;

  [[nodiscard]] unsigned char& byte(std::size_t i) { return reinterpret_cast<unsigned char&>(bytes_[i]); }

  void take_pre_skip() {
    pre_skip_ = static_cast<std::int64_t>(little_endian(&byte(kPreSkip), 2));
    byte(kPreSkip) = byte(kPreSkip + 1) = 0;
    sign_first_page(bytes_);
  }

  std::string bytes_;
  std::int64_t pre_skip_ = 0;
};

}  // namespace looptorch::audio::detail
