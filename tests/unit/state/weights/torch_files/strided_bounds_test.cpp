// SPDX-License-Identifier: MIT
// Tensors that reach beyond their data are noticed, whatever the numbers are.
#include "support/precompiled.hpp"

#include <looptorch/state/weights/torch_files/strided_bounds.hpp>

#include "support/catch.hpp"

using looptorch::detail::lies_within;

TEST_CASE("A tensor lies within its data, or not") {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK(lies_within(0, {2, 3}, {3, 1}, 6));
  CHECK_FALSE(lies_within(0, {2, 3}, {3, 1}, 5));
  CHECK_FALSE(lies_within(1, {2, 3}, {3, 1}, 6));
  CHECK(lies_within(0, {2, 3}, {0, 1}, 3));
  CHECK(lies_within(3, {0}, {1}, 3));
  CHECK_FALSE(lies_within(4, {0}, {1}, 3));
  CHECK(lies_within(2, {}, {}, 3));
  CHECK_FALSE(lies_within(3, {}, {}, 3));
  CHECK_FALSE(lies_within(-1, {1}, {1}, 3));
  CHECK_FALSE(lies_within(0, {2}, {}, 3));
  CHECK_FALSE(lies_within(0, {most, most}, {0, 0}, 3));
  CHECK_FALSE(lies_within(0, {3}, {most}, 3));
  CHECK_FALSE(lies_within(2, {2}, {most}, 3));
}
