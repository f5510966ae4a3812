// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/device/matmul_type.hpp>
#include <looptorch/policies/autocast.hpp>

TEST_CASE("matmul_type is that of at::linear's result, with and without autocast") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor input = at::ones({2, 3}, type), weight = at::ones({4, 3}, type);
    const auto check = [&] {
      CHECK(looptorch::detail::matmul_type(input) == at::linear(input, weight).scalar_type());
    };
    check();
    const looptorch::AutocastScope autocast(at::kCPU, at::kBFloat16);
    check();
  }
  CHECK(looptorch::detail::matmul_type(at::ones({2, 3}, at::kMeta)) == at::kFloat);  // without autocast
}
