// SPDX-License-Identifier: MIT
// What a block only reads, changed between forward and backward; what it changes itself, and must not.
#include <looptorch/memory/keep.hpp>

#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

namespace {

struct ScaledImpl : torch::nn::Module {
  ScaledImpl() : scale(register_buffer("scale", torch::ones({kWidth}))) {}
  at::Tensor forward(const at::Tensor& x) { return x.exp() * scale; }
  at::Tensor scale;
};
using Scaled = Holder<ScaledImpl>;

}  // namespace

TEST_CASE("a buffer that was changed is noticed, one that was not is read") {
  const Scaled block;
  const at::Tensor x = input(cpu<float>());
  lt::checkpoint(block, x).sum().backward();
  const at::Tensor y = lt::checkpoint(block, x);
  block->scale.mul_(2);
  CHECK_THROWS_WITH(y.sum().backward(),
                    Catch::Contains("a buffer of shape [8] that it reads has been changed"));
}

TEST_CASE("a tensor that a function captures, without a gradient") {
  const at::Tensor x = input(cpu<float>()), mask = torch::ones({kWidth});
  const auto block = [mask](const at::Tensor& x) { return x.exp() * mask; };
  lt::checkpoint(block, x).sum().backward();
  const at::Tensor y = lt::checkpoint(block, x);
  mask.mul_(2);
  CHECK_THROWS_WITH(y.sum().backward(), Catch::Contains("has been modified by an inplace operation"));
}

TEST_CASE("what keep calls must not write to its inputs") {
  const auto writes = [](const at::Tensor& h) { return h.relu_() + 0; };
  CHECK_THROWS_AS(
      lt::checkpoint([&](const at::Tensor& x) { return lt::keep(writes, x * 2); }, input(cpu<float>())),
      lt::CheckpointError);
}

TEST_CASE("a function that counts begins anew each time it runs again") {
  const at::Tensor x = torch::ones({}).requires_grad_();
  auto counts = [run = 0](const at::Tensor& x) mutable { return (x * ++run).sin(); };
  const at::Tensor y = lt::checkpoint(counts, x);
  y.backward({}, /*keep_graph=*/true);
  const double first = x.grad().item<double>();
  y.backward();
  CHECK(x.grad().item<double>() == 2 * first);
}

TEST_CASE("optional views are stored as what they refer to") {
  const at::Tensor x = input(cpu<float>());
  const auto block = [](const at::Tensor& x, std::optional<at::IntArrayRef> shape,
                        std::optional<std::string_view> name) {
    return x.exp().reshape(shape.value()) * static_cast<double>(name->size());
  };
  at::Tensor y;
  {
    const std::vector<std::int64_t> shape{x.numel()};
    const std::string name(40, 'n');
    y = lt::checkpoint(block, x, std::optional<at::IntArrayRef>(shape),
                       std::optional<std::string_view>(name));
  }
  y.sum().backward();
  CHECK(same_bits(x.grad(), (x.exp() * 40).detach()));
}

TEST_CASE(
    "a block that throws what is no exception when it runs again: an error, and the next pass is right") {
  const at::Tensor x = input(cpu<float>());
  const auto throws = [run = std::make_shared<int>(0)](const at::Tensor& x) {
    if (++*run == 2) throw 1;
    return x.exp().sin();
  };
  CHECK_THROWS_AS(lt::checkpoint(throws, x).sum().backward(), lt::CheckpointError);
  lt::checkpoint([](const at::Tensor& x) { return x.exp(); }, x).sum().backward();
  CHECK(same_bits(x.grad(), x.exp().detach()));
}
