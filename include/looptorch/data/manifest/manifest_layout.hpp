// SPDX-License-Identifier: MIT
// Recognises how a corpus lists its recordings: as JSON lines, as a table with commas, tabs or another
// separator, as LJSpeech's lines without a header, or as a folder with a text file beside each recording.
// Private to manifest_reader.hpp.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/datasets/audio_files.hpp>
#include <looptorch/data/manifest/manifest_names.hpp>
#include <looptorch/data/manifest/manifest_rows.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch::detail {

/// Throws ManifestError for a field that is not UTF-8.
inline void check_field_utf8(std::string_view key, std::string_view field) {
  if (const auto fault = find_invalid_utf8(field); fault != std::string_view::npos)
    throw ManifestError(message("\"", key, "\" is not UTF-8 at its byte ", fault));
}

/// True for the name of a table; others are of JSON lines.
[[nodiscard]] inline bool is_table_name(const std::filesystem::path& path) {
  const auto extension = small_extension(path);
  return extension == ".csv" || extension == ".tsv";
}

/// Returns the separator of a table: a tab in `.tsv`, and in `.csv` the one of `,;|` at which the header has
/// a name for audio, else a comma. NUL for JSON lines.
[[nodiscard]] inline char table_separator(const std::filesystem::path& path, std::string_view text) {
  if (!is_table_name(path)) return '\0';
  if (small_extension(path) == ".tsv") return '\t';
  std::string_view header;
  while (!text.empty() && is_blank(header)) header = take_until('\n', text);
  for (const char separator : {',', ';', '|'}) {
    std::string_view rest = header;
    while (!rest.empty()) {
      std::string_view name = take_until(separator, rest);
      while (!name.empty() && (name.back() == '\r' || name.back() == '"')) name.remove_suffix(1);
      if (name.starts_with('"')) name.remove_prefix(1);
      if (manifest_key_of(name) == "audio_filepath") return separator;
    }
  }
  return ',';
}

/// True if the text begins with a line of LJSpeech's metadata.csv, "LJ001-0001|text|normalised text", whose
/// recording lies in wavs/.
[[nodiscard]] inline bool is_lj_speech(const std::filesystem::path& folder, std::string_view text) {
  std::string_view line = take_until('\n', text);
  const std::string name(take_until('|', line));
  std::error_code none;
  return !line.empty() && name.find_first_of("/,;") == name.npos &&
         std::filesystem::is_regular_file(folder / "wavs" / (name + ".wav"), none);
}

/// Returns a line of LJSpeech as JSON: its last text, which is the normalised one where there are two.
[[nodiscard]] inline Json lj_speech_line(std::string_view line) {
  std::vector<std::string> fields;
  while (fields.empty() || !line.empty()) fields.emplace_back(take_until('|', line));
  while (fields.back().ends_with('\r')) fields.back().pop_back();
  if (fields.size() < 2 || fields.size() > 3)
    throw ManifestError(
        message("has ", fields.size(), " fields, LJSpeech's lines 2 or 3: ID|text|normalised text"));
  const std::string& text = fields.size() == 3 && !fields[2].empty() ? fields[2] : fields[1];
  check_field_utf8("audio_filepath", fields[0]);
  check_field_utf8("text", text);
  return Json::object().set("audio_filepath", message("wavs/", fields[0], ".wav")).set("text", text);
}

/// Returns the table of a folder of clips: metadata.csv, .tsv or .jsonl, as in Hugging Face's audiofolder; an
/// empty path if there is none. Throws ManifestError for several.
[[nodiscard]] inline std::filesystem::path table_in(const std::filesystem::path& folder) {
  std::filesystem::path found;
  for (const char* name : {"metadata.csv", "metadata.tsv", "metadata.jsonl"}) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(folder / name, none)) continue;
    if (!found.empty())
      throw ManifestError(message(folder.string(), ": holds ", found.filename().string(), " and ", name,
                                  ": give one of them"));
    found = folder / name;
  }
  return found;
}

/// Returns the recordings of a folder and those below, by name. Throws ManifestError for a folder that cannot
/// be read, or that holds no audio.
[[nodiscard]] inline std::vector<std::filesystem::path> recordings_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  try {
    files = audio_files({folder.string()});
  } catch (const std::filesystem::filesystem_error& error) {
    throw ManifestError(error.what());
  }
  if (files.size() == 1 && files.front() == folder)
    throw ManifestError(
        message(folder.string(),
                ": holds no metadata.csv, .tsv or .jsonl, and no recordings with texts beside "
                "them, as NAME.wav with NAME.txt"));
  return files;
}

/// Returns the JSON line of a recording, with the text of NAME.txt beside it; its path is below `folder`.
[[nodiscard]] inline Json line_of_recording(const std::filesystem::path& audio,
                                            const std::filesystem::path& folder) {
  constexpr std::uint64_t kLongestText = std::uint64_t{1} << 20;
  const auto file = std::filesystem::path(audio).replace_extension(".txt");
  std::error_code none;
  const std::string name = audio.lexically_relative(folder).string();
  if (!std::filesystem::is_regular_file(file, none))
    throw ManifestError(message(name, " has no ", file.filename().string(), " beside it"));
  std::string text = read_file(file, kLongestText);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  check_field_utf8("audio_filepath", name);
  if (const auto fault = find_invalid_utf8(text); fault != std::string_view::npos)
    throw ManifestError(message(file.filename().string(), " is not UTF-8 at its byte ", fault));
  return Json::object().set("audio_filepath", name).set("text", text);
}

/// Throws ManifestError for a file of Parquet or Arrow, with the command that converts it to JSON lines.
inline void refuse_columnar(const std::filesystem::path& path, std::string_view text) {
  const bool is_parquet = text.starts_with("PAR1");
  if (!is_parquet && !text.starts_with("ARROW1") && small_extension(path) != ".arrow") return;
  const std::string file = path.string();
  const std::string lines = std::filesystem::path(path).replace_extension(".jsonl").string();
  throw ManifestError(
      message(file, is_parquet ? ": is Parquet" : ": is Arrow",
              ", which is not read; if its sound lies in files: python3 -c \"import pandas; pandas.read_",
              is_parquet ? "parquet" : "feather", "('", file, "').to_json('", lines,
              "', orient='records', lines=True)\""));
}

/// Throws ManifestError, with the remedy, for a text that is not JSON lines: an array, or no line that begins
/// as an object.
inline void refuse_other_forms(const std::filesystem::path& path, std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (text.empty() || text.starts_with('{')) return;
  const std::string file = path.string();
  if (text.starts_with('['))
    throw ManifestError(message(file, ": is a JSON array; write its objects a line each: jq -c '.[]' '", file,
                                "' > '", std::filesystem::path(path).replace_extension(".jsonl").string(),
                                "'"));
  std::string_view first = take_until('\n', text);
  first = first.substr(0, first.find_last_not_of(" \t\r") + 1);
  while (!text.empty()) {
    const auto line = take_until('\n', text);
    if (!is_blank(line) && line[line.find_first_not_of(" \t\r")] == '{') return;
  }
  throw ManifestError(message(file, ": is not JSON lines, and the name of a table ends in .csv or .tsv; its ",
                              "first line is \"", replace_invalid_utf8(first.substr(0, 60)),
                              "\"; docs/corpora.md has commands for other forms"));
}

}  // namespace looptorch::detail
