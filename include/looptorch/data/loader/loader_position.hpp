// SPDX-License-Identifier: MIT
// A loader's position, and the check that another loader can resume from it. The position is two numbers, and
// the check compares a few settings, since samplers have no state.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_comparison.hpp>
#include <looptorch/base/state_dict.hpp>

#include <cstdint>

namespace looptorch {

/// A position in a loader's epochs. The current batch counts as processed once its iterator is advanced.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< batches of the epoch that are processed, skipped ones included

  bool operator==(const LoaderPosition&) const = default;
};

namespace detail {

/// Throws StateError unless a loader with the identity `saved` yields the same batches as one with `mine`.
inline void require_same_loader(const StateDict& saved, const StateDict& mine) {
  if (const auto differences = compare_values(mine, saved, "", "the state"); !differences.empty())
    throw StateError(message("this state is of a loader with other batches, and cannot be resumed from: ",
                             joined(differences, "; ")));
}

}  // namespace detail
}  // namespace looptorch
