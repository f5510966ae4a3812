// SPDX-License-Identifier: MIT
// What the documentation's ```cpp blocks may use without declaring it. Nothing here is linked: blocks are
// compiled only.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace docs {

namespace lt = looptorch;

struct Batch {
  torch::Tensor features, labels;  // [B, 16], [B]
  std::int64_t tokens = 1;
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& features);
};
TORCH_MODULE(Net);

torch::Tensor token_mean(const torch::Tensor& logits, const torch::Tensor& labels);

extern Net net;
extern torch::optim::AdamW optimizer;
extern std::vector<Batch> batches, validation_batches;

struct Samples {
  std::int64_t size() const;
  Batch get(std::int64_t index) const;
  Batch collate(std::span<Batch> samples) const;
};
extern const Samples dataset;

inline auto objective = [](Net& net, const Batch& batch) {
  return lt::Loss{.value = token_mean(net(batch.features), batch.labels), .weight = batch.tokens};
};

}  // namespace docs
