// SPDX-License-Identifier: MIT
// Formats an alignment as lines of text, each word or character above its counterpart:
//
//   REF  turn left  heading ***
//   HYP  turn right heading two
//             S             I
//
// Columns are counted as on a terminal: combining marks take none, wide characters two.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/tables/unicode_ranges.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// The width at which `alignment_text` breaks lines.
struct AlignmentTextOptions {
  std::size_t line_width = 80;  ///< columns; a longer alignment continues in further blocks. 0: no limit
};

/// Returns blocks of three lines with a blank line between: reference, hypothesis and S, D or I beneath an
/// error; asterisks stand for a missing token. Control characters, also those of the writing direction, are
/// shown as pictures or numbers ("␛", "<U+9B>"), and a mark without its base on a dotted circle. An empty
/// alignment returns an empty text. Throws UsageError for a width that holds no label.
[[nodiscard]] std::string alignment_text(const Alignment& alignment, AlignmentTextOptions options = {});

/// Returns the columns that a text takes on a terminal: one for a grapheme cluster, or two if it begins with
/// a wide character. A mark without its base takes one.
[[nodiscard]] inline std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const auto cluster : grapheme_clusters(text)) {
    width += find_range(detail::kWide, utf8_step(cluster, 0).code_point) ? 2 : 1;
  }
  return width;
}

namespace detail {

/// True for control characters that a terminal may obey and Unicode has no picture of: the C1 controls,
/// directions, line separators.
[[nodiscard]] constexpr bool is_unpictured_control(char32_t c) {
  return (c >= 0x80 && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

[[nodiscard]] inline std::string code_point_name(char32_t c) {
  char name[16];
  std::snprintf(name, sizeof name, "<U+%X>", static_cast<unsigned>(c));
  return name;
}

/// Returns the token with control characters and leading marks made visible.
[[nodiscard]] inline std::string visible(std::string_view token) {
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const auto [c, size, is_valid] = utf8_step(token, at);
    if (at == 0 && is_mark(c)) append_utf8(out, U'\u25CC');
    if (is_unpictured_control(c))
      out += code_point_name(c);
    else
      append_utf8(out, c < 0x20 ? 0x2400 + c : c == 0x7F ? U'\u2421' : c);
    at += size;
  }
  return out;
}

class AlignmentPrinter {
 public:
  static constexpr std::size_t kLabel = 5;

  AlignmentPrinter(std::string_view separator, std::size_t line_width)
      : separator_(separator), line_width_(line_width) {}

  void put(const Edit& edit) {
    std::string reference = visible(edit.reference), hypothesis = visible(edit.hypothesis);
    const auto width = std::max(display_width(reference), display_width(hypothesis));
    if (edit.kind == EditKind::insertion) reference.assign(width, '*');
    if (edit.kind == EditKind::deletion) hypothesis.assign(width, '*');
    begin_column(width);
    constexpr std::string_view kMarks = " SDI";
    append(reference_, reference, width);
    append(hypothesis_, hypothesis, width);
    append(marks_, kMarks.substr(static_cast<std::size_t>(edit.kind), 1), width);
    width_ += width;
  }

  [[nodiscard]] std::string finish() {
    flush();
    return std::move(out_);
  }

 private:
  void begin_column(std::size_t width) {
    if (width_ > 0 && line_width_ > 0 && kLabel + width_ + separator_.size() + width > line_width_) flush();
    if (width_ == 0) return;
    for (auto* line : {&reference_, &hypothesis_, &marks_}) *line += separator_;
    width_ += separator_.size();
  }

  static void append(std::string& line, std::string_view token, std::size_t width) {
    line.append(token).append(width - display_width(token), ' ');
  }

  static std::string trimmed(std::string_view line) {
    return std::string(line.substr(0, line.find_last_not_of(' ') + 1));
  }

  void flush() {
    if (width_ == 0) return;
    if (!out_.empty()) out_ += '\n';
    for (const auto* line : {&reference_, &hypothesis_, &marks_}) out_ += trimmed(*line) + '\n';
    reference_ = "REF  ", hypothesis_ = "HYP  ", marks_ = "     ";
    width_ = 0;
  }

  std::string_view separator_;
  std::size_t line_width_, width_ = 0;
  std::string reference_ = "REF  ", hypothesis_ = "HYP  ", marks_ = "     ", out_;
};

}  // namespace detail

inline std::string alignment_text(const Alignment& alignment, AlignmentTextOptions options) {
  if (options.line_width > 0 && options.line_width <= detail::AlignmentPrinter::kLabel) {
    throw UsageError(message("alignment_text: line_width is ", options.line_width,
                             "; it must be 0 or more than ", detail::AlignmentPrinter::kLabel));
  }
  detail::AlignmentPrinter printer(alignment.separator, options.line_width);
  for (const auto& edit : alignment.edits) printer.put(edit);
  return printer.finish();
}

}  // namespace looptorch
