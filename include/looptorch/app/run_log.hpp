// SPDX-License-Identifier: MIT
// Makes the policies that record a run in its output folder. `run_log` returns LogMetrics, whose report also
// shows the flags and the model's size; `profile_policy` returns Profile, which is on if --profile is given.
//
//   lt::Trainer trainer(model, optimizer, objective, app::run_log(training, options.output, *model));
#pragma once

#include <looptorch/app/training_options.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/policies/log_metrics.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/report/tensorboard/events.hpp>

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace looptorch::app {
namespace detail {

[[nodiscard]] inline std::int64_t count_parameters(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

/// Returns "37760640: encoder 8208384, decoder 29552256".
[[nodiscard]] inline std::string sizes_text(const torch::nn::Module& model) {
  std::string text = std::to_string(count_parameters(model)), separator = ": ";
  for (const auto& child : model.named_children()) {
    const std::int64_t count = count_parameters(*child.value());
    if (count > 0) text += std::exchange(separator, ", ") + child.key() + " " + std::to_string(count);
  }
  return text;
}

}  // namespace detail

/// Returns the policy that writes report.html, metrics.jsonl, metrics.csv and TensorBoard's events to
/// `output`, unless `training.report` is false. The page lists the model's type and number of parameters,
/// then `facts`, then all flags that are not among the facts.
[[nodiscard]] inline When<LogMetrics> run_log(const TrainingOptions& training,
                                              const std::filesystem::path& output,
                                              const torch::nn::Module& model, report::Facts facts = {}) {
  std::string type = model.name();
  if (type.ends_with("Impl")) type.resize(type.size() - 4);
  report::Facts all{{"model type", type}, {"parameters", detail::sizes_text(model)}};
  all.insert(all.end(), facts.begin(), facts.end());
  for (const auto& [name, value] : training.settings) {
    const auto is_it = [&name = name](const auto& fact) { return fact.first == name; };
    if (std::none_of(facts.begin(), facts.end(), is_it)) all.emplace_back(name, value);
  }
  std::string title = output.lexically_normal().string();
  if (!training.program.empty()) title = training.program + ": " + title;
  return {training.report,
          LogMetrics{
              .folder = output, .title = title, .histograms = training.histograms, .facts = std::move(all)}};
}

/// Returns the policy that writes a trace of the steps that `training.profile` names to `output`; switched
/// off if it is empty. Throws CommandLineError for a text that names no steps.
[[nodiscard]] inline When<Profile> profile_policy(const TrainingOptions& training,
                                                  const std::filesystem::path& output) {
  Profile policy{.folder = output};
  const auto steps = training.profiled_steps();
  if (steps) policy.first = steps->first, policy.last = steps->second;
  return {steps.has_value(), std::move(policy)};
}

}  // namespace looptorch::app
