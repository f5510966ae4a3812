// SPDX-License-Identifier: MIT
// What the header of an audio file says, without decoding: about 30 us a file. So a run finds missing, broken
// and too long clips before it begins.
#pragma once

#include <looptorch/audio/decode.hpp>
#include <looptorch/data/utterance.hpp>
#include <looptorch/error.hpp>

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

namespace konkanivani {

/// Seconds of the part of a file that a line of a manifest names; nothing if the header does not say how long
/// the file is. Throws FileError for a file that cannot be read, and AudioError for one that is not audio,
/// holds no samples, or ends before the part begins.
[[nodiscard]] inline std::optional<double> seconds_by_header(const looptorch::Utterance& utterance) {
  const auto refuse = [&](const auto&... why) {
    throw looptorch::audio::AudioError(
        looptorch::detail::message(utterance.audio_filepath.string(), ": ", why...));
  };
  (void)looptorch::InputFile(utterance.audio_filepath);  // libsndfile does not say why it cannot open one
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(
      sf_open(utterance.audio_filepath.c_str(), SFM_READ, &info), sf_close);
  if (!file) refuse("not audio that libsndfile can read: ", sf_strerror(nullptr));
  if (info.frames == SF_COUNT_MAX) return std::nullopt;
  if (info.frames <= 0) refuse("holds no samples");
  const double length = static_cast<double>(info.frames) / info.samplerate,
               begin = utterance.start.value_or(0), end = std::min(utterance.end.value_or(length), length);
  if (end <= begin) refuse("holds ", length, " s; nothing lies behind ", begin, " s");
  return end - begin;
}

}  // namespace konkanivani
