// SPDX-License-Identifier: MIT
// Finds the names nearest to one that was not found, for "did you mean" in an error. Comparing two names
// takes time proportional to the product of their lengths, so use it only for an error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {

/// Returns the least number of bytes to insert, remove or replace to turn `a` into `b` (Levenshtein).
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// Returns at most `count` candidates, the nearest first. A candidate is near if its distance is at most a
/// third of the longer name, or if one name ends in a dot and the other name. Names beyond 512 bytes are
/// skipped.
[[nodiscard]] std::vector<std::string> near_names(std::string_view name,
                                                  const std::vector<std::string>& candidates,
                                                  std::size_t count = 2);

namespace detail {

inline constexpr std::size_t kLongestNearName = 512;

inline bool is_tail_of(std::string_view tail, std::string_view name) {
  return name.size() > tail.size() && name.ends_with(tail) && name[name.size() - tail.size() - 1] == '.';
}

inline bool is_near(std::string_view a, std::string_view b, std::size_t distance) {
  return distance * 3 <= std::max(a.size(), b.size()) || is_tail_of(a, b) || is_tail_of(b, a);
}

}  // namespace detail

inline std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& candidates,
                                           std::size_t count) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const auto& candidate : candidates) {
    if (std::max(name.size(), candidate.size()) > detail::kLongestNearName) continue;
    const auto distance = edit_distance(name, candidate);
    if (detail::is_near(name, candidate, distance)) near.emplace_back(distance, candidate);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(count, near.size()); ++i) names.push_back(std::move(near[i].second));
  return names;
}

}  // namespace looptorch
