// SPDX-License-Identifier: MIT
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/state/weights/tied_tensors.hpp>

#include "support/place.hpp"

#include <functional>

using looptorch::find_tied_names;
using looptorch::TiedNames;
using looptorch::testing::placed;

TEST_CASE("tied tensors: the first of all names of a tensor is kept") {
  const auto a = placed(torch::zeros({2, 3})), b = placed(torch::zeros({2, 3}));
  CHECK(find_tied_names({{"x", a}, {"y", b}, {"z", a}, {"zz", a}}) == TiedNames{{"z", "x"}, {"zz", "x"}});
  CHECK(find_tied_names({{"x", a}, {"y", a.view({2, 3}).detach()}}) == TiedNames{{"y", "x"}});
}

TEST_CASE("tied tensors: other values in the same memory are not tied") {
  const auto a = placed(torch::zeros({2, 2}));
  const auto z = torch::complex(a, a);
  CHECK(find_tied_names({{"x", a}, {"y", a.t()}}).empty());
  CHECK(find_tied_names({{"x", a}, {"y", a.view({4})}}).empty());
  CHECK(find_tied_names({{"x", a}, {"y", a[0]}}).empty());
  CHECK(find_tied_names({{"x", a}, {"y", a.view(at::kInt)}}).empty());
  CHECK(find_tied_names({{"x", z}, {"y", z.conj()}}).empty());
}

TEST_CASE("tied tensors: a tensor without memory is tied to itself only") {
  for (const auto& make : {std::function([] { return placed(torch::empty({0})); }),
                           std::function([] { return torch::empty({2}, at::kMeta); }),
                           std::function([] { return torch::eye(2).to_sparse(); })}) {
    const auto a = make();
    CHECK(find_tied_names({{"x", a}, {"y", make()}, {"z", a}}) == TiedNames{{"z", "x"}});
  }
}
