// SPDX-License-Identifier: MIT
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/policies/weights/exchange_memory.hpp>

#include "support/place.hpp"

using looptorch::detail::exchange_memory;
using looptorch::testing::placed;

TEST_CASE("tensors that fill their storages exchange it, and views follow") {
  at::Tensor weight = placed(torch::randn({2, 3})), other = placed(torch::randn({2, 3}));
  const at::Tensor view = weight.view({6}), was = weight.clone(), others = other.clone();
  const void* const memory = weight.data_ptr();
  const auto version = weight._version();
  exchange_memory(weight, other);
  CHECK(weight.equal(others));
  CHECK(view.equal(others.view({6})));
  CHECK(other.equal(was));
  CHECK(other.data_ptr() == memory);
  CHECK(weight._version() == version);
  exchange_memory(weight, other);
  CHECK(weight.equal(was));
  CHECK(weight.data_ptr() == memory);
}

TEST_CASE("a weight that lies in a larger buffer leaves the buffer alone") {
  const at::Tensor buffer = placed(torch::randn({12})), all = buffer.clone();
  at::Tensor weight = buffer.detach().narrow(0, 6, 6).view({2, 3}), other = placed(torch::randn({2, 3}));
  const at::Tensor was = weight.clone(), others = other.clone();
  exchange_memory(weight, other);
  CHECK(weight.equal(others));
  CHECK(other.equal(was));
  CHECK(buffer.equal(all));
  exchange_memory(weight, other);
  CHECK(weight.equal(was));
  CHECK(weight.const_data_ptr() == static_cast<const float*>(buffer.const_data_ptr()) + 6);
}

TEST_CASE("a weight's gradient and requires_grad stay with it") {
  at::Tensor weight = placed(torch::ones({3})).requires_grad_(), other = placed(torch::zeros({3}));
  weight.mutable_grad() = placed(torch::full({3}, 2.0f));
  exchange_memory(weight, other);
  CHECK(weight.requires_grad());
  CHECK(weight.grad().equal(placed(torch::full({3}, 2.0f))));
  CHECK_FALSE(other.requires_grad());
}
