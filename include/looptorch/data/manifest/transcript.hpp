// SPDX-License-Identifier: MIT
// Transcripts with times, as caption services give them: a JSON array of {"text", "start", "duration"} beside
// one long recording. Each segment becomes an utterance with `start` and `end`, so that nothing is cut on
// disk; what is too short, too long or too quiet to learn from is dropped, and each drop is listed. Some 2 us
// a segment, beside the audio if its level is asked for.
#pragma once

#include <looptorch/data/manifest/manifest.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace looptorch {

/// What is dropped, and how wrong segments are met.
struct TranscriptOptions {
  std::size_t min_characters = 3;  ///< code points
  double min_seconds = 1;
  double max_seconds = 30;
  double min_peak = 0.01;  ///< of what `peak` gives
  /// The largest magnitude of a segment's samples, 1 at full scale; empty: no segment is dropped as quiet.
  /// What it throws as looptorch::Error makes the segment wrong, for instance an end behind the recording's.
  std::function<double(const Utterance&)> peak{};
  bool strict = false;  ///< the first wrong segment ends the reading
};

/// The segments of a transcript: those that can be used, those that are wrong, and those that are dropped.
struct Transcript {
  Manifest manifest{};  ///< of wrong segments the line where each begins
  std::vector<ManifestFault> drops{};

  /// As `Manifest::describe_faults`, for the drops.
  [[nodiscard]] std::string describe_drops(std::size_t at_most = 10) const;
};

/// Reads `path`, whose times are those of the recording `audio`. Runs of white space in a text become single
/// blanks. A segment is wrong that is not an object, lacks a key, has a value of another kind or a negative
/// time, or whose audio `options.peak` cannot read: listed in `manifest.faults`, or with `strict` thrown as
/// ManifestError with file and line. All segments may turn out to be dropped. Throws ManifestError for a file
/// that is not a JSON array or a missing recording, FileError for one that cannot be read or is larger than
/// JsonLimits allow.
[[nodiscard]] Transcript read_transcript(const std::filesystem::path& path,
                                         const std::filesystem::path& audio,
                                         const TranscriptOptions& options = {});

/// The recording beside a transcript: of the same name, ending in .wav, .flac, .mp3, .ogg or .opus, the first
/// that there is. Throws ManifestError if there is none.
[[nodiscard]] std::filesystem::path recording_of(const std::filesystem::path& transcript);

}  // namespace looptorch

#include <looptorch/data/manifest/transcript_reader.hpp>
