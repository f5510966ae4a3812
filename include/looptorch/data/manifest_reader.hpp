// SPDX-License-Identifier: MIT
// How a manifest is read: lines of any format become JSON objects, these utterances, and what goes wrong on
// the way is told with its line. Include manifest.hpp.
#pragma once

#include <looptorch/data/detail/json_fields.hpp>
#include <looptorch/data/manifest.hpp>
#include <looptorch/data/manifest_table.hpp>
#include <looptorch/error.hpp>
#include <looptorch/state/file.hpp>
#include <looptorch/state/json.hpp>

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

/// What one line says; errors do not yet know where they are.
inline Utterance utterance_of(const Json& line, const std::filesystem::path& folder) {
  const JsonFields fields(line);
  Utterance utterance{.audio_filepath = (folder / fields.filled_string("audio_filepath")).lexically_normal(),
                      .text = fields.filled_string("text"),
                      .duration = fields.optional_seconds("duration"),
                      .start = fields.optional_seconds("start"),
                      .end = fields.optional_seconds("end"),
                      .speaker = fields.present("speaker") ? fields.string("speaker") : ""};
  if (utterance.duration && !(*utterance.duration > 0))
    throw ManifestError(message("\"duration\" is ", *utterance.duration, " s; it must be positive"));
  const double start = utterance.start.value_or(0);
  if (!(start >= 0)) throw ManifestError(message("\"start\" is ", start, " s; it must not be negative"));
  if (utterance.end && !(*utterance.end > start))
    throw ManifestError(
        message("\"end\" is ", *utterance.end, " s; it must come after \"start\", ", start, " s"));
  return utterance;
}

/// `lines` names what is listed: the number of them, then the first `at_most` as FILE:LINE: REASON.
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
      : options_(options), folder_(path.parent_path()), manifest_{.path = path} {}

  [[nodiscard]] Manifest read() {
    const std::string contents = read_file(manifest_.path);
    std::string_view text = contents;
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    const char separator = table_separator(manifest_.path);
    separator == '\0' ? read_json_lines(text) : read_table(text, separator);
    if (manifest_.utterances.empty()) fail_empty();
    return std::move(manifest_);
  }

 private:
  void read_json_lines(std::string_view rest) {
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      take(number, [&] { return Json::parse(line); });
    }
  }

  void read_table(std::string_view text, char separator) {
    TableRows rows(text, separator);
    if (!rows.has_next()) return;
    const auto header = read_header(rows);
    while (rows.has_next()) {
      take(rows.line(), [&] { return header.to_json(rows.next()); });
    }
  }

  [[nodiscard]] TableHeader read_header(TableRows& rows) const {
    const auto line = rows.line();
    try {
      return TableHeader(rows.next());
    } catch (const ManifestError& error) {
      throw ManifestError(place(line) + error.what());
    }
  }

  /// Adds what `json()` says, or the fault on line `number`.
  template <class MakeJson>
  void take(std::size_t number, MakeJson json) {
    try {
      manifest_.utterances.push_back(read_utterance(json()));
    } catch (const Error& error) {
      auto reason = without_line(error.what());
      if (options_.strict) throw ManifestError(place(number) + reason);
      manifest_.faults.push_back({number, std::move(reason)});
    }
  }

  [[nodiscard]] Utterance read_utterance(const Json& line) const {
    Utterance utterance = utterance_of(line, folder_);
    if (options_.check_files && !exists(utterance.audio_filepath))
      throw ManifestError("audio file " + utterance.audio_filepath.string() + " does not exist");
    return utterance;
  }

  /// Of a name that no file system takes, false rather than its own kind of error.
  [[nodiscard]] static bool exists(const std::filesystem::path& audio) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(audio, ignored);
  }

  /// The parser counts lines from 1 within its text, which is one line here.
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
  Manifest manifest_;
};

}  // namespace detail

inline std::string Manifest::describe_faults(std::size_t at_most) const {
  return detail::describe_lines(faults.size() == 1 ? "line is wrong" : "lines are wrong", path, faults,
                                at_most);
}

inline Manifest read_manifest(const std::filesystem::path& path, ManifestReadOptions options) {
  return detail::ManifestReader(path, options).read();
}

inline std::vector<Utterance> load_manifest(const std::filesystem::path& path, ManifestOptions options) {
  return read_manifest(path, {.check_files = options.check_files, .strict = true}).utterances;
}

}  // namespace looptorch
