// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/optim/gradients/finite_gradients.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

TEST_CASE("any_non_finite: whatever the type, the place and the layout of a gradient") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const std::int64_t size : {1, 7, 33, 1023, 1024, 1055, 1056, 5000})
      for (const double bad : {double{NAN}, HUGE_VAL, -HUGE_VAL})
        for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
          std::vector<at::Tensor> gradients{torch::full({3}, -1e30), torch::full({size}, 3e4, type)};
          CHECK_FALSE(looptorch::detail::any_non_finite(gradients));
          gradients[1][at] = bad;
          CHECK(looptorch::detail::any_non_finite(gradients));
        }
  const at::Tensor wide = torch::ones({6, 6});
  wide[3][5] = NAN;
  CHECK(looptorch::detail::any_non_finite({wide.t()}));
  CHECK(looptorch::detail::any_non_finite({wide.slice(1, 3)}));  // with gaps
  CHECK_FALSE(looptorch::detail::any_non_finite(
      {wide.slice(1, 0, 5), torch::empty({0}), torch::ones({2}, at::kMeta)}));
  CHECK(looptorch::detail::any_non_finite({wide.to_sparse()}));
  CHECK_FALSE(looptorch::detail::any_non_finite({torch::ones({2, 2}).to_sparse()}));
  CHECK(looptorch::detail::any_non_finite({torch::full({2}, 3e38)}) == false);
}

namespace {

/// Returns a gradient of sparse rows as autograd leaves it: a row once for each time that it was looked up.
at::Tensor sparse_rows(const std::vector<std::int64_t>& rows, double value) {
  const auto count = static_cast<std::int64_t>(rows.size());
  return torch::sparse_coo_tensor(torch::tensor(rows, at::kLong).view({1, count}),
                                  torch::full({count, 4}, value), {10, 4});
}

}  // namespace

TEST_CASE("a sparse gradient counts as the dense one that it stands for") {
  using looptorch::detail::any_non_finite, looptorch::detail::norm_of;
  const at::Tensor thrice = sparse_rows({2, 2, 2}, 1), none = sparse_rows({}, 1);
  REQUIRE_FALSE(thrice.is_coalesced());
  CHECK(norm_of({thrice}) == 6);
  CHECK(norm_of({none}) == 0);
  CHECK(norm_of({none, thrice, torch::full({64}, 1.0f)}) == 10);
  CHECK_FALSE(any_non_finite({thrice}));
  CHECK_FALSE(any_non_finite({none}));
  CHECK_FALSE(any_non_finite({none, thrice}));
  CHECK_FALSE(any_non_finite({sparse_rows({2, 3}, 3e38)}));
  CHECK(any_non_finite({none, sparse_rows({2, 2}, 3e38)}));  // their sum is infinite
}
