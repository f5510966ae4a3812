// SPDX-License-Identifier: MIT
// A plain backward before the first checkpointed block of the process: LibTorch then has started its threads
// for its own engine, and ours needs its own. One case a file, since the process must be fresh.
// Runs on every device.
// Tests memory: checkpoint
#include "unit/memory/recompute/support/scenarios.hpp"

using namespace checkpointed;

namespace {

/// Its backward runs another backward, `depth` levels deep.
struct Nested : torch::autograd::Function<Nested> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::int64_t depth) {
    context->saved_data["depth"] = depth;
    return x.clone();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const std::int64_t depth = context->saved_data["depth"].toInt();
    if (depth == 0) return {gradients[0], at::Tensor()};
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = torch::ones_like(gradients[0]).requires_grad_();
    const auto block = [depth](const at::Tensor& x) { return Nested::apply(x * x, depth - 1); };
    lt::checkpoint(block, x).sum().backward();
    return {gradients[0] * x.grad(), at::Tensor()};
  }
};

}  // namespace

TEST_CASE("a plain backward, a checkpointed one, and one that nests beyond LibTorch's 60 levels a thread") {
  const at::Tensor plain = torch::ones({2}, here<float>()).requires_grad_();
  plain.exp().sum().backward();
  const at::Tensor x = torch::ones({2}, here<float>()).requires_grad_();
  lt::checkpoint([](const at::Tensor& x) { return x.exp(); }, x).sum().backward();
  CHECK(same_bits(x.grad(), plain.grad()));
  const at::Tensor deep = torch::ones({2}, here<float>()).requires_grad_();
  Nested::apply(deep, 70).sum().backward();
  CHECK(deep.grad().cpu().equal(torch::full({2}, std::pow(2.0, 70), at::kFloat)));
}
