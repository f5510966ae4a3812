// SPDX-License-Identifier: MIT
// Random numbers: a block that runs again draws what it drew, and nobody notices afterwards.
#include "parity/checkpointed/support/scenarios.hpp"

#include <thread>
#include <utility>

using namespace checkpointed;

TEMPLATE_TEST_CASE("dropout is the same when a block runs again", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::dropout);
}

TEMPLATE_TEST_CASE("normally distributed noise is the same when a block runs again", "", float, double) {
  // An odd number of normal variates leaves one cached in the generator.
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = torch::randn({3}, options).requires_grad_();
    const auto noisy = [](const at::Tensor& x) { return (x * torch::randn({3}, x.options())).exp(); };
    const at::Tensor before = torch::randn({5}, options);
    const at::Tensor y = call(noisy, call(noisy, x));
    const at::Tensor between = torch::randn({5}, options);
    y.sum().backward();
    return Tensors{before, y, between, x.grad(), torch::randn({17}, options)};
  });
}

TEST_CASE("without random_state a block that draws is not put back") {
  torch::manual_seed(0);
  const auto block = FeedForward(0.5);
  const at::Tensor x = input(cpu<float>());
  lt::checkpoint({.random_state = false}, block, x).sum().backward();
  const at::Tensor after = torch::rand({2});
  torch::manual_seed(0);
  const auto again = FeedForward(0.5);
  again->forward(input(cpu<float>())).sum().backward();
  CHECK_FALSE(same_bits(after, torch::rand({2})));  // it has drawn twice
}

TEST_CASE("a generator that the block reseeds is put back") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto block = [](const at::Tensor& x) {
      torch::manual_seed(3);
      return torch::dropout(x, 0.5, true).exp();
    };
    const at::Tensor y = call(block, x);
    torch::manual_seed(4);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

namespace {

/// Draws on another thread.
void draw_elsewhere() {
  std::thread([] { (void)torch::rand({5}); }).join();
}

/// Two dropouts, between which another thread draws if `elsewhere` says so.
auto two_dropouts(const bool& elsewhere) {
  return [&elsewhere](const at::Tensor& x) {
    const at::Tensor h = torch::dropout(x, 0.5, true);
    if (elsewhere) draw_elsewhere();
    return torch::dropout(h.exp(), 0.5, true);
  };
}

}  // namespace

TEST_CASE("another thread that draws while a block draws is noticed") {
  torch::manual_seed(0);
  const at::Tensor x = input(cpu<float>());
  bool elsewhere = GENERATE(false, true);
  const at::Tensor y = lt::checkpoint(two_dropouts(elsewhere), x);
  elsewhere = !elsewhere;
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Contains("another thread draws"));
}

TEST_CASE("another thread that draws while a block draws nothing is no harm") {
  torch::manual_seed(0);
  const at::Tensor x = input(cpu<float>());
  bool first = true;
  const auto block = [&first](const at::Tensor& x) {
    if (std::exchange(first, false)) draw_elsewhere();
    return x.exp();
  };
  const at::Tensor y = lt::checkpoint(block, x);
  y.sum().backward();
  CHECK(same_bits(x.grad(), y));
}
