// SPDX-License-Identifier: MIT
// The end of an Ogg file as a file of its own: its headers, then its pages from a chosen one on. libsndfile
// decodes it like any other. (Its own seek can end at another position than it reports: its issues 794 and
// 885.)
#pragma once

#include <looptorch/audio/sound_file/ogg_pages.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace looptorch::audio::detail {

/// The headers of a stream of Vorbis or Opus.
class OggHeaders {
 public:
  OggHeaders(const InputFile& file, const OggIndex& index)
      : bytes_(static_cast<std::size_t>(index.headers()), '\0') {
    file.read_at(0, bytes_.data(), bytes_.size());
    if (is_opus()) take_pre_skip();
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

  /// Returns the samples at 48 kHz that an Opus decoder drops at the stream's beginning. In `bytes` they are
  /// 0, since a tail does not begin there.
  [[nodiscard]] std::int64_t pre_skip() const { return pre_skip_; }

 private:
  static constexpr std::size_t kPacket = OggPage::kHeader + 1;  // a first page holds one short packet
  static constexpr std::size_t kPreSkip = kPacket + 10, kChecksum = 22;

  [[nodiscard]] bool is_opus() const {
    constexpr std::string_view kMagic = "OpusHead";
    return bytes_.size() > kPreSkip + 2 && bytes_.compare(kPacket, kMagic.size(), kMagic) == 0;
  }
  [[nodiscard]] unsigned char& byte(std::size_t i) { return reinterpret_cast<unsigned char&>(bytes_[i]); }

  void take_pre_skip() {
    pre_skip_ = static_cast<std::int64_t>(little_endian(&byte(kPreSkip), 2));
    byte(kPreSkip) = byte(kPreSkip + 1) = 0;
    const std::size_t end = kPacket + byte(kPacket - 1);
    for (std::size_t i = 0; i < 4; ++i) byte(kChecksum + i) = 0;
    const std::uint32_t sum = checksum(std::string_view(bytes_).substr(0, end));
    for (std::size_t i = 0; i < 4; ++i) byte(kChecksum + i) = static_cast<unsigned char>(sum >> 8 * i);
  }

  /// Returns Ogg's checksum: CRC-32 with 0x04c11db7, not reflected, from 0.
  [[nodiscard]] static std::uint32_t checksum(std::string_view page) {
    std::uint32_t sum = 0;
    for (const char each : page) {
      sum ^= std::uint32_t{static_cast<unsigned char>(each)} << 24;
      for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7U : 0U);
    }
    return sum;
  }

  std::string bytes_;
  std::int64_t pre_skip_ = 0;
};

/// The tail as a file. It must not move while libsndfile reads it.
class OggTail {
 public:
  OggTail(const InputFile& file, const OggHeaders& headers, const OggPage& first)
      : file_(file), headers_(headers.bytes()), first_(first.begin) {}
  OggTail(const OggTail&) = delete;
  OggTail& operator=(const OggTail&) = delete;

  /// Returns libsndfile's handle, which `this` must outlive; null if it cannot be read.
  [[nodiscard]] SNDFILE* open(SF_INFO& info) {
    SF_VIRTUAL_IO io{
        .get_filelen = [](void* tail) { return of(tail).size(); },
        .seek = [](sf_count_t to, int from, void* tail) { return of(tail).seek(to, from); },
        .read = [](void* out, sf_count_t count, void* tail) { return of(tail).read(out, count); },
        .write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; },
        .tell = [](void* tail) { return of(tail).at_; }};
    return sf_open_virtual(&io, SFM_READ, &info, this);
  }

 private:
  static OggTail& of(void* tail) { return *static_cast<OggTail*>(tail); }

  [[nodiscard]] sf_count_t headers() const { return static_cast<sf_count_t>(headers_.size()); }
  [[nodiscard]] sf_count_t size() const { return headers() + static_cast<sf_count_t>(file_.size() - first_); }

  sf_count_t seek(sf_count_t to, int from) {
    const sf_count_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? at_ : size();
    return at_ = std::clamp<sf_count_t>(base + to, 0, size());
  }
  /// Reads bytes. An unreadable file counts as its end, since no exception may pass through libsndfile.
  sf_count_t read(void* out, sf_count_t count) noexcept try {
    count = std::min(count, size() - at_);
    const sf_count_t of_headers = std::clamp<sf_count_t>(headers() - at_, 0, count),
                     rest = count - of_headers;
    auto* bytes = static_cast<char*>(out);
    if (of_headers > 0)
      headers_.copy(bytes, static_cast<std::size_t>(of_headers), static_cast<std::size_t>(at_));
    if (rest > 0)
      file_.read_at(first_ + static_cast<std::uint64_t>(at_ + of_headers - headers()), bytes + of_headers,
                    static_cast<std::size_t>(rest));
    at_ += count;
    return count;
  } catch (const Error&) {
    return 0;
  }

  const InputFile& file_;
  const std::string& headers_;
  std::uint64_t first_;
  sf_count_t at_ = 0;
};

}  // namespace looptorch::audio::detail
