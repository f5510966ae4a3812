// SPDX-License-Identifier: MIT
// Reads songs and their emotions from the published tables of DEAM, a dataset of songs (Aljanaki, Yang,
// Soleymani 2017), with one song a line, and finds each song's audio file. Two further columns, `split` and
// `origin`, are optional. Takes a few microseconds a line.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/files/files_at.hpp>
#include <looptorch/base/text/trimmed.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/manifest/manifest_rows.hpp>

#include "skipped_items.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// Thrown for unusable annotations. The message begins with the file, and the line if there is one.
struct AnnotationError : looptorch::Error {
  using Error::Error;
};

/// The use of a song.
enum class Split { train, validation, test };

/// The maker of a song. A generator's songs are for training only.
enum class Origin { recorded, generated };

struct Song {
  std::int64_t id = 0;
  std::filesystem::path audio = {};
  double valence = 0, arousal = 0;  ///< in [-1, 1]: DEAM's scale of 1 to 9, minus 5, divided by 4
  Origin origin = Origin::recorded;
  std::optional<Split> split = {};  ///< empty if the table has none
};

/// Returns the songs of a table, or of all `.csv` files in a folder in the order of their names (DEAM has
/// two). A song's audio is the file in `audio_folder` whose name is the song's id: `2.mp3`, `.wav`, `.flac`,
/// `.ogg` or `.opus`, or a spectrogram that was saved by NumPy, `2.npy`.
///
/// Required are the columns `song_id`, `valence_mean` and `arousal_mean`, with or without DEAM's spaces
/// around their names. `split` (`train`, `validation`, `test`) and `origin` (`recorded`, `generated`) are
/// optional. Other columns are ignored.
///
/// A line is wrong if its number of columns is not the header's, if its id is not an integer or occurred
/// before, if a label is not a number from 1 to 9, if the song has no audio file, if a generated song is not
/// for training, or if a recorded song has no split while others have one. `skipped` lists such lines.
/// Without `skipped`, or if no song remains, throws AnnotationError, which names the first wrong line and
/// counts the others. Throws AnnotationError also for an unusable header or table, and looptorch::FileError
/// for a table that cannot be read.
[[nodiscard]] std::vector<Song> load_annotations(const std::filesystem::path& place,
                                                 const std::filesystem::path& audio_folder,
                                                 SkippedItems* skipped = nullptr);

// ---- Implementation ----

namespace detail {

/// Returns the enumerator whose name in `names` equals the field. Errors call the column `what`.
template <class Enum, std::size_t N>
[[nodiscard]] Enum one_of(const std::array<std::string_view, N>& names, std::string_view what,
                          const std::string& field) {
  const auto found = std::find(names.begin(), names.end(), field);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  std::string known;
  for (const auto name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  throw AnnotationError(looptorch::message(what, " is \"", field, "\"; it must be one of ", known));
}

template <class Number>
[[nodiscard]] std::optional<Number> parse_number(const std::string& field) {
  Number value{};
  const auto* end = field.data() + field.size();
  const auto [stop, code] = std::from_chars(field.data(), end, value);
  if (code != std::errc{} || stop != end) return std::nullopt;
  return value;
}

/// The columns that a table has.
class AnnotationHeader {
 public:
  explicit AnnotationHeader(const std::vector<std::string>& names) : width_(names.size()) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string name(looptorch::trimmed(names[i]));
      if (!columns_.emplace(name, i).second && kKnown.end() != std::find(kKnown.begin(), kKnown.end(), name))
        throw AnnotationError("the header has two columns \"" + name + "\"");
    }
    for (const auto needed : {kKnown[0], kKnown[1], kKnown[2]}) {
      if (columns_.find(needed) == columns_.end())
        throw AnnotationError(
            looptorch::message("the header has no column \"", needed, "\", it has \"", joined(names), "\""));
    }
  }

  [[nodiscard]] std::size_t width() const { return width_; }

  /// Returns a row's field, without spaces; empty for a missing column.
  [[nodiscard]] std::string field(const std::vector<std::string>& row, std::string_view column) const {
    const auto found = columns_.find(column);
    return std::string(found == columns_.end() ? "" : looptorch::trimmed(row[found->second]));
  }

 private:
  [[nodiscard]] static std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const auto& name : names) out += (out.empty() ? "" : ",") + name;
    return looptorch::replace_invalid_utf8(out.substr(0, 200));
  }

  static constexpr std::array<std::string_view, 5> kKnown{"song_id", "valence_mean", "arousal_mean", "split",
                                                          "origin"};
  std::map<std::string, std::size_t, std::less<>> columns_;
  std::size_t width_;
};

struct MissingAudio : AnnotationError {
  using AnnotationError::AnnotationError;
};

class AnnotationReader {
 public:
  AnnotationReader(std::filesystem::path audio_folder, SkippedItems* skipped)
      : audio_folder_(std::move(audio_folder)), skipped_(skipped) {}

