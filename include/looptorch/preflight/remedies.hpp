// SPDX-License-Identifier: MIT
// Names the changes that a preflight tries if a run does not fit, as its report shows them. By default the
// names are policies to list, such as `Autocast<bf16>{}`; a program sets the names of its flags instead. A
// change without a name is not tried.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace looptorch {

/// The remedies available to the report's reader. One with an empty text or function is neither tried nor
/// named. By default policies for a Trainer's list.
struct PreflightRemedies {
  std::int64_t least_batch = 1;  ///< The smallest micro-batch that the run takes.
  /// Names micro-batches of so many samples, and so many of them in a window.
  std::function<std::string(std::int64_t samples, std::int64_t count)> batches = [](std::int64_t samples,
                                                                                    std::int64_t count) {
    return message("micro-batches of ", samples, " with Accumulate<", count, ">{}");
  };
  /// Names recomputation in all Checkpointed layers; `policies` lists their policies.
  std::function<std::string(const std::string& policies)> recomputation = [](const std::string& policies) {
    return policies;
  };
  std::string bf16 = "Autocast<bf16>{}";
  std::string separator = ", ";  ///< Between two remedies of one trial.
  /// Names the freezing of a child of the model.
  std::function<std::string(const std::string& child)> frozen = [](const std::string& child) {
    return message("Freeze{\"", child, ".*\"}");
  };
};

}  // namespace looptorch
