// SPDX-License-Identifier: MIT
// Opens and closes named, nested ranges in traces of LibTorch's profiler, so that a trace shows which phase
// or module a kernel belongs to. Records nothing without a profiler.
#pragma once

#include <ATen/record_function.h>

#include <cstddef>
#include <deque>
#include <string>

namespace looptorch::detail {

/// Ranges that close in the reverse order of their opening.
class TraceRanges {
 public:
  TraceRanges() = default;
  ~TraceRanges() { close_to(0); }
  TraceRanges(const TraceRanges&) = delete;
  TraceRanges& operator=(const TraceRanges&) = delete;

  /// Opens a range.
  void open(const std::string& name) {
    ranges_.emplace_back(at::RecordScope::USER_SCOPE);
    ranges_.back().before(printable(name));
  }
  [[nodiscard]] std::size_t depth() const { return ranges_.size(); }
  /// Closes the innermost ranges, until no more than `depth` are open.
  void close_to(std::size_t depth) {
    while (ranges_.size() > depth) ranges_.pop_back();
  }

 private:
  /// Replaces characters that the profiler would write unescaped into the trace's JSON.
  static std::string printable(std::string name) {
    for (char& c : name)
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = '\'';
    return name;
  }

  std::deque<at::RecordFunction> ranges_;
};

}  // namespace looptorch::detail
