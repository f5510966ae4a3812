// SPDX-License-Identifier: MIT
// A block runs again up to the last saved tensor that is needed, and not at all if none is.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

namespace {

/// Counts the operations that began and that ended; saves its input.
struct Tick : torch::autograd::Function<Tick> {
  static inline int begun = 0;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    ++begun;
    context->save_for_backward({x});
    return x.exp();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0].exp()};
  }
};

/// Counts, and saves nothing.
at::Tensor count(int& runs, const at::Tensor& x) { return ++runs, x * 2; }

}  // namespace

TEST_CASE("nothing runs after the last saved tensor") {
  const at::Tensor x = input(cpu<float>());
  int before = 0, after = 0;
  const auto block = [&](const at::Tensor& x) { return count(after, (count(before, x) * 1).sin()); };
  const bool early_stop = GENERATE(true, false);
  lt::checkpoint({.early_stop = early_stop}, block, x).sum().backward();
  CHECK(before == 2);
  CHECK(after == (early_stop ? 1 : 2));
}

TEST_CASE("a block whose backward needs nothing does not run again") {
  const at::Tensor x = input(cpu<float>());
  int runs = 0;
  lt::checkpoint([&](const at::Tensor& x) { return count(runs, x) + 1; }, x).sum().backward();
  CHECK(runs == 1);
  CHECK(torch::equal(x.grad(), torch::full_like(x, 2)));
}

TEST_CASE("a block whose backward needs only its argument, or a parameter, does not run again") {
  const at::Tensor x = input(cpu<float>()), weight = input(cpu<float>());
  int runs = 0;
  const auto block = [&](const at::Tensor& x) { return count(runs, x.sin() + x * weight); };
  lt::checkpoint(block, x).sum().backward();
  CHECK(runs == 1);
  CHECK(torch::allclose(x.grad(), 2 * (x.cos() + weight)));
}

TEST_CASE("what is no longer needed is not waited for") {
  const at::Tensor x = input(cpu<float>());
  int middle = 0;
  const auto block = [&](const at::Tensor& x) {
    const at::Tensor first = Tick::apply(x * 1);
    return std::make_pair(first, Tick::apply(count(middle, first)));
  };
  Tick::begun = 0;
  auto [first, second] = lt::checkpoint(block, x);
  second = at::Tensor();  // its nodes go, and with them what they needed
  first.sum().backward();
  CHECK(middle == 1);
  CHECK(Tick::begun == 3);
}

TEST_CASE("one pass runs a block once, whatever asks for its tensors") {
  const FeedForward block;
  const at::Tensor x = input(cpu<float>());
  const at::Tensor y = lt::checkpoint(block, x);
  y.sum().backward({}, /*keep_graph=*/true);
  CHECK(block->runs == 2);
  y.sum().backward();
  CHECK(block->runs == 3);
}

TEST_CASE("a custom function that asks twice for what it saved") {
  struct Twice : torch::autograd::Function<Twice> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
      context->save_for_backward({x});
      return x.sin();
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::tensor_list gradients) {
      const at::Tensor once = context->get_saved_variables()[0], again = context->get_saved_variables()[0];
      CHECK(torch::equal(once, again));
      return {gradients[0] * again.cos()};
    }
  };
  const bool keep_graph = GENERATE(false, true);
  const at::Tensor x = input(cpu<double>());
  const auto block = [](const at::Tensor& x) { return Twice::apply(x.exp()).sin(); };
  lt::checkpoint(block, x).sum().backward({}, keep_graph);
  CHECK(torch::allclose(x.grad(), x.exp() * x.exp().cos() * x.exp().sin().cos()));
}
