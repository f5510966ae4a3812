// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <finetune_exported/json_tensor.hpp>

#include <optional>
#include <string>

namespace fe = finetune_exported;
namespace lt = looptorch;

namespace {

at::Tensor read(const std::string& text, std::optional<at::ScalarType> dtype = {}) {
  return fe::json_tensor("a:1: \"x\"", lt::Json::parse(text), dtype);
}

}  // namespace

TEST_CASE("lists become dimensions, and a number has none") {
  CHECK(read("7").equal(torch::tensor(7, at::kLong)));
  CHECK(read("[1, 2, 3]").equal(torch::tensor({1, 2, 3}, at::kLong)));
  CHECK(read("[[1, 2], [3, 4], [5, 6]]").equal(torch::arange(1, 7).view({3, 2})));
  CHECK(read("[[[1]], [[2]]]").sizes() == at::IntArrayRef({2, 1, 1}));
  CHECK(read("[]").sizes() == at::IntArrayRef({0}));
  CHECK(read("[[], []]").sizes() == at::IntArrayRef({2, 0}));
}

TEST_CASE("whole numbers are Long and others Float, unless the column has a type with fractions") {
  CHECK(read("[1, 2]").scalar_type() == at::kLong);
  CHECK(read("[1, 2.5]").equal(torch::tensor({1.0F, 2.5F})));
  CHECK(read("[1.0]").scalar_type() == at::kFloat);
  CHECK(read("[1.5]", at::kLong).scalar_type() == at::kFloat);  // which check_fits refuses
  CHECK(read("[1, 2]", at::kHalf).equal(torch::tensor({1.0F, 2.0F}).to(at::kHalf)));
  CHECK(read("[1]", at::kInt).scalar_type() == at::kLong);
}

TEST_CASE("whole numbers and doubles keep their bits") {
  CHECK(read("9007199254740993").item<std::int64_t>() == 9007199254740993);
  CHECK(read("[-9223372036854775808, 9223372036854775807]")
            .equal(torch::tensor({INT64_MIN, INT64_MAX}, at::kLong)));
  CHECK(read("[0.1]", at::kDouble).item<double>() == 0.1);
}

TEST_CASE("what is no number, and lists that are no tensor, are refused with their place") {
  for (const char* text : {"[[1], [1, 2]]", "[[], [1]]", "[[1], []]", "[[[1], [2]], [[3]]]"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(read(text), fe::DataError);
    CHECK_THROWS_WITH(read(text), "a:1: \"x\" has lists of different lengths");
  }
  for (const char* text : {"[1, [2]]", "[[1], 2]", "[[], 1]", "[[[1]], [2]]"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(read(text), "a:1: \"x\" has a number beside a list");
  }
  CHECK_THROWS_WITH(read("[null]"), "a:1: \"x\" holds null, where a number should be");
  CHECK_THROWS_WITH(read("true"), "a:1: \"x\" holds a boolean, where a number should be");
  CHECK_THROWS_WITH(read("[[1], [\"b\"]]"), "a:1: \"x\" holds a string, where a number should be");
  CHECK_THROWS_WITH(read("{}"), "a:1: \"x\" holds an object, where a number should be");
}
