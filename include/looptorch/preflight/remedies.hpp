// SPDX-License-Identifier: MIT
// What a preflight tries if a run does not fit, and how its reader asks for each: by policies as the author
// of a program, by flags as its user.
#pragma once

#include <looptorch/base/error.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace looptorch {

/// The remedies that the reader of a report has. An empty text or function is one that the reader does not
/// have: it is neither tried nor named. By default policies for a Trainer's list.
struct PreflightRemedies {
  std::int64_t least_batch = 1;  ///< The smallest micro-batch that the run takes.
  /// Asks for micro-batches of so many samples, and so many of them in a window.
  std::function<std::string(std::int64_t samples, std::int64_t count)> batches = [](std::int64_t samples,
                                                                                    std::int64_t count) {
    return message("micro-batches of ", samples, " with Accumulate<", count, ">{}");
  };
  /// Asks for recomputation in all Checkpointed layers; `policies` lists their policies.
  std::function<std::string(const std::string& policies)> recomputation = [](const std::string& policies) {
    return policies;
  };
  std::string bf16 = "Autocast<bf16>{}";
  std::string separator = ", ";  ///< Between two remedies that are used together.
  /// Asks for a child of the model, by its name, to be frozen.
  std::function<std::string(const std::string& child)> frozen = [](const std::string& child) {
    return message("Freeze{\"", child, ".*\"}");
  };
};

}  // namespace looptorch
