// SPDX-License-Identifier: MIT
// Fits y = 2x + 1 with what the README shows; prints the error that is left.
#include <looptorch/trainer.hpp>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <sndfile.h>

#include <cstdio>
#include <vector>

namespace lt = looptorch;

int static_part();
int shared_part();

struct Batch {
  torch::Tensor x, y;
};

int main() {
  torch::manual_seed(1);
  std::vector<Batch> batches;
  for (int i = 0; i < 16; ++i) {
    const auto x = torch::randn({8, 1});
    batches.push_back({x, 2 * x + 1});
  }

  torch::nn::Linear model(1, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  auto objective = [](torch::nn::Linear& model, const Batch& batch) {
    return torch::mse_loss(model(batch.x), batch.y);
  };

  lt::Trainer trainer(model, optimizer, objective, lt::Accumulate<2>{});
  const lt::FitResult result = trainer.fit(batches, {.epochs = 20});

  const double error = torch::mse_loss(model(batches[0].x), batches[0].y).item<double>();
  std::printf("%lld steps, error %.6f, %s\n", static_cast<long long>(result.steps), error,
              sf_version_string());
  return result.steps == 160 && error < 1e-3 && static_part() == 0 && shared_part() == 0 ? 0 : 1;
}
