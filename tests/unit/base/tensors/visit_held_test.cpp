// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/tensors/visit_held.hpp>

#include <string>
#include <type_traits>
#include <variant>

using looptorch::detail::visit_held;

TEST_CASE("what a variant holds is visited, as itself and once", "[visit_held]") {
  using Value = std::variant<int, std::string, double>;
  int calls = 0;
  const auto text = [&calls]<class T>(const T& held) {
    ++calls;
    if constexpr (std::is_same_v<T, std::string>)
      return "text " + held;
    else
      return (std::is_same_v<T, int> ? "int " : "double ") + std::to_string(static_cast<int>(held));
  };
  CHECK(visit_held(text, Value(7)) == "int 7");
  CHECK(visit_held(text, Value(std::string("x"))) == "text x");
  CHECK(visit_held(text, Value(2.5)) == "double 2");
  CHECK(calls == 3);

  const Value value(std::string("here"));
  const auto& same = visit_held([](const auto& held) -> const void* { return &held; }, value);
  CHECK(same == std::get_if<std::string>(&value));
}

TEST_CASE("a variant that lost its value is not visited", "[visit_held]") {
  struct Throws {
    Throws() = default;
    Throws(const Throws&) { throw 1; }
    Throws& operator=(const Throws&) = default;
  };
  std::variant<int, Throws> value(1);
  CHECK_THROWS(value.emplace<Throws>(Throws()));
  REQUIRE(value.valueless_by_exception());
  CHECK_THROWS_AS(visit_held([](const auto&) {}, value), std::bad_variant_access);
}
