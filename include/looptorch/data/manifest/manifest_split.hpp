// SPDX-License-Identifier: MIT
// Splits utterances at random into training, validation and test parts. The same utterances in the same order
// and the same seed give the same parts, with every compiler and on every machine. Takes linear time.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/manifest.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace looptorch {

/// The parts' shares; the test's is the rest.
struct SplitShares {
  double train = 0.8;
  double validation = 0.1;
};

/// Utterances in three parts, each shuffled. A part may be empty.
struct ManifestSplit {
  std::vector<Utterance> train, validation, test;
};

/// Puts each utterance into one part, shuffled. Rounds down the size of the training part, and of training
/// and validation together; the test part gets the rest: 9 utterances become 7, 1 and 1. Throws UsageError
/// for shares that are negative or together more than 1.
[[nodiscard]] inline ManifestSplit split_utterances(std::vector<Utterance> utterances,
                                                    std::uint64_t seed = 42, SplitShares shares = {}) {
  const double both = shares.train + shares.validation;
  if (!(shares.train >= 0 && shares.validation >= 0 && both <= 1 + 1e-9))
    throw UsageError(message("split_utterances: the shares ", shares.train, " and ", shares.validation,
                             " must not be negative, nor more than 1 together"));
  const auto size = static_cast<std::int64_t>(utterances.size());
  const auto count_of = [size](double share) {
    constexpr double kRounding = 1e-9;  // for the rounding of shares like 0.1
    return static_cast<std::size_t>(std::floor((share + kRounding) * static_cast<double>(size)));
  };
  const auto order = RandomSampler{.seed = seed}.order(0, size);
  ManifestSplit split;
  for (std::size_t i = 0; i < order.size(); ++i) {
    auto& part = i < count_of(shares.train) ? split.train
                 : i < count_of(both)       ? split.validation
                                            : split.test;
    part.push_back(std::move(utterances[static_cast<std::size_t>(order[i])]));
  }
  return split;
}

}  // namespace looptorch
