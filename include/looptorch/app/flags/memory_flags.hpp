// SPDX-License-Identifier: MIT
// Names a program's memory-saving flags, so that a preflight and WatchMemory can recommend them. Leave the
// name of a flag empty if the program lacks that flag.
//
//   const app::MemoryFlags flags{.least_batch = 2, .recomputation = ""};
//   lt::Trainer trainer(net, optimizer, objective, lt::WatchMemory{.remedies = flags.of_parts()});
//   app::check_memory(training, trainer, hardest, flags);
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/memory/measure/memory_breakdown.hpp>
#include <looptorch/preflight/remedies.hpp>

#include <cstdint>
#include <string>

namespace looptorch::app {

/// Names of flags as on the command line; empty if the program lacks the flag.
struct MemoryFlags {
  std::string batch = "--batch-size";  ///< Limits a micro-batch, in the units of the hardest batches.
  std::int64_t least_batch = 1;        ///< The smallest `batch` that the program takes.
  std::string accumulation = "--gradient-accumulation";
  std::string recomputation = "--gradient-checkpointing";
  std::string bf16 = "--bf16";
  std::string flush = "--flush-every";
  std::string optimizer = {};  ///< Chooses an optimizer with fewer moments.
  std::string frozen = {};     ///< Freezes a part of the model.

  /// Returns these flags as remedies that a preflight tries.
  [[nodiscard]] PreflightRemedies remedies() const {
    PreflightRemedies words;
    words.least_batch = least_batch;
    words.batches = nullptr;
    if (!batch.empty())
      words.batches = [batch = batch, accumulation = accumulation](std::int64_t samples, std::int64_t count) {
        return message(batch, " ", samples, " ", accumulation, " ", count);
      };
    words.recomputation = [flag = recomputation](const std::string&) { return flag; };
    words.bf16 = bf16;
    words.frozen = nullptr;  // in programs a part is frozen by what is learnt, not by its name
    words.separator = " ";
    return words;
  }

  /// Returns these flags as WatchMemory's advice on the parts of a peak.
  [[nodiscard]] PartRemedies of_parts() const {
    const std::string batches =
        batch.empty() ? "" : message("a smaller ", batch, " with a larger ", accumulation);
    const auto either = [](const std::string& a, const std::string& b) {
      return a.empty() || b.empty() ? a + b : a + " or " + b;
    };
    PartRemedies words;
    words.activations = batches;
    for (const std::string& flag : {recomputation, bf16})
      if (!flag.empty()) words.activations += (words.activations.empty() ? "" : ", ") + flag;
    words.workspace = batches;
    words.optimizer = either(optimizer, frozen);
    words.gradients = frozen;
    words.averages.clear();
    words.long_inputs = "limit the longest input";
    words.fragments = "give " + flush + " 50";
    return words;
  }
};

}  // namespace looptorch::app
