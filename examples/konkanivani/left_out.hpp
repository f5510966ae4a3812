// SPDX-License-Identifier: MIT
// What a run leaves out because it cannot be used: lines of manifests, texts and clips, each with the reason.
// Functions that take a `LeftOut*` list there what is wrong and go on; without one they throw at the first.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/loader/loader_error.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace konkanivani {

/// A list of what was left out. One thread adds to it.
class LeftOut {
 public:
  /// Adds "FILE: why" or "FILE:LINE: why", once however often it is met.
  void add(std::string what) {
    if (known_.insert(what).second) listed_.push_back(std::move(what));
  }

  /// Adds what a loader with OnError::skip has left out.
  void add(const looptorch::SkippedSamples& skipped) {
    for (const auto& [epoch, batch, index, path, message] : skipped.first)
      add(message.find(path) == std::string::npos ? path + ": " + message : message);
  }

  [[nodiscard]] std::size_t count() const { return listed_.size(); }

  /// The number of entries, then the first `at_most`, a line each; empty if there are none.
  [[nodiscard]] std::string describe(std::size_t at_most = 20) const {
    if (listed_.empty()) return {};
    auto text = looptorch::message("left out ", count(), count() == 1 ? " entry" : " entries",
                                   " that cannot be used:");
    for (std::size_t i = 0; i < std::min(at_most, count()); ++i) text += "\n  " + listed_[i];
    return at_most < count() ? text + looptorch::message("\n  and ", count() - at_most, " more") : text;
  }

 private:
  std::set<std::string> known_;
  std::vector<std::string> listed_;
};

/// In a catch block: lists what was caught, or throws it again where there is no list.
inline void list_or_rethrow(LeftOut* left_out, const std::exception& caught) {
  if (left_out == nullptr) throw;
  left_out->add(caught.what());
}

/// Prints a list on stderr when it goes out of scope, after an exception too.
class PrintAtEnd {
 public:
  explicit PrintAtEnd(const LeftOut& left_out) : left_out_(left_out) {}
  PrintAtEnd(const PrintAtEnd&) = delete;
  PrintAtEnd& operator=(const PrintAtEnd&) = delete;
  ~PrintAtEnd() {
    if (left_out_.count() > 0) std::cerr << left_out_.describe() << std::endl;
  }

 private:
  const LeftOut& left_out_;
};

}  // namespace konkanivani
