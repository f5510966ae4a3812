// SPDX-License-Identifier: MIT
// Autocast: a block runs again in the types of its first run, wherever backward is called.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

TEMPLATE_TEST_CASE("autocast is as it was when a block runs again", "", float, double) {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  check_same_bits(cpu<TestType>(), scenarios::autocast<false>(type));
}

TEMPLATE_TEST_CASE("backward within autocast's scope gives the same bits", "", float, double) {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  check_same_bits(cpu<TestType>(), scenarios::autocast<true>(type));
}

namespace {

class Autocast {
 public:
  explicit Autocast(bool enabled, at::ScalarType type = at::kBFloat16)
      : enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        type_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, type_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  at::ScalarType type_;
};

}  // namespace

TEST_CASE("a block that ran without autocast runs again without it") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = FeedForward();
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    const Autocast autocast(true);
    y.sum().backward();
    CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    CHECK(at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16);
    Tensors results{y, x.grad()};
    return append(results, gradients(block));
  });
}

TEST_CASE("autocast switched off within a block is off when it runs again") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const FeedForward outer, inner;
    const at::Tensor x = input(options);
    const auto block = [outer, inner](const at::Tensor& x) {
      const at::Tensor h = outer(x);
      const Autocast off(false);
      return inner(h);
    };
    at::Tensor y;
    {
      const Autocast autocast(true);
      y = call(block, x);
      CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    }
    y.sum().backward();
    Tensors results{y, x.grad()};
    return append(append(results, gradients(outer)), gradients(inner));
  });
}

TEST_CASE("what running again casts does not outlive it") {
  const auto block = FeedForward();
  const at::Tensor x = input(cpu<float>());
  at::Tensor y;
  {
    const Autocast autocast(true);
    y = lt::checkpoint(block, x);
  }
  y.sum().backward();
  {
    // A stale copy of the weight in autocast's cache would hide the new one.
    torch::NoGradGuard no_gradients;
    block->expand->weight.zero_();
    block->expand->bias.zero_();
    block->project->bias.zero_();
  }
  block->eval();
  const Autocast autocast(true);
  CHECK(torch::equal(block(x), x));
}
