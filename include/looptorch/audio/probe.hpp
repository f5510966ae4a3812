// SPDX-License-Identifier: MIT
// How long an audio file is, by its header: some 30 us a file, where decoding takes milliseconds. Use it to
// look through a corpus before training.
#pragma once

#include <looptorch/audio/decode.hpp>

#include <cstdint>
#include <filesystem>

namespace looptorch::audio {

/// What a file's header announces.
struct AudioInfo {
  std::int64_t frames;       ///< samples a channel
  std::int64_t sample_rate;  ///< Hz

  [[nodiscard]] double seconds() const {
    return static_cast<double>(frames) / static_cast<double>(sample_rate);
  }
};

/// Reads a file's header. Throws what `decode` throws for a file that shows without decoding that it is not
/// whole, non-empty audio; damage within the samples is not looked for. A file that does not say how long it
/// is, such as FLAC that came out of a pipe, is decoded for its length.
[[nodiscard]] inline AudioInfo probe(const std::filesystem::path& path) {
  detail::refuse_cut(path);
  const detail::SoundFile file(path);
  return {file.frames(), file.rate()};
}

}  // namespace looptorch::audio
