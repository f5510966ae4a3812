// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/optim/name_pattern.hpp>

namespace lt = looptorch;

TEST_CASE("patterns describe whole names") {
  using lt::detail::matches_pattern;
  CHECK(matches_pattern("encoder.0.weight", "encoder.*"));
  CHECK(matches_pattern("encoder.0.weight", "*.weight"));
  CHECK(matches_pattern("encoder.0.weight", "encoder.[0-3].weight"));
  CHECK(matches_pattern("encoder.0.weight", "encoder.?.*"));
  CHECK(matches_pattern("a[1]*", "a\\[1]\\*"));
  CHECK_FALSE(matches_pattern("encoder.0.weight", "encoder"));
  CHECK_FALSE(matches_pattern("encoder.0.weight", "weight"));
  CHECK_FALSE(matches_pattern("encoder.0.weight", "encoder.[1-3].weight"));
  CHECK_FALSE(matches_pattern("encoder.10.weight", "encoder.?.weight"));
  for (const std::string name : {"plain.name", "a*b", "[x]", "what?", "back\\slash"}) {
    CHECK(matches_pattern(name, lt::detail::escaped_pattern(name)));
    CHECK_FALSE(matches_pattern("axb", lt::detail::escaped_pattern(name)));
  }
}
