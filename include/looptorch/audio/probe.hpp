// SPDX-License-Identifier: MIT
// Finds the length of an audio file without decoding it, except for FLAC from a pipe, which states no length.
// Use it to check a corpus before training. Takes 20 us for WAV, 50 to 100 us for FLAC of any length, and 40
// to 300 us for 10 s of MP3, Opus or Vorbis; decoding takes milliseconds.
#pragma once

#include <looptorch/audio/decode.hpp>

#include <cstdint>
#include <filesystem>

namespace looptorch::audio {

/// The length and rate of a file.
struct AudioInfo {
  std::int64_t frames;       ///< samples a channel
  std::int64_t sample_rate;  ///< Hz

  [[nodiscard]] double seconds() const {
    return static_cast<double>(frames) / static_cast<double>(sample_rate);
  }
};

/// Returns the length that `decode` gives. Throws what `decode` throws for a file that is recognisable as
/// incomplete or empty without decoding; damage within the samples is not detected. A file that does not
/// state its length is counted: the frames of MP3 by their headers, FLAC written by a pipe by decoding.
[[nodiscard]] inline AudioInfo probe(const std::filesystem::path& path) {
  const detail::SoundFile file(path);
  return {file.frames(), file.rate()};
}

}  // namespace looptorch::audio
