// SPDX-License-Identifier: MIT
// Reads a transcript with times of one long recording, as caption services provide it: a JSON array of
// {"text", "start", "duration"}, with a "language" where it is known. Each segment becomes an utterance with
// `start` and `end`, so that nothing is cut on disk. Segments that are too short, too long or too quiet are
// dropped and listed. Takes about 2 us a segment, plus reading the audio if its level is checked.
#pragma once

#include <looptorch/data/manifest/manifest.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace looptorch {

/// Options: which segments are dropped, and the treatment of wrong ones.
struct TranscriptOptions {
  std::size_t min_characters = 3;  ///< code points
  double min_seconds = 1;          ///< segments of 0 s are dropped in any case
  double max_seconds = 30;
  double min_peak = 0.01;  ///< smallest result of `peak`
  /// Returns the largest magnitude of a segment's samples, 1 at full scale; empty: no segment is dropped as
  /// quiet. If it throws a looptorch::Error, the segment is wrong, for instance one that ends after the
  /// recording's end.
  std::function<double(const Utterance&)> peak{};
  bool strict = false;  ///< the first wrong segment ends the reading
  /// Called for each segment before any is dropped. If it throws a looptorch::Error, the segment is wrong.
  std::function<void(const Utterance&)> check{};
};

/// The segments of a transcript: those that can be used, those that are wrong, and those that are dropped.
struct Transcript {
  Manifest manifest{};  ///< faults have the line where a wrong segment begins
  std::vector<ManifestFault> drops{};

  /// Returns the drops in the format of `Manifest::describe_faults`.
  [[nodiscard]] std::string describe_drops(std::size_t at_most = 10) const;
};

/// Reads `path`, with times in the recording `audio`. Runs of white space in a text become single spaces. A
/// segment is wrong if it is not an object, lacks a key, has a value of another kind or a negative time, or
/// if `options.peak` cannot read its audio. Wrong segments are listed in `manifest.faults`, or with `strict`
/// thrown as ManifestError with file and line. All segments may be dropped. Throws ManifestError for a file
/// that is not a JSON array or a missing recording, and FileError for one that cannot be read or is larger
/// than JsonLimits allow.
[[nodiscard]] Transcript read_transcript(const std::filesystem::path& path,
                                         const std::filesystem::path& audio,
                                         const TranscriptOptions& options = {});

/// Returns the recording beside a transcript: the first existing file of the same name with one of
/// kAudioExtensions, in small letters or capitals. Throws ManifestError if there is none.
[[nodiscard]] std::filesystem::path recording_of(const std::filesystem::path& transcript);

}  // namespace looptorch

#include <looptorch/data/manifest/transcript_reader.hpp>
