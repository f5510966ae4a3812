// SPDX-License-Identifier: MIT
// Converts the rows of a CSV or TSV text to JSON objects, so that lines of all formats are checked alike.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/datasets/audio_files.hpp>
#include <looptorch/data/manifest/audio_name.hpp>
#include <looptorch/data/manifest/manifest_layout.hpp>
#include <looptorch/data/manifest/manifest_names.hpp>
#include <looptorch/data/manifest/manifest_rows.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace looptorch::detail {

/// The meaning of a table's columns, from its header.
class TableHeader {
 public:
  /// Reads the header. Throws ManifestError for one without audio or text, or with two columns of one
  /// meaning.
  TableHeader(const std::vector<std::string>& names, char separator) : separator_(separator) {
    for (const auto& name : names) {
      const auto key = manifest_key_of(name);
      if (!key.empty() && std::find(keys_.begin(), keys_.end(), key) != keys_.end())
        throw ManifestError(message("the header has two columns for \"", key, "\""));
      keys_.emplace_back(key);
      is_path_.push_back(name == "path");
    }
    for (const char* needed : {"audio_filepath", "text"}) {
      if (std::find(keys_.begin(), keys_.end(), needed) == keys_.end())
        throw ManifestError(message("the header has no column for \"", needed, "\"; it has ",
                                    describe_columns(names), "; the column may be called ",
                                    names_of_manifest_key(needed)));
    }
  }

  /// Returns why `text`, read as these fields, is no row of this table; empty if it is one. Rows that an
  /// unclosed quote has merged still name their audio files, each on its own line.
  [[nodiscard]] std::string find_fault(const std::vector<std::string>& fields, std::string_view text) const {
    if (fields.size() != keys_.size())
      return message("has ", fields.size(), " fields, the header ", keys_.size());
    if (text.find('\n') + 1 == text.size()) return {};
    const auto audio = std::find(keys_.begin(), keys_.end(), "audio_filepath") - keys_.begin();
    const std::string_view kind = kind_of(fields[static_cast<std::size_t>(audio)]);
    int files = 0;
    while (!text.empty()) files += names_audio(take_until('\n', text), kind);
    return files > 1 ? "holds lines that name audio of their own, as if a quote were not closed" : "";
  }

  /// Returns a row without faults as a line of JSON; an empty optional field is absent.
  [[nodiscard]] Json to_json(const std::vector<std::string>& fields) const {
    Json line = Json::object();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool is_needed = keys_[i] == "audio_filepath" || keys_[i] == "text";
      if (keys_[i].empty() || (fields[i].empty() && !is_needed)) continue;
      check_field_utf8(keys_[i], fields[i]);
      line.set(keys_[i], value(i, fields[i]));
    }
    return line;
  }

 private:
  [[nodiscard]] bool names_audio(std::string_view line, std::string_view kind) const {
    while (!line.empty()) {
      const auto field = take_until(separator_, line);
      if ((!kind.empty() && kind_of(field) == kind) ||
          std::count(std::begin(kAudioExtensions), std::end(kAudioExtensions), extension_of(field)))
        return true;
    }
    return false;
  }

  /// Returns what the names of audio files in a table share: the extension, or the folder of names without
  /// one. Empty for a name that has neither, which could be any word.
  [[nodiscard]] static std::string_view kind_of(std::string_view field) {
    if (const auto extension = extension_of(field); !extension.empty()) return extension;
    field = field.substr(std::min(field.find_first_not_of(" \""), field.size()));
    return field.substr(0, field.rfind('/') + 1);
  }

  /// Returns the extension, from the last dot of the file's name on. The field may be a part of a quoted one.
  [[nodiscard]] static std::string_view extension_of(std::string_view field) {
    field = field.substr(0, field.find_last_not_of(" \"\r") + 1);
    field = field.substr(field.rfind('/') + 1);
    return field.substr(std::min(field.rfind('.'), field.size()));
  }

  [[nodiscard]] Json value(std::size_t column, const std::string& field) const {
    const auto& key = keys_[column];
    if (key == "duration" || key == "start" || key == "offset" || key == "end") return number(key, field);
    return is_path_[column] ? name_in_clips(field) : field;
  }

  [[nodiscard]] static Json number(const std::string& key, const std::string& field) {
    double value = 0;
    const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (code != std::errc{} || end != field.data() + field.size())
      throw ManifestError(message("\"", key, "\" must be a number, found \"", printable(field), "\""));
    return value;
  }

  /// Returns the first columns of a header for a message.
  [[nodiscard]] static std::string describe_columns(const std::vector<std::string>& names) {
    constexpr std::size_t kListed = 12;
    std::string out;
    for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i)
      out += message(i > 0 ? ", \"" : "\"", printable(names[i]), "\"");
    return names.size() > kListed ? out + ", ..." : out;
  }

  /// Returns the beginning of a field for a message.
  [[nodiscard]] static std::string printable(std::string_view field) {
    return replace_invalid_utf8(field.substr(0, 60));
  }

  char separator_;
  std::vector<std::string> keys_;  ///< each column's key; empty if the column is ignored
  std::vector<bool> is_path_;      ///< true for Common Voice's column of audio
};

}  // namespace looptorch::detail
