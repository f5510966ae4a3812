// SPDX-License-Identifier: MIT
// Where a loader stands, and what it must have in common with another one to go on from there: two numbers
// and a few settings, since samplers have no state.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/detail/value_text.hpp>
#include <looptorch/state/state_dict.hpp>

#include <cstdint>
#include <string>

namespace looptorch {

/// A place in a loader's epochs. The batch in the reader's hands is not done with until its iterator is
/// advanced.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< batches of the epoch that are done with, left out ones included

  bool operator==(const LoaderPosition&) const = default;
};

namespace detail {

inline std::string value_text(const StateDict& state, const std::string& key) {
  return state.contains(key) ? value_text(state.values().at(key)) : "not told";
}

/// Each setting in which the identities of two loaders differ, with both values; empty if none does.
inline std::string loader_difference(const StateDict& saved, const StateDict& mine) {
  std::string text;
  const auto compare = [&](const std::string& key) {
    const std::string there = value_text(saved, key), here = value_text(mine, key);
    if (there != here)
      text += (text.empty() ? "" : "; ") + message(key, " is ", there, " there, ", here, " here");
  };
  for (const auto& [key, value] : mine.values()) compare(key);
  for (const auto& [key, value] : saved.values())
    if (!mine.contains(key)) compare(key);
  return text;
}

/// Throws StateError unless batches of the loader with the identity `saved` are those of the one with `mine`.
inline void require_same_loader(const StateDict& saved, const StateDict& mine) {
  const std::string difference = loader_difference(saved, mine);
  if (!difference.empty())
    throw StateError(message(
        "this state is of a loader whose batches are others, and cannot be gone on from: ", difference));
}

}  // namespace detail
}  // namespace looptorch
