// SPDX-License-Identifier: MIT
// Unfreezes a pretrained backbone step by step: all of it is frozen at first, and later epochs train more and
// more of its blocks, those near the head first. Parses the schedule, such as "8:11,12:10-11,16:9-11", into
// rules for looptorch's UnfreezeAt, which unfreezes the blocks and keeps the optimizer's moments.
#pragma once

#include <looptorch/app/flags/flag_values.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/policies/unfreeze_at.hpp>

#include "model.hpp"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace spectrogram_vit {

/// Blocks `first` to `last`, counted from 0, that are trained from the epoch with index `epoch` on.
struct UnfreezeStep {
  std::int64_t epoch, first, last;

  friend bool operator==(const UnfreezeStep&, const UnfreezeStep&) = default;
};

/// Returns the steps of "EPOCH:BLOCK,EPOCH:FIRST-LAST,...": "8:11,12:10-11" trains block 11 after 8 epochs,
/// and block 10, too, after 12. Throws CommandLineError, which names the wrong part.
[[nodiscard]] inline std::vector<UnfreezeStep> parse_unfreezing(const std::string& text) {
  using looptorch::app::CommandLineError;
  std::vector<UnfreezeStep> steps;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto colon = part.find(':'), dash = part.find('-', colon == std::string::npos ? 0 : colon);
    const auto number = [&](std::size_t begin, std::size_t end) {
      return looptorch::app::parse_number<std::int64_t>(part.substr(begin, end - begin), {.min = 0});
    };
    try {
      if (colon == std::string::npos) throw CommandLineError("it has no colon");
      const auto first = number(colon + 1, std::min(dash, part.size()));
      const auto last = dash == std::string::npos ? first : number(dash + 1, part.size());
      if (last < first) throw CommandLineError("the last block comes before the first");
      steps.push_back({number(0, colon), first, last});
    } catch (const CommandLineError& error) {
      throw CommandLineError("--unfreeze: \"" + part +
                             "\" is not EPOCH:BLOCK or EPOCH:FIRST-LAST: " + error.what());
    }
  }
  if (steps.empty()) throw CommandLineError("--unfreeze: the schedule is empty");
  return steps;
}

/// Returns the schedule of the project that this example follows: the last block after 8 epochs, the last two
/// after 12, the last three after 16. Models with fewer blocks have fewer steps.
[[nodiscard]] inline std::vector<UnfreezeStep> default_unfreezing(std::int64_t blocks) {
  std::vector<UnfreezeStep> steps;
  for (std::int64_t trained = 1; trained <= std::min<std::int64_t>(3, blocks); ++trained)
    steps.push_back({4 + 4 * trained, blocks - trained, blocks - 1});
  return steps;
}

/// Returns UnfreezeAt's rules: the head from the beginning, each step's blocks from its epoch on, and the
/// last norm with the first step. Throws CommandLineError for a block that a model of `blocks` blocks lacks.
[[nodiscard]] inline std::vector<looptorch::UnfreezeRule> unfreeze_rules(
    const std::vector<UnfreezeStep>& steps, std::int64_t blocks) {
  std::vector<looptorch::UnfreezeRule> rules{{.epoch = 0, .patterns = {"head.*"}}};
  const auto first = std::min_element(steps.begin(), steps.end(),
                                      [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  for (auto step = steps.begin(); step != steps.end(); ++step) {
    if (step->last >= blocks)
      throw looptorch::app::CommandLineError(looptorch::message("--unfreeze: there is no block ", step->last,
                                                                "; the model's are 0 to ", blocks - 1));
    rules.push_back({.epoch = step->epoch, .patterns = {}});
    auto& patterns = rules.back().patterns;
    for (auto block = step->first; block <= step->last; ++block)
      patterns.push_back(looptorch::message("backbone.blocks.", block, ".*"));
    if (step == first) patterns.emplace_back("backbone.norm.*");
  }
  return rules;
}

/// Returns the rules of a run that trains everything from the beginning.
[[nodiscard]] inline std::vector<looptorch::UnfreezeRule> train_all() {
  return {{.epoch = 0, .patterns = {"*"}}};
}

/// Returns the epoch from which on all named parameters are trained.
[[nodiscard]] inline std::int64_t last_epoch(const std::vector<looptorch::UnfreezeRule>& rules) {
  std::int64_t last = 0;
  for (const auto& rule : rules) last = std::max(last, rule.epoch);
  return last;
}

/// Freezes the backbone; UnfreezeAt trains parts of it later.
inline void freeze_backbone(const ViT& model) {
  for (auto& parameter : model->backbone->parameters()) parameter.requires_grad_(false);
}

}  // namespace spectrogram_vit
