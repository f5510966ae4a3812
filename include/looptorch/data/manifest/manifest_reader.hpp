// SPDX-License-Identifier: MIT
// Reads a manifest: lines of any format become JSON objects, these become utterances, and errors name the
// line at fault. Include manifest.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/text_encoding.hpp>
#include <looptorch/data/manifest/audio_name.hpp>
#include <looptorch/data/manifest/json_utterance.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/manifest/manifest_layout.hpp>
#include <looptorch/data/manifest/manifest_names.hpp>
#include <looptorch/data/manifest/manifest_rows.hpp>
#include <looptorch/data/manifest/manifest_table.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Returns the number of lines, then the first `at_most` as FILE:LINE: REASON. `lines` names what is listed.
inline std::string describe_lines(std::string_view lines, const std::filesystem::path& path,
                                  const std::vector<ManifestFault>& faults, std::size_t at_most) {
  if (faults.empty()) return {};
  std::string out = message(faults.size(), " ", lines, ":");
  for (std::size_t i = 0; i < std::min(at_most, faults.size()); ++i)
    out += message("\n", path.string(), ":", faults[i].line, ": ", faults[i].reason);
  return at_most < faults.size() ? out + "\n..." : out;
}

class ManifestReader {
 public:
  ManifestReader(const std::filesystem::path& path, ManifestReadOptions options)
      : options_(std::move(options)), folder_(path.parent_path()), manifest_{.path = path} {}

  [[nodiscard]] Manifest read() {
    std::error_code none;
    if (std::filesystem::is_directory(manifest_.path, none)) return read_folder();
    const std::string contents = read_file(manifest_.path, options_.max_bytes);
    std::string_view text = contents;
    if (const auto encoding = find_wide_encoding(text); !encoding.empty())
      throw ManifestError(message(manifest_.path.string(), ": ", wide_encoding_fault(encoding)));
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    refuse_columnar(manifest_.path, text);
    refuse_old_line_ends(text);
    constexpr std::size_t kShortest = 30;  // bytes of a line with audio and text
    manifest_.utterances.reserve(
        std::min(static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1, text.size() / kShortest + 1));
    const char separator = table_separator(manifest_.path, text);
    if (separator == '\0') {
      refuse_other_forms(manifest_.path, text);
      read_lines(text, [](std::string_view line) { return Json::parse(line); });
    } else if (separator == ',' && is_lj_speech(folder_, text)) {
      read_lines(text, lj_speech_line);
    } else {
      read_table(text, separator);
    }
    if (manifest_.utterances.empty()) fail_empty();
    return std::move(manifest_);
  }

 private:
  /// Throws ManifestError for lines that end with CR alone, which would all be one line.
  void refuse_old_line_ends(std::string_view text) const {
    const std::size_t last = text.find_last_not_of(" \t\r");
    if (text.find('\n') != text.npos || last == text.npos || text.find('\r') >= last) return;
    throw ManifestError(
        message(manifest_.path.string(),
                ": the file's lines end with CR alone (old Mac); convert them: tr '\\r' '\\n'"));
  }

  /// Reads the table in a folder, or its recordings with their texts; then the line of a fault is the
  /// recording's number in the list.
  [[nodiscard]] Manifest read_folder() {
    folder_ = manifest_.path;
    if (const auto table = table_in(folder_); !table.empty()) {
      manifest_.path = table;
      return read();
    }
    std::size_t number = 0;
    for (const auto& audio : recordings_in(folder_))
      take(++number, [&] { return line_of_recording(audio, folder_); });
    if (manifest_.utterances.empty())
      throw ManifestError(message(folder_.string(),
                                  ": holds no metadata.csv, .tsv or .jsonl, and none of its ", number,
                                  " recordings can be used; of the first: ", manifest_.faults.front().reason,
                                  "; docs/corpora.md has commands for other forms"));
    return std::move(manifest_);
  }

  template <class ToJson>
  void read_lines(std::string_view rest, const ToJson& to_json) {
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const auto line = take_until('\n', rest);
      if (is_blank(line)) continue;
      take(number, [&] { return to_json(line); });
    }
  }

  void read_table(std::string_view text, char separator) {
    TableRows rows(text, separator);
    if (!rows.has_next()) return;
    const auto header = read_header(rows, separator);
    while (rows.has_next()) {
      take(rows.line(), [&] {
        const auto fields = rows.next();
        if (const auto fault = header.find_fault(fields, rows.last()); !fault.empty()) rows.refuse(fault);
        return header.to_json(fields);
      });
    }
  }

  [[nodiscard]] TableHeader read_header(TableRows& rows, char separator) const {
    const auto line = rows.line();
    try {
      return TableHeader(rows.next(), separator);
    } catch (const ManifestError& error) {
      throw ManifestError(place(line) + error.what());
    }
  }

  /// Adds the utterance of `json()`, or the fault on line `number`.
  template <class MakeJson>
  void take(std::size_t number, MakeJson json) {
    try {
      manifest_.utterances.push_back(read_utterance(json()));
      manifest_.lines.push_back(number);
    } catch (const Error& error) {
      auto reason = without_line(error.what());
      if (options_.strict) throw ManifestError(place(number) + reason);
      manifest_.faults.push_back({number, std::move(reason)});
    }
  }

  [[nodiscard]] Utterance read_utterance(const Json& line) {
    Utterance utterance = utterance_of(line, folder_, options_.empty_texts);
    if (options_.check_files)
      utterance.audio_filepath =
          find_audio_(utterance.audio_filepath, line.at(name_in_line(line, "audio_filepath")).as_string());
    if (options_.check) options_.check(utterance);
    return utterance;
  }

  /// Returns the parser's message without its line, which counts from 1 within a text of one line.
  [[nodiscard]] static std::string without_line(std::string_view error) {
    constexpr std::string_view kLine = "line 1, ";
    return std::string(error.starts_with(kLine) ? error.substr(kLine.size()) : error);
  }

  [[nodiscard]] std::string place(std::size_t line) const {
    return message(manifest_.path.string(), ":", line, ": ");
  }

  [[noreturn]] void fail_empty() const {
    std::string what = manifest_.path.string() + ": holds no utterances";
    if (const auto& faults = manifest_.faults; !faults.empty())
      what += message("; ", faults.size(), " wrong, the first on line ", faults.front().line, ": ",
                      faults.front().reason);
    throw ManifestError(what);
  }

  ManifestReadOptions options_;
  std::filesystem::path folder_;
  AudioFinder find_audio_;
  Manifest manifest_;
};

}  // namespace detail

inline std::string Manifest::describe_faults(std::size_t at_most) const {
  return detail::describe_lines(faults.size() == 1 ? "line is wrong" : "lines are wrong", path, faults,
                                at_most);
}

inline Manifest read_manifest(const std::filesystem::path& path, ManifestReadOptions options) {
  return detail::ManifestReader(path, std::move(options)).read();
}

inline std::vector<Utterance> load_manifest(const std::filesystem::path& path, ManifestOptions options) {
  return read_manifest(path, {.check_files = options.check_files,
                              .strict = true,
                              .max_bytes = options.max_bytes,
                              .check = {}})
      .utterances;
}

}  // namespace looptorch
