// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/type_name.hpp>
#include <looptorch/policies/accumulate.hpp>

using looptorch::detail::type_name;

TEST_CASE("a type's name is what a user wrote") {
  CHECK(type_name<int>() == "int");
  CHECK(type_name<looptorch::Accumulate<4>>().find("looptorch::Accumulate<4") == 0);
  CHECK(type_name<looptorch::Accumulate<4>>() != type_name<looptorch::Accumulate<8>>());
}
