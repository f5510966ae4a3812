// SPDX-License-Identifier: MIT
// Gradients that are set aside for a backward: the bits of autograd's sums, whatever a backward makes.
#include "support/precompiled.hpp"

#include <looptorch/optim/gradients/batched_gradient_sums.hpp>

#include <memory>
#include <stdexcept>
#include <vector>

using looptorch::detail::BatchedGradientSums;

namespace {

/// A small and a large parameter, one that is not reached, one in 16 bits, and a table with sparse gradients.
struct Net {
  at::Tensor small, large, unused, half, table;
  Net() {
    torch::manual_seed(3);
    small = at::randn({8, 4}).t().set_requires_grad(true);
    large = at::randn({BatchedGradientSums::kMaxElements + 1}).set_requires_grad(true);
    unused = at::randn({3}).set_requires_grad(true);
    half = at::randn({8}, at::kBFloat16).set_requires_grad(true);
    table = at::randn({5, 8}).set_requires_grad(true);
  }
  [[nodiscard]] std::vector<at::Tensor> parameters() const { return {small, large, unused, half, table}; }
  [[nodiscard]] at::Tensor loss(double number, bool sparse) const {
    const at::Tensor row = at::embedding(table, at::tensor({1, 3, 1}), -1, false, sparse);
    return (small.matmul(row.sum(0) * number) * small.sum(1)).sum() + large.mul(number).tanh().sum() +
           half.mul(number).sum().to(at::kFloat);
  }
};

}  // namespace

TEST_CASE("sums are autograd's to the bit, and the same tensors") {
  for (const bool sparse : {false, true}) {
    const Net ours, theirs;
    std::vector<const void*> before;
    std::vector<std::int64_t> versions;
    for (int i = 0; i < 4; ++i) {
      BatchedGradientSums sums(ours.parameters());
      CHECK(ours.small.grad().defined() == false);
      CHECK(ours.large.grad().defined() == (i > 0));
      ours.loss(0.3 + i, sparse).backward();
      const std::int64_t version = versions.empty() ? 0 : versions.back();
      sums.add();
      versions.push_back(ours.half.grad()._version());  // by which graphs see what a backward reaches
      if (i > 0) CHECK(versions.back() > version);
      theirs.loss(0.3 + i, sparse).backward();
      std::vector<const void*> now;
      for (const at::Tensor& parameter : {ours.small, ours.half})
        now.push_back(parameter.grad().unsafeGetTensorImpl());
      if (i > 0) CHECK(now == before);
      before = now;
    }
    const auto a = ours.parameters(), b = theirs.parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      REQUIRE(a[i].grad().defined() == b[i].grad().defined());
      if (a[i].grad().defined()) CHECK(a[i].grad().to_dense().equal(b[i].grad().to_dense()));
    }
    CHECK(!ours.unused.grad().defined());
  }
}

TEST_CASE("gradients that are sparse now and then are added to dense sums, too") {
  const Net ours, theirs;
  for (const bool sparse : {false, true, false}) {
    BatchedGradientSums sums(ours.parameters());
    ours.loss(2, sparse).backward();
    sums.add();
    theirs.loss(2, sparse).backward();
  }
  CHECK(ours.table.grad().allclose(theirs.table.grad(), 1e-6));
}

TEST_CASE("a backward that throws leaves the sums of those before") {
  const Net net;
  net.loss(1, false).backward();
  const at::Tensor before = net.small.grad().clone();
  try {
    BatchedGradientSums sums(net.parameters());
    const at::Tensor loss = net.loss(2, false);
    net.half.register_hook([](const at::Tensor& gradient) -> at::Tensor {
      throw std::runtime_error("stop");
      return gradient;
    });
    loss.backward();
    sums.add();
  } catch (const std::runtime_error&) {
  }
  CHECK(net.small.grad().equal(before));
}

TEST_CASE("a hook that sees gradients sees their sums") {
  struct Sees final : torch::autograd::PostAccumulateGradHook {
    explicit Sees(std::vector<at::Tensor>& all) : seen(all) {}
    void operator()(const at::Tensor& parameter) override { seen.push_back(parameter.grad().clone()); }
    std::vector<at::Tensor>& seen;
  };
  const Net net;
  std::vector<at::Tensor> seen;
  torch::autograd::impl::set_post_acc_grad_hooks(net.small, std::make_unique<Sees>(seen));
  for (int i = 0; i < 2; ++i) {
    BatchedGradientSums sums(net.parameters());
    net.loss(1, false).backward();
    sums.add();
  }
  REQUIRE(seen.size() == 2);
  CHECK(seen[1].equal(seen[0] * 2));
}
