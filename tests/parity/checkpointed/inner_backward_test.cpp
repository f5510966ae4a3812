// SPDX-License-Identifier: MIT
// Blocks that run backward themselves: a pass of their own saves as LibTorch does, in both runs.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

namespace {

/// The result is a gradient, so that the last tensors are saved by the inner pass.
const auto slope = [](const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor y = (x * w).tanh().sum();
  return torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true).front();
};

Tensors gradients_of(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  y.pow(2).sum().backward();
  return {y, x.grad(), w.grad()};
}

}  // namespace

TEMPLATE_TEST_CASE("a block whose result is a gradient, in more passes than the engine nests", "", float,
                   double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    Tensors results;
    for (int step = 0; step < 100; ++step) {
      const at::Tensor x = input(options), w = input(options);
      append(results, gradients_of(call(slope, x, w), x, w));
    }
    return results;
  });
}

TEST_CASE("a result that goes on after the inner pass") {
  check_same_bits(cpu<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options), w = input(options);
    const auto f = [](const at::Tensor& x, const at::Tensor& w) {
      const at::Tensor h = (x * w).exp();
      return torch::autograd::grad({h.sum()}, {x}, {}, true, true).front().sin() * h;
    };
    return gradients_of(call(f, x, w), x, w);
  });
}

TEST_CASE("without early stop the pass that asks before the first run is over is no mismatch") {
  const at::Tensor x = input(cpu<double>()), w = input(cpu<double>());
  const at::Tensor plain_x = x.detach().clone().requires_grad_(),
                   plain_w = w.detach().clone().requires_grad_();
  const at::Tensor y = lt::checkpoint(lt::CheckpointOptions{.early_stop = false}, slope, x, w);
  check_same(gradients_of(slope(plain_x, plain_w), plain_x, plain_w), gradients_of(y, x, w));
}
