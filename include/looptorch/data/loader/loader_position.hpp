// SPDX-License-Identifier: MIT
// Where a loader stands, and what it must have in common with another one to go on from there: two numbers
// and a few settings, since samplers have no state.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_comparison.hpp>
#include <looptorch/base/state_dict.hpp>

#include <cstdint>

namespace looptorch {

/// A place in a loader's epochs. The batch in the reader's hands is not done with until its iterator is
/// advanced.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< batches of the epoch that are done with, left out ones included

  bool operator==(const LoaderPosition&) const = default;
};

namespace detail {

/// Throws StateError unless batches of the loader with the identity `saved` are those of the one with `mine`.
inline void require_same_loader(const StateDict& saved, const StateDict& mine) {
  if (const auto differences = compare_values(mine, saved, "", "the state"); !differences.empty())
    throw StateError(
        message("this state is of a loader whose batches are others, and cannot be gone on from: ",
                joined(differences, "; ")));
}

}  // namespace detail
}  // namespace looptorch
