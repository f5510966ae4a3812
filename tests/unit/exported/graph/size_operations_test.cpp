// SPDX-License-Identifier: MIT
// Sizes are computed as Python computes them.
#include "support/precompiled.hpp"

#include <looptorch/exported/graph/size_operations.hpp>

#include "support/catch.hpp"

namespace lt = looptorch;
namespace exported = lt::detail::exported;

namespace {

c10::IValue call(const char* name, const exported::Numbers& numbers) {
  const auto* function = exported::size_function(name);
  REQUIRE(function);
  REQUIRE(function->arguments == numbers.size());
  return function->call(numbers);
}

}  // namespace

TEST_CASE("Whole numbers stay whole, and round towards minus infinity") {
  const auto whole = [](const char* name, std::int64_t a, std::int64_t b) {
    return call(name, {a, b}).toInt();
  };
  CHECK(whole("_operator.floordiv", 7, 2) == 3);
  CHECK(whole("_operator.floordiv", -7, 2) == -4);
  CHECK(whole("_operator.floordiv", 7, -2) == -4);
  CHECK(whole("_operator.floordiv", -8, 2) == -4);
  CHECK(whole("_operator.mod", -7, 3) == 2);
  CHECK(whole("_operator.mod", 7, -3) == -2);
  CHECK(whole("_operator.mod", 6, -3) == 0);
  CHECK(whole("_operator.add", 3, 4) == 7);
  CHECK(whole("_operator.sub", 3, 4) == -1);
  CHECK(whole("_operator.mul", 3, 4) == 12);
  CHECK(whole("_operator.pow", 3, 4) == 81);
  CHECK(whole("torch.sym_max", 3, 4) == 4);
  CHECK(whole("torch.sym_min", 3, 4) == 3);
  CHECK(whole("_operator.and_", 6, 3) == 2);
  CHECK(whole("_operator.or_", 6, 3) == 7);
  CHECK(call("_operator.neg", {std::int64_t{3}}).toInt() == -3);
  CHECK(call("_operator.pos", {std::int64_t{3}}).toInt() == 3);
  CHECK(call("torch.sym_int", {-2.7}).toInt() == -2);
  CHECK(call("math.trunc", {2.7}).toInt() == 2);
}

TEST_CASE("Floats where one is a float, or a quotient") {
  CHECK(call("_operator.truediv", {std::int64_t{7}, std::int64_t{2}}).toDouble() == 3.5);
  CHECK(call("_operator.add", {std::int64_t{7}, 0.5}).toDouble() == 7.5);
  CHECK(call("_operator.floordiv", {-7.5, std::int64_t{2}}).toDouble() == -4);
  CHECK(call("_operator.mod", {-7.5, std::int64_t{2}}).toDouble() == 0.5);
  CHECK(call("_operator.pow", {std::int64_t{4}, 0.5}).toDouble() == 2);
  CHECK(call("_operator.pow", {std::int64_t{4}, std::int64_t{-1}}).toDouble() == 0.25);
  CHECK(call("torch.sym_sqrt", {std::int64_t{9}}).toDouble() == 3);
  CHECK(call("torch.sym_float", {std::int64_t{9}}).isDouble());
}

TEST_CASE("Comparisons and choices") {
  const auto holds = [](const char* name, std::int64_t a, std::int64_t b) {
    return call(name, {a, b}).toBool();
  };
  CHECK(holds("_operator.lt", 1, 2));
  CHECK_FALSE(holds("_operator.lt", 2, 2));
  CHECK(holds("_operator.le", 2, 2));
  CHECK(holds("_operator.gt", 3, 2));
  CHECK_FALSE(holds("_operator.ge", 1, 2));
  CHECK(holds("_operator.eq", 2, 2));
  CHECK(holds("_operator.ne", 1, 2));
  CHECK(call("torch.sym_not", {false}).toBool());
  CHECK(call("_operator.and_", {true, false}).isBool());
  CHECK(call("torch.sym_ite", {true, std::int64_t{1}, std::int64_t{2}}).toInt() == 1);
  CHECK(call("torch.sym_ite", {false, std::int64_t{1}, std::int64_t{2}}).toInt() == 2);
}

TEST_CASE("What has no result is refused") {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(call("_operator.floordiv", {std::int64_t{1}, std::int64_t{0}}), lt::UsageError);
  CHECK_THROWS_AS(call("_operator.mod", {std::int64_t{1}, std::int64_t{0}}), lt::UsageError);
  CHECK_THROWS_AS(call("_operator.truediv", {std::int64_t{1}, std::int64_t{0}}), lt::UsageError);
  CHECK_THROWS_AS(call("_operator.add", {most, std::int64_t{1}}), lt::UsageError);
  CHECK_THROWS_AS(call("_operator.mul", {most, std::int64_t{2}}), lt::UsageError);
  CHECK_THROWS_AS(call("_operator.pow", {std::int64_t{2}, std::int64_t{64}}), lt::UsageError);
  CHECK_THROWS_AS(call("_operator.floordiv", {-most - 1, std::int64_t{-1}}), lt::UsageError);
  CHECK_THROWS_AS(call("torch.sym_int", {1e300}), lt::UsageError);
  CHECK(call("_operator.mod", {-most - 1, std::int64_t{-1}}).toInt() == 0);
  CHECK_FALSE(exported::size_function("_operator.matmul"));
}
