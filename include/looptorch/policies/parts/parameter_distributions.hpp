// SPDX-License-Identifier: MIT
// Samples the values of each of a model's parameters, for the histograms that LogMetrics shows.
#pragma once

#include <looptorch/base/example.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The most values of a parameter that count, evenly spaced.
inline constexpr std::int64_t kDistributionValues = 4096;

/// Returns the values of each floating-point parameter, by name. Waits for one copy of all from the device.
[[nodiscard]] inline std::vector<Example> parameter_distributions(const torch::nn::Module& model) {
  const c10::NoGradGuard no_grad;
  std::vector<std::pair<std::string, std::int64_t>> counts;
  std::vector<at::Tensor> parts;
  for (const auto& parameter : model.named_parameters()) {
    const at::Tensor& all = parameter.value();
    if (!all.defined() || all.numel() == 0 || !all.is_floating_point() || all.is_meta()) continue;
    const std::int64_t step = (all.numel() + kDistributionValues - 1) / kDistributionValues;
    const at::Tensor some = all.detach().reshape({-1}).slice(0, 0, all.numel(), step);
    parts.push_back(some.to(parts.empty() ? all.device() : parts.front().device(), at::kFloat));
    counts.emplace_back(parameter.key(), some.numel());
  }
  std::vector<Example> examples;
  if (parts.empty()) return examples;
  const at::Tensor host = at::cat(parts).to(at::kCPU);
  const float* values = host.const_data_ptr<float>();
  for (auto& [name, count] : counts) {
    examples.emplace_back(DistributionExample{std::move(name), {values, values + count}});
    values += count;
  }
  return examples;
}

}  // namespace looptorch::detail
