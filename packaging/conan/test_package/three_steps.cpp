// SPDX-License-Identifier: MIT
// Trains for three steps: the packaged headers compile, link and run.
#include <looptorch/trainer.hpp>
#include <looptorch/version.hpp>

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <vector>

int main() {
  torch::nn::Linear model(1, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const auto objective = [](torch::nn::Linear& line, const torch::Tensor& x) { return (line(x) - 2 * x).square().mean(); };

  looptorch::Trainer trainer(model, optimizer, objective);
  const std::vector<torch::Tensor> batches(3, torch::ones({4, 1}));
  const looptorch::FitResult result = trainer.fit(batches);
  std::printf("looptorch %d.%d.%d: %lld steps\n", LOOPTORCH_VERSION_MAJOR, LOOPTORCH_VERSION_MINOR,
              LOOPTORCH_VERSION_PATCH, static_cast<long long>(result.steps));
  return result.steps == 3 ? 0 : 1;
}
