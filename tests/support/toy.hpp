// SPDX-License-Identifier: MIT
// A small fp64 network, batches with unequal weights, and hand-written loops with which the Trainer's results
// are compared.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/objective/loss.hpp>

namespace toy {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{4, 8};
  torch::nn::Linear second{8, 3};
};
TORCH_MODULE(Net);

/// A model without data, on the meta device, where reading back is impossible and a wrong device is an error.
struct GhostImpl : torch::nn::Module {
  at::Tensor weight = register_parameter(
      "weight", torch::empty({4, 3}, torch::TensorOptions(torch::kDouble).device(at::kMeta)));
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight); }
};
TORCH_MODULE(Ghost);

struct Batch {
  at::Tensor features;  // [B, 4]
  at::Tensor labels;    // [B]
};

inline Net net(uint64_t seed = 0) {
  torch::manual_seed(seed);
  return Net();
}

/// Returns batches of unequal sizes 1 to 4.
inline std::vector<Batch> batches(int64_t count, uint64_t seed = 1) {
  torch::manual_seed(seed);
  std::vector<Batch> result;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = 1 + (i * 7 + 2) % 4;
    result.push_back({torch::randn({size, 4}, torch::kDouble), torch::randint(0, 3, {size}, torch::kLong)});
  }
  return result;
}

/// Returns the mean over a batch's examples, weighted by their number.
inline looptorch::Loss objective(Net& net, const Batch& batch) {
  return {.value = torch::nn::functional::cross_entropy(net(batch.features), batch.labels),
          .weight = batch.labels.size(0)};
}

/// Joins several batches into one.
inline Batch join(const std::vector<Batch>& parts, std::size_t begin, std::size_t end) {
  std::vector<at::Tensor> features, labels;
  for (std::size_t i = begin; i < std::min(end, parts.size()); ++i)
    features.push_back(parts[i].features), labels.push_back(parts[i].labels);
  return {torch::cat(features), torch::cat(labels)};
}

/// Trains by a hand-written loop that joins each window into one large batch. Returns the loss of each step.
inline std::vector<double> train_by_hand(Net& net, torch::optim::Optimizer& optimizer,
                                         const std::vector<Batch>& batches, std::size_t window,
                                         int64_t epochs = 1) {
  std::vector<double> losses;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (std::size_t i = 0; i < batches.size(); i += window) {
      optimizer.zero_grad();
      const at::Tensor loss = objective(net, join(batches, i, i + window)).value;
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
  optimizer.zero_grad();
  return losses;
}

/// Returns the largest absolute difference between two models' parameters; NaN if any is.
template <class A, class B>
double distance(A& a, B& b) {
  double largest = 0;
  const auto pa = a->parameters(), pb = b->parameters();
  for (std::size_t i = 0; i < pa.size(); ++i)
    if (const double d = (pa[i] - pb[i]).abs().max().template item<double>(); !(d <= largest)) {
      largest = d;
      if (std::isnan(d)) break;
    }
  return largest;
}

template <class M>
bool has_gradients(M& model) {
  for (const auto& parameter : model->parameters())
    if (parameter.grad().defined()) return true;
  return false;
}

}  // namespace toy
