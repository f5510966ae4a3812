// SPDX-License-Identifier: MIT
// Declares a loader's position: two numbers, epoch and batch, since samplers have no state. A stream's
// position also has the stream's state. A resumed run compares the settings that determine the batches with
// the snapshot's, so that the position means the same samples.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/base/tensors/state_comparison.hpp>
#include <looptorch/data/loader/data_fingerprint.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace looptorch {

/// A position in a loader's epochs. The current batch counts as processed once its iterator is advanced.
struct LoaderPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< batches of the epoch that are processed, skipped ones included

  bool operator==(const LoaderPosition&) const = default;
};

/// The saved state of a stream, and the position at which the stream had it.
struct StreamPlace {
  LoaderPosition at;
  std::shared_ptr<const StateDict> state;
};

namespace detail {

/// Throws StateError unless a loader with the identity `saved` yields the same batches as one with `mine`.
/// Fingerprints are compared if both have one; `different_data(saved)` says how they differ.
inline void require_same_loader(StateDict saved, StateDict mine,
                                const std::function<std::string(const std::string&)>& different_data) {
  drop_lone_fingerprint(mine, saved);
  std::vector<std::string> differences;
  for (const DifferentValue& value : differing_values(mine, saved))
    differences.push_back(value.key == kFingerprint ? different_data(saved.get<std::string>(kFingerprint))
                                                    : sentence(value, "", "the state"));
  if (!differences.empty())
    throw StateError(message("this state is of a loader with other batches, and cannot be resumed from: ",
                             joined(differences, "; ")));
}

}  // namespace detail
}  // namespace looptorch
