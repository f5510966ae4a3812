// SPDX-License-Identifier: MIT
// A dry run of a program's Trainer, for its peak.
#pragma once

#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/trainer.hpp>

#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

namespace looptorch_bench {

namespace lt = looptorch;

/// Returns the bytes of all tensors at the peak of dry steps.
template <class Trainer, class Batch>
[[nodiscard]] std::int64_t peak_of(Trainer& trainer, const Batch& batch) {
  constexpr std::int64_t kNoCap = 1'000'000'000'000;
  const std::vector<Batch> hardest{batch};
  return lt::preflight(trainer, hardest, {.cap = kNoCap, .try_remedies = false}).needed;
}

/// Returns a copy of all weights and buffers, as RestoreBest holds one from the first validation on.
/// Preflights leave it out, since that policy takes no part in dry steps.
[[nodiscard]] inline std::vector<at::Tensor> best_weights_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> copies;
  for (const auto& tensors : {model.parameters(), model.buffers()})
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

/// Returns a program's policy of mixed precision.
template <class Training>
[[nodiscard]] auto precision_of(const Training& training) {
  return lt::When{training.mixed_precision(), lt::Autocast<>{.type = training.autocast_type()}};
}

}  // namespace looptorch_bench
