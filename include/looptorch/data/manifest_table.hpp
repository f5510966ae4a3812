// SPDX-License-Identifier: MIT
// Rows of a CSV or TSV text by RFC 4180, and what they say as JSON objects, so that lines of all formats are
// judged alike.
#pragma once

#include <looptorch/data/manifest_error.hpp>
#include <looptorch/error.hpp>
#include <looptorch/state/json.hpp>
#include <looptorch/state/utf8.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The separator of the table that a manifest's name promises; NUL for JSON lines.
[[nodiscard]] inline char table_separator(const std::filesystem::path& path) {
  const auto extension = path.extension().string();
  return extension == ".csv" ? ',' : extension == ".tsv" ? '\t' : '\0';
}

/// Reads row after row. A row that breaks the rules throws, and reading goes on at the line after its first:
/// an unclosed quote costs one line, not the rest of the file.
class TableRows {
 public:
  TableRows(std::string_view text, char separator) : text_(text), separator_(separator) {}

  /// Whether there is another row; blank lines are passed over.
  [[nodiscard]] bool has_next() {
    while (at_ < text_.size() && is_blank(text_.substr(at_, line_end(at_) - at_))) skip_line(at_);
    return at_ < text_.size();
  }

  /// Where the next row begins, from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

  [[nodiscard]] std::vector<std::string> next() {
    const auto start = at_;
    std::vector<std::string> fields;
    do {
      fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted(start) : plain());
    } while (at_ < text_.size() && text_[at_++] == separator_);
    const auto row = text_.substr(start, at_ - start);
    line_ += static_cast<std::size_t>(std::count(row.begin(), row.end(), '\n'));
    return fields;
  }

 private:
  [[nodiscard]] static bool is_blank(std::string_view line) {
    return line.find_first_not_of(" \t\r") == std::string_view::npos;
  }
  [[nodiscard]] std::size_t line_end(std::size_t from) const {
    return std::min(text_.find('\n', from), text_.size());
  }
  void skip_line(std::size_t start) {
    at_ = std::min(line_end(start) + 1, text_.size());
    ++line_;
  }

  /// Up to a separator or the line's end; a quote inside stands for itself.
  [[nodiscard]] std::string plain() {
    const auto start = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n') ++at_;
    const bool ends_row = at_ == text_.size() || text_[at_] == '\n';
    const bool has_return = ends_row && at_ > start && text_[at_ - 1] == '\r';
    return std::string(text_.substr(start, at_ - start - (has_return ? 1 : 0)));
  }

  [[nodiscard]] std::string quoted(std::size_t row) {
    std::string field;
    for (;;) {
      const auto part = ++at_;
      at_ = std::min(text_.find('"', part), text_.size());
      if (at_ == text_.size()) fail(row, "a quoted field without an end");
      field += text_.substr(part, at_ - part);
      if (text_.substr(++at_, 1) != "\"") break;
      field += '"';
    }
    if (text_.substr(at_, 2) == "\r\n" || text_.substr(at_) == "\r") ++at_;
    if (at_ < text_.size() && text_[at_] != separator_ && text_[at_] != '\n')
      fail(row, "text after the end of a quoted field");
    return field;
  }

  [[noreturn]] void fail(std::size_t row, const char* what) {
    skip_line(row);
    throw ManifestError(what);
  }

  std::string_view text_;
  char separator_;
  std::size_t at_ = 0, line_ = 1;
};

/// What a table's columns mean, from its header.
class TableHeader {
 public:
  /// Throws ManifestError for a header without audio or text, or with two columns of one meaning.
  explicit TableHeader(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      const auto* key = key_of(name);
      if (*key != '\0' && std::find(keys_.begin(), keys_.end(), key) != keys_.end())
        throw ManifestError(message("the header has two columns for \"", key, "\""));
      keys_.emplace_back(key);
      folders_.emplace_back(name == "path" ? "clips/" : "");
    }
    for (const char* needed : {"audio_filepath", "text"}) {
      if (std::find(keys_.begin(), keys_.end(), needed) == keys_.end())
        throw ManifestError(message("the header has no column for \"", needed, "\"; it begins with \"",
                                    printable(names.front()), "\""));
    }
  }

  /// The row as a line of JSON would say it; an empty optional field is absent.
  [[nodiscard]] Json to_json(const std::vector<std::string>& fields) const {
    if (fields.size() != keys_.size())
      throw ManifestError(message("has ", fields.size(), " fields, the header ", keys_.size()));
    Json line = Json::object();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool is_needed = keys_[i] == "audio_filepath" || keys_[i] == "text";
      if (keys_[i].empty() || (fields[i].empty() && !is_needed)) continue;
      check_utf8(keys_[i], fields[i]);
      line.set(keys_[i], value(i, fields[i]));
    }
    return line;
  }

 private:
  [[nodiscard]] static const char* key_of(std::string_view name) {
    static constexpr std::pair<std::string_view, const char*> kNames[] = {
        {"audio_filepath", "audio_filepath"},
        {"audio_file", "audio_filepath"},
        {"path", "audio_filepath"},
        {"text", "text"},
        {"sentence", "text"},
        {"duration", "duration"},
        {"start", "start"},
        {"end", "end"},
        {"speaker", "speaker"},
        {"client_id", "speaker"}};
    for (const auto& [known, key] : kNames) {
      if (known == name) return key;
    }
    return "";
  }

  [[nodiscard]] Json value(std::size_t column, const std::string& field) const {
    const auto& key = keys_[column];
    if (key == "duration" || key == "start" || key == "end") return number(key, field);
    return folders_[column].empty() || field.empty() ? field : folders_[column] + field;
  }

  [[nodiscard]] static Json number(const std::string& key, const std::string& field) {
    double value = 0;
    const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (code != std::errc{} || end != field.data() + field.size())
      throw ManifestError(message("\"", key, "\" must be a number, found \"", printable(field), "\""));
    return value;
  }

  static void check_utf8(const std::string& key, const std::string& field) {
    if (const auto fault = find_invalid_utf8(field); fault != std::string_view::npos)
      throw ManifestError(message("\"", key, "\" is not UTF-8 at its byte ", fault));
  }

  /// The beginning of a field, fit for a message.
  [[nodiscard]] static std::string printable(std::string_view field) {
    return replace_invalid_utf8(field.substr(0, 60));
  }

  std::vector<std::string> keys_;     ///< of each column; empty where it has no meaning here
  std::vector<std::string> folders_;  ///< what a column's files lie in
};

}  // namespace looptorch::detail
