// SPDX-License-Identifier: MIT
// Buffers, modes and flags of a module: a block runs again as it was, and leaves nothing of it behind.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

TEMPLATE_TEST_CASE("running statistics are updated once", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::batch_norm);
}

TEMPLATE_TEST_CASE("a block that depends on a buffer that it changes runs again on the old one", "", float,
                   double) {
  check_same_bits(cpu<TestType>(), scenarios::spectral_norm);
}

TEST_CASE("running statistics count one run") {
  const auto block = Normalized();
  lt::checkpoint(block, input(cpu<float>())).sum().backward();
  CHECK(block->runs == 2);
  CHECK(block->norm->num_batches_tracked.item<std::int64_t>() == 1);
}

TEST_CASE("a module that is in the block twice has its buffers put back") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    struct TwiceImpl : torch::nn::Module {
      TwiceImpl() : first(register_module("first", Spectral())), second(register_module("second", first)) {}
      at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
      Spectral first, second;
    };
    const auto block = Holder<TwiceImpl>(std::make_shared<TwiceImpl>());
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, call(block, x));
    const void* const storage = block->first->u.data_ptr();
    y.sum().backward();
    CHECK(block->first->u.data_ptr() == storage);
    Tensors results{y, x.grad()};
    return append(append(results, gradients(block)), buffers(block));
  });
}

TEST_CASE("a buffer keeps its identity and its version") {
  const auto block = Spectral();
  const at::Tensor x = input(cpu<float>());
  const at::Tensor y = lt::checkpoint(block, x);
  const auto version = block->u._version();
  const at::Tensor before = block->u.clone();
  const at::Tensor view = block->u.view({2, -1});
  y.sum().backward();
  CHECK(block->u._version() == version);
  CHECK(same_bits(block->u, before));
  block->u.zero_();
  CHECK(view.sum().item<double>() == 0);  // the same memory still
}

TEST_CASE("buffers that are no module's are put back if they are listed") {
  check_same_bits(cpu<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor count = torch::ones({}, options), x = input(options);
    const auto block = [count](const at::Tensor& x) {
      count.mul_(2);
      return (x * count.clone()).sin();
    };
    if constexpr (std::decay_t<decltype(call)>::recomputes) {
      const at::Tensor y = lt::checkpoint({.buffers = {count}}, block, x);
      y.sum().backward();
      return Tensors{y, x.grad(), count};
    } else {
      const at::Tensor y = block(x);
      y.sum().backward();
      return Tensors{y, x.grad(), count};
    }
  });
}

TEST_CASE("eval between forward and backward does not change what runs again") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = FeedForward(0.5);
    const auto norm = Normalized();
    const at::Tensor x = input(options);
    const at::Tensor y = call(norm, call(block, x));
    block->eval();
    norm->norm->eval();
    y.sum().backward();
    CHECK_FALSE(block->dropout->is_training());
    CHECK_FALSE(norm->norm->is_training());
    CHECK(norm->is_training());
    Tensors results{y, x.grad()};
    append(append(results, gradients(block)), buffers(norm));
    return append(results, gradients(norm));
  });
}

TEST_CASE("a child in another mode than its parent stays so") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = Normalized();
    block->norm->eval();
    const at::Tensor x = input(options);
    const at::Tensor y = call(block, x);
    block->train();
    y.sum().backward();
    CHECK(block->norm->is_training());
    Tensors results{y, x.grad()};
    return append(append(results, gradients(block)), buffers(block));
  });
}

TEST_CASE(
    "parameters frozen or thawed between forward and backward are as they were while a block runs again") {
  const bool trained = GENERATE(false, true);
  const auto block = FeedForward();
  block->expand->weight.set_requires_grad(trained);
  const at::Tensor x = input(cpu<float>());
  const at::Tensor y = lt::checkpoint(block, x);
  block->expand->weight.set_requires_grad(!trained);
  y.sum().backward();
  CHECK(block->runs == 2);
  CHECK(block->expand->weight.requires_grad() == !trained);
}
