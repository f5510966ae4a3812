// SPDX-License-Identifier: MIT
// Reads the length of a clip from the header of its file, without decoding, so that a run finds missing,
// broken and too long clips before it begins.
#pragma once

#include <looptorch/audio/probe.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>

namespace konkanivani {

/// Returns the seconds of the part of a file in a manifest's line. Throws what looptorch::audio::probe
/// throws, and AudioError for a file that ends before the part begins.
[[nodiscard]] inline double seconds_by_header(const looptorch::Utterance& utterance) {
  const double length = looptorch::audio::probe(utterance.audio_filepath).seconds(),
               begin = utterance.start.value_or(0), end = std::min(utterance.end.value_or(length), length);
  if (end > begin) return end - begin;
  throw looptorch::audio::AudioError(looptorch::message(utterance.audio_filepath.string(), ": lasts ", length,
                                                        " s, and the clip begins at ", begin, " s"));
}

}  // namespace konkanivani
