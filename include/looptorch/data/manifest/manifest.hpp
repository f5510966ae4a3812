// SPDX-License-Identifier: MIT
// Manifests: one utterance a line, as JSON (NeMo's and most speech corpora's), CSV or TSV (Common Voice's).
// Nothing is skipped in silence: every fault names file and line, and either ends the reading or is listed.
// About 4 us and 600 bytes a line, of which the components that std::filesystem::path keeps of each path are
// the half; the check that the audio exists takes as long again on a disk that has to be asked.
#pragma once

#include <looptorch/data/manifest/utterance.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace looptorch {

struct ManifestOptions {
  bool check_files = true;                           ///< each audio file must exist
  std::uint64_t max_bytes = std::uint64_t{1} << 32;  ///< of the manifest; a larger one is a FileError
};

/// The utterances of a manifest, at least one, in the format that its name says: `.csv`, `.tsv`, JSON lines
/// otherwise. Audio paths are relative to the manifest's folder; blank lines, a byte order mark and keys or
/// columns that `Utterance` lacks are passed over. Throws ManifestError at the first wrong line: not a JSON
/// object or not a row of the header's columns, not UTF-8, a missing or empty `audio_filepath` or `text`, a
/// wrong type, a duration or range that is not positive, a missing audio file; FileError for a manifest that
/// cannot be read.
///
/// Tables begin with a header. Their columns are called as the members; also `audio_file`, `sentence` and
/// `client_id` (speaker), and `path`, Common Voice's: a file in the folder `clips`. In `.csv` quoting is that
/// of RFC 4180: a field that begins with a quote ends with one, and may hold line ends and doubled quotes. A
/// row over several lines is wrong if two of them name audio: then a quote was not closed. In `.tsv`, as in
/// Common Voice's, quotes stand for themselves, and a backslash for the tab, line end, quote or backslash
/// behind it.
[[nodiscard]] std::vector<Utterance> load_manifest(const std::filesystem::path& path,
                                                   ManifestOptions options = {});

struct ManifestReadOptions {
  bool check_files = true;  ///< each audio file must exist
  bool strict = false;      ///< the first wrong line ends the reading, as in `load_manifest`
  std::uint64_t max_bytes = std::uint64_t{1} << 32;  ///< of the manifest; a larger one is a FileError
};

/// A line that cannot be used, and why.
struct ManifestFault {
  std::size_t line = 0;  ///< from 1, where the row begins
  std::string reason;

  friend bool operator==(const ManifestFault&, const ManifestFault&) = default;
};

/// What a manifest holds: what can be used, and what cannot.
struct Manifest {
  std::filesystem::path path;
  std::vector<Utterance> utterances{};
  std::vector<ManifestFault> faults{};

  /// The number of wrong lines, then the first `at_most` of them as FILE:LINE: REASON, a line each. Empty if
  /// none is wrong.
  [[nodiscard]] std::string describe_faults(std::size_t at_most = 10) const;
};

/// As `load_manifest`, but wrong lines are listed in `faults` unless `strict` is set. Throws ManifestError if
/// no line can be used, or a table lacks its header.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& path, ManifestReadOptions options = {});

/// Writes JSON lines from which `load_manifest` reads the same utterances, of the same files, in one step.
/// Audio beneath its folder is named relative to it, so that the folder can be moved; any other path comes
/// back absolute. Throws ManifestError for an utterance that `load_manifest` would refuse (whether its file
/// exists is not asked) with the line that it would have, or a name that promises a table; FileError where it
/// cannot write.
void save_manifest(const std::filesystem::path& path, std::span<const Utterance> utterances);

}  // namespace looptorch

#include <looptorch/data/manifest/manifest_reader.hpp>
#include <looptorch/data/manifest/manifest_writer.hpp>
