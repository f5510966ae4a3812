// SPDX-License-Identifier: MIT
// Reads rows of a CSV or TSV text, each with its line number, for manifests and for other tables. Takes
// linear time for any text, also for one full of unclosed quotes: see TableRows::refuse.
#pragma once

#include <looptorch/data/manifest/utterance.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

namespace detail {

/// Returns the text up to `end`, or all of it, and removes it with `end` from `text`.
[[nodiscard]] inline std::string_view take_until(char end, std::string_view& text) {
  const auto part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

[[nodiscard]] inline bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace detail

/// Reads row after row. Fields are separated by commas or semicolons, with the quotes of RFC 4180, by bars,
/// or by tabs. Between bars, as LJSpeech has them, quotes are ordinary characters. With tabs, as Common Voice
/// writes, quotes are ordinary characters and a backslash escapes a tab, line end, quote or backslash. A row
/// that breaks the rules throws, and reading continues at the line after its first: an unclosed quote costs
/// one line, not the rest of the file.
class TableRows {
 public:
  /// Reads `text`, which must outlive this; `separator` is one of ",;|\t". Skips a byte order mark, as Excel
  /// writes it before the first field.
  TableRows(std::string_view text, char separator) : text_(text), separator_(separator) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  /// True if there is another row; blank lines are skipped.
  [[nodiscard]] bool has_next() {
    while (at_ < text_.size() && detail::is_blank(text_.substr(at_, line_end(at_) - at_))) {
      at_ = behind_line(at_);
      ++line_;
    }
    return at_ < text_.size();
  }

  /// Returns the line of the next row, from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

  /// Returns the fields of the next row, which must be there. Throws ManifestError for a row that breaks the
  /// rules.
  [[nodiscard]] std::vector<std::string> next() {
    row_ = at_, row_line_ = line_;
    limit_ = reread_ <= kRereads * text_.size() ? text_.size() : line_end(row_);
    std::vector<std::string> fields;
    do {
      fields.push_back(field());
    } while (at_ < text_.size() && text_[at_++] == separator_);
    const auto row = last();
    line_ += static_cast<std::size_t>(std::count(row.begin(), row.end(), '\n'));
    return fields;
  }

  /// Returns the text of the row that `next` returned, of one line or more.
  [[nodiscard]] std::string_view last() const { return text_.substr(row_, at_ - row_); }

  /// Throws ManifestError with the fault of the last row. The lines after its first are read again as rows of
  /// their own. If a text makes that happen repeatedly, no further row may span more than one line.
  [[noreturn]] void refuse(const std::string& what) {
    const auto next_line = behind_line(row_);
    reread_ += std::max(at_, next_line) - next_line;
    at_ = next_line, line_ = row_line_ + 1;
    throw ManifestError(what);
  }

 private:
  static constexpr std::size_t kRereads = 4;  ///< limit, as a multiple of the whole text

  [[nodiscard]] std::size_t line_end(std::size_t from) const {
    return std::min(text_.find('\n', from), text_.size());
  }
  [[nodiscard]] std::size_t behind_line(std::size_t from) const {
    return std::min(line_end(from) + 1, text_.size());
  }
  [[nodiscard]] bool at_field_end() const {
    return at_ == text_.size() || text_[at_] == separator_ || text_[at_] == '\n';
  }

  [[nodiscard]] std::string field() {
    if (separator_ == '\t') return escaped();
    return separator_ != '|' && text_.substr(at_, 1) == "\"" ? quoted() : plain();
  }

  /// Reads an unquoted field; a quote inside is an ordinary character.
  [[nodiscard]] std::string plain() {
    const auto start = at_;
    while (!at_field_end()) ++at_;
    return without_return(std::string(text_.substr(start, at_ - start)));
  }

  [[nodiscard]] std::string escaped() {
    std::string field;
    for (; !at_field_end(); ++at_) {
      if (is_escape()) ++at_;
      field += text_[at_];
    }
    return without_return(std::move(field));
  }

  [[nodiscard]] bool is_escape() const {
    constexpr std::string_view kEscaped = "\t\r\n\"\\";
    return text_[at_] == '\\' && at_ + 1 < limit_ && kEscaped.find(text_[at_ + 1]) != std::string_view::npos;
  }

  /// Returns the field that ends here, without the carriage return of a line end.
  [[nodiscard]] std::string without_return(std::string field) const {
    const bool ends_row = at_ == text_.size() || text_[at_] == '\n';
    if (ends_row && field.ends_with('\r')) field.pop_back();
    return field;
  }

  [[nodiscard]] std::string quoted() {
    std::string field;
    for (;;) {
      const auto part = ++at_;
      at_ = std::min(text_.substr(0, limit_).find('"', part), limit_);
      if (at_ == limit_) refuse("a quoted field without an end");
      field += text_.substr(part, at_ - part);
      if (text_.substr(++at_, 1) != "\"") break;
      field += '"';
    }
    if (text_.substr(at_, 2) == "\r\n" || text_.substr(at_) == "\r") ++at_;
    if (!at_field_end()) refuse("text after the end of a quoted field");
    return field;
  }

  std::string_view text_;
  char separator_;
  std::size_t at_ = 0, line_ = 1;
  std::size_t row_ = 0, row_line_ = 1;  ///< the beginning of the last row
  std::size_t limit_ = 0;               ///< the end of its allowed text
  std::size_t reread_ = 0;              ///< bytes read again
};

}  // namespace looptorch
