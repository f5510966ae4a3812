// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/tensors/tensor_list.hpp>

#include <vector>

using looptorch::detail::distinct, looptorch::detail::without;

TEST_CASE("a tied tensor is listed once, and one of equal values by itself") {
  const at::Tensor tied = torch::ones({1}), other = torch::ones({1});
  const std::vector<at::Tensor> once = distinct({tied, other, tied});
  REQUIRE(once.size() == 2);
  CHECK(once[0].is_same(tied));
  CHECK(once[1].is_same(other));
  const std::vector<at::Tensor> rest = without({tied, other, other}, {tied});
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].is_same(other));
}
