// SPDX-License-Identifier: MIT
// A tensor without its history: what detach() gives.
#include "support/precompiled.hpp"

#include <looptorch/memory/recompute/without_history.hpp>

#include <torch/torch.h>

using looptorch::detail::without_history;

TEST_CASE(
    "a tensor without its history has the memory, the shape and the versions of the tensor, and no graph") {
  const at::Tensor x = torch::rand({3, 4}, torch::requires_grad());
  for (const at::Tensor& tensor :
       {x, x.exp(), x.exp().t(), x.exp().slice(1, 1, 3), x.exp().to(at::kBFloat16)}) {
    const at::Tensor plain = without_history(tensor);
    CHECK(!plain.requires_grad());
    CHECK(!plain.grad_fn());
    CHECK(plain.sizes() == tensor.sizes());
    CHECK(plain.strides() == tensor.strides());
    CHECK(plain.storage_offset() == tensor.storage_offset());
    CHECK(plain.is_alias_of(tensor));
    CHECK(plain.equal(tensor.detach()));
    CHECK(plain.key_set() == tensor.detach().key_set());
  }
}

TEST_CASE("a change in place counts on both sides") {
  const at::Tensor x = torch::rand({3}, torch::requires_grad()), y = x.exp();
  const at::Tensor plain = without_history(y);
  const auto before = plain._version();
  y.detach().add_(1);
  CHECK(plain._version() == before + 1);
  plain.mul_(2);
  CHECK(y._version() == before + 2);
}
