// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/type_name.hpp>
#include <looptorch/policies/accumulate.hpp>

using looptorch::detail::short_name, looptorch::detail::type_name;

namespace {

template <class T>
struct Holder {};

}  // namespace

TEST_CASE("a type's name is what a user wrote") {
  CHECK(type_name<int>() == "int");
  CHECK(type_name<looptorch::Accumulate<4>>().find("looptorch::Accumulate<4") == 0);
  CHECK(type_name<looptorch::Accumulate<4>>() != type_name<looptorch::Accumulate<8>>());
  CHECK(type_name<Holder<int[3]>>().ends_with("[3]>"));
  CHECK(type_name<int[2][3]>().ends_with("[2][3]"));
  CHECK(type_name<Holder<Holder<int[2][3]>>>().find("[2][3]>") != std::string_view::npos);
  CHECK(type_name<Holder<Holder<int[2][3]>>>().ends_with(">"));
}

TEST_CASE("a short name has neither namespaces nor arguments") {
  CHECK(short_name(type_name<looptorch::Accumulate<4>>()) == "Accumulate");
  CHECK(short_name("a::B<c::D>") == "B");
  CHECK(short_name("int") == "int");
}
