// SPDX-License-Identifier: MIT
// Reads and writes manifests: one utterance per line, as JSON (NeMo's and most speech corpora's), CSV or TSV
// (Common Voice's). Also reads a folder of clips as a manifest: Hugging Face's audiofolder, LJSpeech, or
// recordings with their texts beside them. Nothing is skipped silently: every fault names file and line, and
// either ends the reading or is listed. Costs 4 us and 600 bytes per line. Checking that the audio files
// exist can double the time.
#pragma once

#include <looptorch/data/manifest/utterance.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace looptorch {

/// The checks of `load_manifest`.
struct ManifestOptions {
  bool check_files = true;                           ///< each audio file must exist
  std::uint64_t max_bytes = std::uint64_t{1} << 32;  ///< largest manifest; a larger one is a FileError
};

/// Returns the utterances of a manifest, at least one. What is read depends on the path:
///
///     .csv     a header, then rows; fields separated by commas, semicolons or bars
///     .tsv     a header, then rows; fields separated by tabs
///     folder   its metadata.csv, .tsv or .jsonl, or else all recordings NAME.wav, .flac, ... in it and below
///              that have a NAME.txt beside them
///     others   one JSON object per line
///
/// A .csv file without a header is LJSpeech's: lines ID|text|normalised text, and recordings in wavs/.
///
/// Keys, and names of columns, are those of Utterance's members. Also read are
///
///     begin, offset (NeMo's)                                   as `start`; `duration` is then the length
///     lang, source_lang, target_lang                           as `language`
///     client_id                                                Common Voice's, as `speaker`
///     path                                                     Common Voice's, as a file in folder clips,
///                                                              unless it is absolute or names that folder
///     file_name, audio_file, audio_path, audio, wav_filename   as `audio_filepath`
///     transcription, sentence, transcript                      as `text`
///
/// Other keys are ignored, and so are blank lines and a byte order mark. Keys that contradict one another
/// make a line wrong. Audio paths are relative to the manifest's folder, or begin with "~/", the home folder.
/// A file whose name the disk spells in another normal form of Unicode is found.
///
/// With commas and semicolons quoting is that of RFC 4180: a field that begins with a quote ends with one,
/// and may hold line ends and doubled quotes. A row over several lines is wrong if two of them name audio:
/// then a quote was not closed. In `.tsv`, as in Common Voice's, quotes are ordinary characters, and a
/// backslash escapes a tab, line end, quote or backslash after it.
///
/// Throws ManifestError at the first wrong line: not a JSON object or not a row of the header's columns, not
/// UTF-8, a missing or empty `audio_filepath` or `text`, a wrong type, a duration or range that is not
/// positive, a missing audio file. Throws FileError for a manifest that cannot be read.
[[nodiscard]] std::vector<Utterance> load_manifest(const std::filesystem::path& path,
                                                   ManifestOptions options = {});

/// The checks of `read_manifest`, and its answer to a wrong line: to stop, or to list the line and continue.
struct ManifestReadOptions {
  bool check_files = true;  ///< each audio file must exist
  bool strict = false;      ///< the first wrong line ends the reading, as in `load_manifest`
  std::uint64_t max_bytes = std::uint64_t{1} << 32;  ///< largest manifest; a larger one is a FileError
  /// Called for each utterance. If it throws a looptorch::Error, the line is wrong, for instance one in a
  /// language that the program does not know.
  std::function<void(const Utterance&)> check{};
  bool empty_texts = false;  ///< "text" may be blank, as that of a recording in which nothing is said
};

/// A line that cannot be used, and the reason.
struct ManifestFault {
  std::size_t line = 0;  ///< line on which the row begins, from 1
  std::string reason;

  friend bool operator==(const ManifestFault&, const ManifestFault&) = default;
};

/// The contents of a manifest: usable utterances, and the faults of the other lines.
struct Manifest {
  std::filesystem::path path;
  std::vector<Utterance> utterances{};
  std::vector<ManifestFault> faults{};
  std::vector<std::size_t> lines{};  ///< of each utterance, from 1

  /// Returns the number of wrong lines, then the first `at_most` of them as FILE:LINE: REASON, a line each.
  /// Empty if none is wrong.
  [[nodiscard]] std::string describe_faults(std::size_t at_most = 10) const;
};

/// Reads a manifest as `load_manifest` does, but lists wrong lines in `faults` unless `strict` is set. Throws
/// ManifestError if no line can be used, or a table lacks its header.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& path, ManifestReadOptions options = {});

/// Writes JSON lines, in one step, from which `load_manifest` reads the same utterances of the same files. An
/// utterance with `start` and `duration` but no `end` is read back with the `end` that these give. Audio
/// below the manifest's folder is named relative to it, so that the folder can be moved; any other path is
/// written absolute. Throws ManifestError, with the number of its line, for an utterance that `load_manifest`
/// would refuse; whether its file exists is not checked. Throws ManifestError also for a path that ends in
/// .csv or .tsv, and FileError if it cannot write.
void save_manifest(const std::filesystem::path& path, std::span<const Utterance> utterances);

}  // namespace looptorch

#include <looptorch/data/manifest/manifest_reader.hpp>
#include <looptorch/data/manifest/manifest_writer.hpp>
