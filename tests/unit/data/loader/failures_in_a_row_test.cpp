// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/loader/failures_in_a_row.hpp>

#include <cstdint>
#include <vector>

namespace lt = looptorch;

TEST_CASE("failures in a row end the epoch at a thousand, and the last three are named") {
  lt::detail::FailuresInARow failures;
  std::vector<lt::SkippedSample> many;
  for (std::int64_t index = 0; index < 999; ++index)
    many.push_back({.epoch = 2, .batch = index, .index = index, .message = "cut off"});
  failures.add(many);
  CHECK_FALSE(failures.too_many());
  failures.clear();
  failures.add(many);
  CHECK_FALSE(failures.too_many());
  failures.add({{.epoch = 2, .batch = 999, .index = 999, .path = "a.wav", .message = "no header"}});
  CHECK(failures.too_many());
  CHECK_THROWS_AS(failures.throw_error(), lt::LoaderError);
  CHECK_THROWS_WITH(
      failures.throw_error(),
      Catch::Contains("1000 samples in a row failed in epoch 2, with no batch between; the last of "
                      "them; sample 997: cut off; sample 998: cut off; sample 999: no header"));
}
