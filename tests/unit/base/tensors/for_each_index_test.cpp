// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/tensors/for_each_index.hpp>

#include <cstddef>
#include <string>
#include <tuple>

using looptorch::detail::for_each_index;

TEST_CASE("each index is a constant, in order", "[for_each_index]") {
  const std::tuple<int, std::string, double> values{1, "two", 3.5};
  std::string seen;
  for_each_index<3>([&](auto i) {
    static_assert(i < 3);
    if constexpr (i == 1)
      seen += std::get<i>(values);
    else
      seen += std::to_string(static_cast<int>(std::get<i>(values)));
  });
  CHECK(seen == "1two3");
  for_each_index<0>([&](auto) { seen.clear(); });
  CHECK(seen == "1two3");
}
