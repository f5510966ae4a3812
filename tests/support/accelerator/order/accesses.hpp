// SPDX-License-Identifier: MIT
// Records the reads and writes of a block of memory, and reports each pair of conflicting accesses that
// nothing orders.
#pragma once

#include "support/accelerator/order/clock.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace looptorch_test::accelerator {

struct Access {
  const char *begin, *end;
  int stream;
  Time time;
  bool writes;
  const std::string* what;  // an operator's name, which outlives the program's tensors
};

/// What was done to a block since it was allocated, as far as it can still be in the way.
class Accesses {
 public:
  /// Adds an access by a stream that knows `known`. Calls `report` with each earlier access that conflicts
  /// with it and is not known to be over.
  template <class Report>
  void add(const Access& access, const Clock& known, const Clock& host, const Report& report) {
    for (const Access& before : all_)
      if (conflict(before, access) && !known.covers(before.stream, before.time)) report(before);
    std::erase_if(all_, [&](const Access& before) { return replaces(access, before); });
    if (all_.size() > kMany)
      std::erase_if(all_, [&](const Access& before) { return host.covers(before.stream, before.time); });
    all_.push_back(access);
  }

  /// Calls `visit` with each access of another stream than `stream` that `known` does not cover.
  template <class Visit>
  void each_beyond(const Clock& known, int stream, const Visit& visit) const {
    for (const Access& access : all_)
      if (access.stream != stream && !known.covers(access.stream, access.time)) visit(access);
  }

  void clear() { all_.clear(); }

 private:
  static constexpr std::size_t kMany = 32;

  static bool conflict(const Access& a, const Access& b) {
    return a.stream != b.stream && (a.writes || b.writes) && a.begin < b.end && b.begin < a.end;
  }
  /// True if whatever conflicts with `before` conflicts with `access`, too.
  static bool replaces(const Access& access, const Access& before) {
    if (access.writes) return before.begin >= access.begin && before.end <= access.end;
    return !before.writes && before.stream == access.stream && before.begin == access.begin &&
           before.end == access.end;
  }

  std::vector<Access> all_;
};

}  // namespace looptorch_test::accelerator
