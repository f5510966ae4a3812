// SPDX-License-Identifier: MIT
// Instantiates in the precompiled header what most tests and programs instantiate of looptorch, as
// libtorch_virtuals.hpp does for LibTorch. Virtual functions of class templates must be among it: clang 14
// cannot instantiate them where it compiles the header's code.
#pragma once

#include <looptorch/adapters/lora.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/trainer.hpp>

#include <vector>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

namespace looptorch::testing {

inline void clone_each(const detail::LoraImpl<torch::nn::Linear>& lora) { (void)lora.clone(); }

// With an objective of its own, so that tests/symbols still has a Trainer's code.
inline double train_toy(toy::Net net, FusedAdamW& optimizer, const std::vector<toy::Batch>& batches) {
  const auto objective = [](toy::Net& model, const toy::Batch& batch) { return toy::objective(model, batch); };
  return Trainer(net, optimizer, objective).fit(batches, {.epochs = 2}).loss;
}

}  // namespace looptorch::testing
