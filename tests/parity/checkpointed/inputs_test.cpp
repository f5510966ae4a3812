// SPDX-License-Identifier: MIT
// What a block does with what it is given: writes in place, takes views, needs no gradient of it, shares it.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

TEMPLATE_TEST_CASE("operations in place within a block", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::in_place);
}

TEMPLATE_TEST_CASE("views of arguments and results", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::views);
}

TEMPLATE_TEST_CASE("shared parameters", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::shared_parameters);
}

TEMPLATE_TEST_CASE("frozen blocks and parameters, and inputs that need no gradient", "", float, double) {
  check_same_bits(cpu<TestType>(), scenarios::frozen);
}

TEMPLATE_TEST_CASE("a result that is changed in place after the block", "", float, double) {
  check_same_bits(cpu<TestType>(), [](const auto& call, const at::TensorOptions& options) {
    const auto block = on(FeedForward(), options);
    const at::Tensor x = input(options);
    at::Tensor y = call(block, x);
    y.mul_(2).relu_();
    y = call(block, y);
    y.sum().backward();
    Tensors results{y, x.grad()};
    return append(results, gradients(block));
  });
}

TEST_CASE("a block that returns what it is given") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor x = input(options);
    const auto same = [](at::Tensor x) { return x; };
    const auto both = [](const at::Tensor& x) { return std::make_pair(x, x.exp()); };
    const auto [a, b] = call(both, call(same, x * 2));
    (a * b).sum().backward();
    return Tensors{a, b, x.grad()};
  });
}

TEST_CASE("writing to an argument is refused in forward") {
  const at::Tensor x = input(cpu<float>()) * 1;
  const auto to_itself = [](at::Tensor x) { return x.add_(1).exp(); };
  const auto to_a_view = [](at::Tensor x) {
    x.slice(0, 0, 1).zero_();
    return x.exp();
  };
  CHECK_THROWS_AS(lt::checkpoint(to_itself, x), lt::CheckpointError);
  CHECK_THROWS_WITH(
      lt::checkpoint(to_a_view, x),
      "the checkpointed function writes in place to an argument of shape [4, 8], so that it cannot "
      "be recomputed from it: clone the argument first");
  CHECK_NOTHROW(lt::checkpoint({.mode = lt::CheckpointMode::off}, to_itself, x.detach()));
}

TEST_CASE("writing to a parameter is refused in forward") {
  struct ClampedImpl : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::ones({kWidth}));
    at::Tensor forward(const at::Tensor& x) {
      torch::NoGradGuard no_gradients;
      weight.clamp_(-1, 1);
      at::AutoGradMode gradients(true);
      return x * weight;
    }
  };
  const auto block = Holder<ClampedImpl>(std::make_shared<ClampedImpl>());
  CHECK_THROWS_WITH(lt::checkpoint(block, input(cpu<float>())),
                    Catch::Contains("parameter 'weight' of shape [8] is written to in place by its forward"));
}

TEST_CASE("where nothing needs a gradient a block runs once, as it is") {
  const auto block = FeedForward();
  {
    const torch::NoGradGuard no_gradients;
    CHECK_FALSE(lt::checkpoint(block, input(cpu<float>())).requires_grad());
  }
  for (const at::Tensor& parameter : block->parameters()) parameter.set_requires_grad(false);
  CHECK_FALSE(lt::checkpoint(block, input(cpu<float>(), false)).requires_grad());
  CHECK(block->runs == 2);
}

TEST_CASE("a parameter that a function captures gets its gradient though no argument needs one") {
  check_same_bits(cpu<float>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor weight = input(options);
    const at::Tensor y =
        call([weight](const at::Tensor& x) { return (x * weight).exp(); }, input(options, false));
    y.sum().backward();
    return Tensors{y, weight.grad()};
  });
}

TEST_CASE("broadcast, integer, empty and non-contiguous arguments") {
  check_same_bits(cpu<double>(), [](const auto& call, const at::TensorOptions& options) {
    const at::Tensor table = input(options), x = torch::randn({8, 4}, options).requires_grad_();
    const auto block = [](const at::Tensor& table, const at::Tensor& index, const at::Tensor& x,
                          const at::Tensor& none) {
      return torch::cat({table.index_select(0, index) * x.t().index_select(0, index), none}).tanh();
    };
    const at::Tensor y =
        call(block, table, torch::tensor({3, 1, 1}), x, torch::zeros({0, kWidth}, options).requires_grad_());
    y.sum().backward();
    return Tensors{y, table.grad(), x.grad()};
  });
}
