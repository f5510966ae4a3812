// SPDX-License-Identifier: MIT
// Blocks inside blocks give the plain run's bits, and hold no more than the outer block needs.
// Runs on every device.
// Tests memory/recompute: checkpointed_call
#include "unit/memory/recompute/support/scenarios.hpp"

using namespace checkpointed;

namespace {

/// A block with an inner one that holds what it saves.
struct AroundImpl : torch::nn::Module {
  AroundImpl() { register_module("inner", inner); }
  at::Tensor forward(const at::Tensor& x) {
    return lt::checkpoint({.mode = lt::CheckpointMode::offload}, inner, x.cos().exp());
  }
  torch::nn::Linear inner{kWidth, kWidth};
};
TORCH_MODULE(Around);

/// Updates a parameter as soon as its gradient exists, as UpdateInBackward does.
struct Update : torch::autograd::PostAccumulateGradHook {
  void operator()(const at::Tensor& parameter) override {
    const at::NoGradGuard no_gradients;
    at::Tensor(parameter).sub_(parameter.grad(), 0.1);
  }
};

}  // namespace

TEMPLATE_TEST_CASE("blocks inside blocks inside blocks", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::nested);
}

TEST_CASE("what the inner block is given is not held by the outer one") {
  const at::Tensor x = input(here<float>());
  c10::weak_intrusive_ptr<c10::TensorImpl> between(c10::intrusive_ptr<c10::TensorImpl>{});
  const auto inner = [](const at::Tensor& x) { return x.exp().sin(); };
  const auto outer = [&](const at::Tensor& x) {
    const at::Tensor h = x.cos() * 2;
    between = h.getIntrusivePtr();
    return lt::checkpoint(inner, h);
  };
  const at::Tensor y = lt::checkpoint(outer, x);
  CHECK(between.expired());
  y.sum().backward();
  const at::Tensor again = x.detach().requires_grad_();
  ((again.cos() * 2).exp().sin()).sum().backward();
  CHECK(same_bits(x.grad(), again.grad()));
}

TEST_CASE("an inner block that does not use a leaf that it is given") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto inner = [](const at::Tensor& x, const at::Tensor&) { return x.exp().sin(); };
    const auto outer = [call, inner](const at::Tensor& x) {
      return call(inner, x * 2, torch::ones({2}, x.options()).requires_grad_());
    };
    const at::Tensor y = call(outer, x);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("an outer block is run again before a parameter of an inner one is updated in backward") {
  check_same_bits(here<float>(), [](const auto& call, const at::TensorOptions& options) {
    auto block = on(Around(), options);
    for (const at::Tensor& parameter : block->parameters())
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Update>());
    const at::Tensor x = input(options);
    call(block, x).square().sum().backward();
    return Tensors{x.grad(), block->inner->weight.detach(), block->inner->bias.detach()};
  });
}

TEST_CASE("runs: an inner block once more for each block around it") {
  const auto block = on(FeedForward(), here<float>());
  const auto outer = [block](const at::Tensor& x) { return lt::checkpoint(block, x); };
  lt::checkpoint(outer, input(here<float>())).sum().backward();
  // First; with the outer block, which ends when the inner one is given its argument; and itself.
  CHECK(block->runs <= 3);
  CHECK(block->runs >= 2);
}

TEMPLATE_TEST_CASE("a block that differentiates within itself", "", float, double) {
  check_same_bits(here<TestType>(), scenarios::penalized);
}

TEST_CASE("an outer block with offload, an inner one that recomputes, and the other way round") {
  for (const auto outer_mode : {lt::CheckpointMode::recompute, lt::CheckpointMode::offload})
    for (const auto inner_mode : {lt::CheckpointMode::recompute, lt::CheckpointMode::offload})
      check_same_bits(here<float>(), [&](const auto& call, const at::TensorOptions& options) {
        constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
        const auto off = lt::CheckpointMode::off;
        const auto block = on(FeedForward(), options), other = on(FeedForward(), options);
        const auto outer = [&](const at::Tensor& x) {
          return other->forward(lt::checkpoint({.mode = recomputes ? inner_mode : off}, block, x.exp()));
        };
        const at::Tensor x = input(options);
        const at::Tensor y = lt::checkpoint({.mode = recomputes ? outer_mode : off}, outer, x);
        y.pow(2).mean().backward();
        Tensors results{y, x.grad()};
        return append(append(results, gradients(block)), gradients(other));
      });
}
