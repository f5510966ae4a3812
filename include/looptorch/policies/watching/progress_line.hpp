// SPDX-License-Identifier: MIT
// Builds ShowProgress's line so that it fits the terminal: abbreviates long names, then drops the least
// important parts. Numbers stay whole, unless a terminal is too narrow for the first part alone.
#pragma once

#include <looptorch/base/process/terminal.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A label, which may be shortened, and a value, which may not.
struct LinePart {
  static constexpr int kAlways = 0, kLoss = 1;

  std::string label;
  std::string value;
  int rank = kAlways;  ///< The part with the highest rank is dropped first; of equal ranks the last.
};

/// Returns `text` in at most `columns`, at least 3: the middle of a longer text becomes "…".
inline std::string shortened(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  const std::size_t last = (columns - 1) / 2;
  std::size_t at = 0;
  for (std::size_t skip = columns_of(text) - last; skip > 0; --skip) at += utf8_step(text, at).size;
  return first_columns(text, columns - 1 - last) + "…" + std::string(text.substr(at));
}

class ProgressLine {
 public:
  /// Adds a part, unless its value is empty.
  void add(std::string label, std::string value, int rank) {
    if (!value.empty()) parts_.push_back({std::move(label), std::move(value), rank});
  }

  /// Returns all parts, two spaces between them.
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const LinePart& part : parts_) {
      if (!text.empty()) text += "  ";
      text += part.label + (part.label.empty() ? "" : " ") + part.value;
    }
    return text;
  }

  /// Returns a text of at most `columns`: shortens labels a little, drops parts that are no loss, shortens
  /// labels as far as a reader can tell them apart, drops losses. Cuts only a first part that is too long by
  /// itself.
  [[nodiscard]] std::string text(std::size_t columns) const {
    constexpr std::size_t kReadable = 16, kRecognisable = 7;
    ProgressLine line = *this;
    const auto fits = [&] { return columns_of(line.text()) <= columns; };
    if (!fits()) line.shorten_labels(kReadable);
    while (!fits() && line.leave_out(LinePart::kLoss + 1)) {
    }
    if (!fits()) line.shorten_labels(kRecognisable);
    while (!fits() && line.leave_out(LinePart::kLoss)) {
    }
    return first_columns(line.text(), columns);
  }

 private:
  void shorten_labels(std::size_t columns) {
    for (LinePart& part : parts_) part.label = shortened(part.label, columns);
  }

  /// Drops a part whose rank is at least `lowest`; false if there is none.
  bool leave_out(int lowest) {
    std::size_t last = parts_.size();
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].rank >= lowest && (last == parts_.size() || parts_[i].rank >= parts_[last].rank))
        last = i;
    if (last == parts_.size()) return false;
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(last));
    return true;
  }

  std::vector<LinePart> parts_;
};

}  // namespace looptorch::detail
