// SPDX-License-Identifier: MIT
// A small net, faults that are injected into its training, and what Autopsy must say of each.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/loop/step/non_finite.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace faulty_net {

using namespace looptorch;

using Cause = Finding::Cause;

struct Batch {
  at::Tensor x;        // [B, 4]
  at::Tensor y;        // [B]
  at::Tensor weights;  // [B]
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("embedding", embedding);
    register_module("first", first);
    register_module("second", second);
    register_module("norm", norm);
    mean = register_buffer("mean", torch::zeros({8}));
    variance = register_buffer("variance", torch::ones({8}));
  }
  torch::nn::Embedding embedding{10, 4};
  torch::nn::Linear first{4, 8};
  torch::nn::Linear second{8, 3};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  at::Tensor mean, variance;
};
TORCH_MODULE(Net);

inline constexpr std::int64_t kRows = 5;

inline Batch batch_of(std::uint64_t seed) {
  torch::manual_seed(seed);
  return {torch::randn({kRows, 4}), torch::randint(0, 3, {kRows}, torch::kLong), torch::ones({kRows})};
}

inline at::Tensor hidden(Net& net, const Batch& batch) { return torch::tanh(net->first(batch.x)); }
inline at::Tensor mean_loss(Net& net, const at::Tensor& hidden, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net->second(hidden), batch.y);
}

/// A fault: what the objective computes, what is broken before, and what the finding must say.
struct Fault {
  std::string name;
  std::function<at::Tensor(Net&, const Batch&)> loss;
  std::function<void(Net&, std::vector<Batch>&)> damage = [](Net&, std::vector<Batch>&) {};
  Cause cause = Cause::operation;
  std::string op;  // of the operator
  bool backward = false;
  std::string at;                       // parameter that it worked on, or behind which it ran
  std::vector<std::int64_t> rows = {};  // samples in the micro-batch
  std::string node = {};                // a part of the node's name
};

inline void poison(std::vector<Batch>& batches, std::int64_t row, double value) {
  batches[4].x.index_put_({row}, value);  // the second micro-batch of window 1
}

/// Sets features of a row of the fifth batch, so that only there something is wrong.
inline std::function<void(Net&, std::vector<Batch>&)> row_of(std::int64_t row, double value) {
  return [=](Net&, std::vector<Batch>& batches) { poison(batches, row, value); };
}

inline void check(const Fault& fault, const NonFiniteWindow& error) {
  INFO(fault.name << ": " << error.what());
  REQUIRE(error.finding);
  const Finding& found = *error.finding;
  CHECK(found.cause == fault.cause);
  if (!fault.op.empty()) CHECK(found.op == fault.op);
  CHECK(found.backward == fault.backward);
  const std::string& at = found.parameter.empty() ? found.after_parameter : found.parameter;
  CHECK(at.find(fault.at) != std::string::npos);
  CHECK(found.rows == fault.rows);
  CHECK(found.node.find(fault.node) != std::string::npos);
  CHECK(std::string(error.what()).find(found.text()) != std::string::npos);
}

/// In the second micro-batch of window 1, a NaN in row 2 that sqrt makes in backward.
inline at::Tensor sqrt_at_zero(Net& net, const Batch& b) {
  return torch::sqrt(hidden(net, b).pow(2).sum(1) * (1 - b.x.select(1, 0).gt(50).to(torch::kFloat))).mean();
}
inline const Fault kSqrt{.name = "sqrt",
                         .loss = sqrt_at_zero,
                         .damage = row_of(2, 100),
                         .op = "aten::div",
                         .backward = true,
                         .at = "first",
                         .rows = {2},
                         .node = "SqrtBackward"};

inline std::vector<Batch> batches_of(int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(batch_of(static_cast<std::uint64_t>(i)));
  return batches;
}

}  // namespace faulty_net
