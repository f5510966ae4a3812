// SPDX-License-Identifier: MIT
// Names the changes that a preflight tries if a run does not fit, for its report. By default the names are
// policies to list, such as `Autocast<bf16>{}`; a program may set the names of its flags instead.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace looptorch {

/// How a report names each change. A change whose text or function is empty is not tried.
struct PreflightRemedies {
  std::int64_t least_batch = 1;  ///< The smallest micro-batch that the run takes.
  /// Names a window of `count` micro-batches of `samples` samples each.
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
