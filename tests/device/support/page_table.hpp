// SPDX-License-Identifier: MIT
// Reads and rewrites a table in a page of docs/ that a test generates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::testing {

/// The rows of the table in docs/`page` whose first line is `head`.
class PageTable {
 public:
  PageTable(const std::string& page, std::string head)
      : path_(LOOPTORCH_SOURCE_DIR "/docs/" + page), head_(std::move(head)) {
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
    while (begin_ < lines_.size() && lines_[begin_] != head_) ++begin_;
    begin_ = std::min(lines_.size(), begin_ + 2);  // behind the head and its rule
    for (end_ = begin_; end_ < lines_.size() && lines_[end_].starts_with("|");) ++end_;
  }

  [[nodiscard]] std::vector<std::string> rows() const { return {at(begin_), at(end_)}; }
  /// Replaces the rows on the page.
  void write(const std::vector<std::string>& rows) {
    lines_.erase(at(begin_), at(end_));
    lines_.insert(at(begin_), rows.begin(), rows.end());
    end_ = begin_ + rows.size();
    std::ofstream out(path_);
    for (const std::string& line : lines_) out << line << '\n';
  }

 private:
  [[nodiscard]] std::vector<std::string>::const_iterator at(std::size_t line) const {
    return lines_.begin() + static_cast<std::ptrdiff_t>(line);
  }

  std::string path_, head_;
  std::vector<std::string> lines_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace looptorch::testing
