// SPDX-License-Identifier: MIT
// Two threads that train two models at once, each with its own blocks.
#include "parity/checkpointed/support/scenarios.hpp"

#include <future>
#include <thread>

using namespace checkpointed;

namespace {

/// Some steps of a model without random numbers, which two threads would draw from one generator.
struct Training {
  std::vector<Normalized> blocks;
  Spectral last;
  at::Tensor x;

  explicit Training(const at::TensorOptions& options) : last(on(Spectral(), options)), x(input(options)) {
    for (int i = 0; i < 3; ++i) blocks.push_back(on(Normalized(), options));
  }

  template <class Call>
  Tensors steps(const Call& call, int count) const {
    for (int step = 0; step < count; ++step) {
      at::Tensor y = x;
      for (const auto& block : blocks) y = call(block, y);
      call([this, call](const at::Tensor& h) { return call(last, h); }, y).pow(2).mean().backward();
    }
    Tensors results{x.grad()};
    for (const auto& block : blocks) append(append(results, gradients(block)), buffers(block));
    return append(append(results, gradients(last)), buffers(last));
  }
};

}  // namespace

TEMPLATE_TEST_CASE("two threads that train two models at once", "", float, double) {
  const auto options = cpu<TestType>();
  const auto train = [&](const auto& call) {
    torch::manual_seed(5);
    const Training one(options), other(options);
    auto elsewhere = std::async(std::launch::async, [&] { return other.steps(call, 20); });
    Tensors results = one.steps(call, 20);
    return append(results, elsewhere.get());
  };
  check_same(train(Plain{}), train(Recomputed{}));
}

TEST_CASE("a forward on one thread and its backward on another") {
  const auto train = [](const auto& call) {
    torch::manual_seed(5);
    const FeedForward block;
    const at::Tensor x = input(cpu<float>());
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor loss = call(block, x).to(at::kFloat).sum();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    std::thread([&] { loss.backward(); }).join();
    return append(gradients(block), {x.grad()});
  };
  check_same(train(Plain{}), train(Recomputed{}));
}

TEST_CASE("two threads that differentiate one graph") {
  const FeedForward block;
  const at::Tensor x = input(cpu<double>().dtype(at::kFloat));
  const at::Tensor loss = lt::checkpoint(block, x).sum();
  const auto gradient = [&] { return torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0]; };
  const at::Tensor alone = gradient();
  auto elsewhere = std::async(std::launch::async, gradient);
  const at::Tensor here = gradient();
  CHECK(same_bits(here, alone));
  CHECK(same_bits(elsewhere.get(), alone));
}
