// SPDX-License-Identifier: MIT
// Tests base: state_dict
#include "support/precompiled.hpp"

#include <looptorch/base/state_dict.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using looptorch::StateValue;

namespace {

template <class T>
std::string named() {
  if constexpr (std::is_same_v<T, bool>)
    return "flag";
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return "whole";
  else if constexpr (std::is_same_v<T, double>)
    return "number";
  else
    return std::is_same_v<T, std::string> ? "text" : "tensor";
}

std::string type_of(const StateValue& value) {
  return value.visit([]<class T>(const T&) { return named<T>(); });
}

}  // namespace

TEST_CASE("a value of a state holds one of five types, and only that", "[state_value]") {
  const at::Tensor tensor = torch::ones({2});
  const std::vector<StateValue> values = {true, std::int64_t{-3}, 0.5, std::string("x"), tensor};
  const std::vector<std::string> types = {"flag", "whole", "number", "text", "tensor"};
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(type_of(values[i]) == types[i]);
    for (std::size_t j = 0; j < values.size(); ++j) CHECK(values[i].same_type(values[j]) == (i == j));
    CHECK((values[i].get_if<bool>() != nullptr) == (i == 0));
    CHECK((values[i].get_if<std::int64_t>() != nullptr) == (i == 1));
    CHECK((values[i].get_if<double>() != nullptr) == (i == 2));
    CHECK((values[i].get_if<std::string>() != nullptr) == (i == 3));
    CHECK((values[i].get_if<at::Tensor>() != nullptr) == (i == 4));
  }
  CHECK(*values[0].get_if<bool>());
  CHECK(*values[1].get_if<std::int64_t>() == -3);
  CHECK(*values[2].get_if<double>() == 0.5);
  CHECK(*values[3].get_if<std::string>() == "x");
  CHECK(values[4].get_if<at::Tensor>()->is_same(tensor));  // by handle
}

TEST_CASE("a value of a state that is assigned has the new one's type", "[state_value]") {
  StateValue value = std::string("before");
  value = 2.0;
  CHECK(type_of(value) == "number");
  CHECK_FALSE(value.get_if<std::string>());
  StateValue copy = value;
  CHECK(*copy.get_if<double>() == 2.0);
  const StateValue moved = std::move(copy);
  CHECK(*moved.get_if<double>() == 2.0);
}

TEST_CASE("what is no value of a state is not taken for a flag", "[state_value]") {
  CHECK(type_of(StateValue("literal")) == "text");
  static_assert(!std::is_constructible_v<StateValue, void*>);
  static_assert(std::is_nothrow_move_constructible_v<StateValue>);
}
