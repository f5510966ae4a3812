// SPDX-License-Identifier: MIT
// The policy for --profile: a Profile that writes to the output folder.
//
//   lt::Trainer trainer(model, optimizer, objective, app::profile_policy(training, options.output));
#pragma once

#include <looptorch/app/training_options.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/policies/profile.hpp>

#include <filesystem>
#include <utility>

namespace looptorch::app {

/// Returns the policy that writes a trace of the steps that `training.profile` names to `output`; switched
/// off if there are none. Throws CommandLineError for a text that names no steps.
[[nodiscard]] inline When<Profile> profile_policy(const TrainingOptions& training,
                                                  const std::filesystem::path& output) {
  Profile policy{.folder = output};
  const auto steps = training.profiled_steps();
  if (steps) policy.first = steps->first, policy.last = steps->second;
  return {steps.has_value(), std::move(policy)};
}

}  // namespace looptorch::app