  void read(const std::filesystem::path& table) {
    const auto contents = looptorch::read_file(table, kMaxBytes);
    std::string_view text = contents;
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    looptorch::TableRows rows(text, ',');
    if (!rows.has_next()) throw AnnotationError(table.string() + ": is empty");
    const auto header = read_header(table, rows);
    while (rows.has_next()) {
      const auto line = looptorch::message(table.string(), ":", rows.line());
      try {
        take(header, rows, line);
      } catch (const MissingAudio& error) {
        note(Fault::missing_file, line + ": " + error.what());
      } catch (const looptorch::Error& error) {
        note(Fault::row, line + ": " + error.what());
      }
    }
  }

  /// Returns the songs. Throws AnnotationError for the faults, unless faulty lines are skipped.
  [[nodiscard]] std::vector<Song> songs(const std::filesystem::path& place) && {
    if (faults_ > 0 && (!skipped_ || songs_.empty())) {
      if (faults_ > 1)
        first_fault_ += looptorch::message(" (and ", faults_ - 1, " more ",
                                           faults_ == 2 ? "line is wrong)" : "lines are wrong)");
      throw AnnotationError(first_fault_);
    }
    if (songs_.empty()) throw AnnotationError(place.string() + ": holds no songs");
    return std::move(songs_);
  }

 private:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28;

  static AnnotationHeader read_header(const std::filesystem::path& table, looptorch::TableRows& rows) try {
    return AnnotationHeader(rows.next());
  } catch (const looptorch::Error& error) {
    throw AnnotationError(looptorch::message(table.string(), ":1: ", error.what()));
  }

  void note(Fault fault, const std::string& what) {
    if (skipped_) skipped_->add(fault, what);
    if (faults_++ == 0) first_fault_ = what;
  }

  void take(const AnnotationHeader& header, looptorch::TableRows& rows, const std::string& line) {
    const auto row = rows.next();
    if (row.size() != header.width())
      rows.refuse(looptorch::message("has ", row.size(), " fields, the header ", header.width()));
    auto song = song_of(header, row);
    const auto [before, is_new] = lines_.emplace(song.id, line);
    if (!is_new)
      throw AnnotationError(
          looptorch::message("song_id ", song.id, " was given before, in ", before->second));
    song.audio = find_audio(song.id);
    songs_.push_back(std::move(song));
  }

  Song song_of(const AnnotationHeader& header, const std::vector<std::string>& row) {
    Song song;
    const auto id_field = header.field(row, "song_id");
    const auto id = parse_number<std::int64_t>(id_field);
    if (!id || *id < 0) throw AnnotationError("song_id \"" + id_field + "\" is no whole number");
    song.id = *id;
    song.valence = label(header, row, "valence_mean");
    song.arousal = label(header, row, "arousal_mean");
    if (const auto origin = header.field(row, "origin"); !origin.empty())
      song.origin =
          one_of<Origin>(std::array<std::string_view, 2>{"recorded", "generated"}, "origin", origin);
    if (const auto split = header.field(row, "split"); !split.empty())
      song.split =
          one_of<Split>(std::array<std::string_view, 3>{"train", "validation", "test"}, "split", split);
    check_split(song);
    return song;
  }

  void check_split(const Song& song) {
    if (song.origin == Origin::generated) {
      if (song.split.value_or(Split::train) != Split::train)
        throw AnnotationError("a generated song is for training alone");
      return;
    }
    if (!has_splits_) has_splits_ = song.split.has_value();
    if (*has_splits_ != song.split.has_value())
      throw AnnotationError(song.split ? "has a split, recorded songs before it have none"
                                       : "has no split, recorded songs before it have one");
  }

  /// Returns a label, converted from DEAM's scale of 1 to 9.
  static double label(const AnnotationHeader& header, const std::vector<std::string>& row,
                      const char* column) {
    const auto field = header.field(row, column);
    const auto value = parse_number<double>(field);
    if (!value || !(1 <= *value && *value <= 9))
      throw AnnotationError(
          looptorch::message(column, " is \"", field, "\"; it must be a number from 1 to 9"));
    return (*value - 5) / 4;
  }

  [[nodiscard]] std::filesystem::path find_audio(std::int64_t id) const {
    for (const auto* extension : kExtensions) {
      auto file = audio_folder_ / std::to_string(id).append(extension);
      std::error_code error;
      if (std::filesystem::is_regular_file(file, error)) return file;
    }
    throw MissingAudio(looptorch::message(
        "there is no audio file ", id, ".mp3, .wav, .flac, .ogg, .opus or .npy in ", audio_folder_.string()));
  }

  static constexpr std::array kExtensions{".mp3", ".wav",  ".flac", ".ogg",  ".opus", ".MP3",
                                          ".WAV", ".FLAC", ".OGG",  ".OPUS", ".npy",  ".NPY"};

  std::filesystem::path audio_folder_;
  SkippedItems* skipped_;
  std::vector<Song> songs_;
  std::map<std::int64_t, std::string> lines_;  ///< the line in which each id occurred
  std::optional<bool> has_splits_;
  std::string first_fault_;
  std::size_t faults_ = 0;
};

}  // namespace detail

inline std::vector<Song> load_annotations(const std::filesystem::path& place,
                                          const std::filesystem::path& audio_folder, SkippedItems* skipped) {
  detail::AnnotationReader reader(audio_folder, skipped);
  for (const auto& table : looptorch::files_at<AnnotationError>(place, ".csv")) reader.read(table);
  return std::move(reader).songs(place);
}

}  // namespace spectrogram_gan
