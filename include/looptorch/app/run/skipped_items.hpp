// SPDX-License-Identifier: MIT
// Lists what a run skips as unusable (lines of manifests, texts, clips), each with the reason. So a few
// damaged files among thousands do not end a night's run, and are still reported.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/data/loader/loader_error.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app {

/// The words of `SkippedItems::describe`.
struct SkippedWords {
  std::string one = "entry", many = "entries";
  /// The reasons that the program counts by kind: {"by a wrong line", "without audio"}.
  std::vector<std::string> kinds = {};
};

/// Selects the entries that `SkippedItems::describe` counts and lists.
struct SkippedListing {
  std::size_t from = 0;      ///< the first entry, in the order in which they were added
  std::size_t at_most = 20;  ///< lines of each kind
};

/// A list of what was skipped. One thread adds to it.
class SkippedItems {
 public:
  explicit SkippedItems(SkippedWords words = {}) : words_(std::move(words)) {}

  /// Adds the first line of `reason`, "FILE: why" or "FILE:LINE: why", unless it is listed already. `kind` is
  /// an index of `SkippedWords::kinds`.
  void add(const std::string& reason, std::size_t kind = 0) {
    auto line = looptorch::detail::first_line(reason);
    if (known_.insert(line).second) entries_.push_back({std::move(line), kind});
  }

  /// Adds the samples that a loader with OnError::skip has skipped, each with its path.
  void add(const SkippedSamples& skipped, std::size_t kind = 0) {
    for (const auto& [epoch, batch, index, path, what] : skipped.first)
      add(path.empty() || what.find(path) != std::string::npos ? what : path + ": " + what, kind);
  }

  /// Adds each line of `list`, which `list()` wrote in an earlier process.
  void add_lines(const std::string& list) {
    std::istringstream lines(list);
    for (std::string line; std::getline(lines, line);) add(line);
  }

  [[nodiscard]] std::size_t count() const { return entries_.size(); }
  [[nodiscard]] std::size_t count(std::size_t kind) const { return of_kind(kind, 0).size(); }

  /// Returns all entries, a line each.
  [[nodiscard]] std::string list() const {
    std::string text;
    for (const auto& entry : entries_) text += entry.reason + "\n";
    return text;
  }

  /// Returns the number of entries, in all and of each kind, then entries, a line each. Empty without any.
  [[nodiscard]] std::string describe(SkippedListing listing = {}) const {
    const auto count = entries_.size() - std::min(listing.from, entries_.size());
    if (count == 0) return {};
    auto text = message(count, " ", count == 1 ? words_.one + " is" : words_.many + " are",
                        " skipped (--on-bad-audio stop ends the run instead):");
    for (std::size_t kind = 0; kind < words_.kinds.size(); ++kind)
      text += message(kind == 0 ? " " : ", ", of_kind(kind, listing.from).size(), " ", words_.kinds[kind]);
    text += "\n";
    for (std::size_t kind = 0; kind < std::max<std::size_t>(words_.kinds.size(), 1); ++kind)
      text += lines_of(of_kind(kind, listing.from), listing.at_most);
    return text;
  }

 private:
  struct Entry {
    std::string reason;
    std::size_t kind;
  };

  [[nodiscard]] std::vector<std::string> of_kind(std::size_t kind, std::size_t from) const {
    std::vector<std::string> reasons;
    for (std::size_t i = from; i < entries_.size(); ++i) {
      if (entries_[i].kind == kind) reasons.push_back(entries_[i].reason);
    }
    return reasons;
  }

  [[nodiscard]] static std::string lines_of(const std::vector<std::string>& reasons, std::size_t at_most) {
    std::string text;
    const auto listed = std::min(at_most, reasons.size());
    for (std::size_t i = 0; i < listed; ++i) text += "  " + reasons[i] + "\n";
    if (listed < reasons.size()) text += message("  and ", reasons.size() - listed, " more\n");
    return text;
  }

  SkippedWords words_;
  std::vector<Entry> entries_;
  std::set<std::string> known_;
};

/// Prints what `List::describe()` returns on stderr as it goes out of scope, after an exception too. The list
/// must outlive it.
template <class List>
class PrintAtEnd {
 public:
  explicit PrintAtEnd(const List& list) : list_(list) {}
  PrintAtEnd(const PrintAtEnd&) = delete;
  PrintAtEnd& operator=(const PrintAtEnd&) = delete;
  ~PrintAtEnd() {
    const auto text = list_.describe();
    if (!text.empty()) std::cerr << text << (text.ends_with('\n') ? "" : "\n") << std::flush;
  }

 private:
  const List& list_;
};

}  // namespace looptorch::app
