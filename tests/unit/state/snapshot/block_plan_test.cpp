// SPDX-License-Identifier: MIT
#include <looptorch/state/snapshot/block_plan.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <vector>

using looptorch::detail::BlockPlan;

TEST_CASE("block plan: blocks are filled before a new one begins, holes too, and none passes the limit") {
  BlockPlan plan(100);
  const auto at = [&](std::size_t bytes) {
    const auto place = plan.add(bytes);
    return std::vector<std::size_t>{place.block, place.offset};
  };
  CHECK(plan.sizes().empty());
  CHECK(at(60) == std::vector<std::size_t>{0, 0});
  CHECK(at(60) == std::vector<std::size_t>{1, 0});
  CHECK(at(40) == std::vector<std::size_t>{0, 60});
  CHECK(at(0) == std::vector<std::size_t>{0, 100});
  CHECK(at(40) == std::vector<std::size_t>{1, 60});
  CHECK(at(1) == std::vector<std::size_t>{2, 0});
  CHECK(plan.sizes() == std::vector<std::size_t>{100, 100, 1});
  CHECK(plan.fits(100));
  CHECK_FALSE(plan.fits(101));
}
