// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <finetune_exported/check_fits.hpp>

namespace fe = finetune_exported;

namespace {

const fe::Column kImage{
    .name = "image", .dtype = at::kFloat, .dims = {{{.size = 3}, {.symbol = "s1", .max = 16}}}};

}  // namespace

TEST_CASE("a tensor of the column's kind and sizes fits, whatever its width") {
  CHECK_NOTHROW(fe::check_fits("a", torch::zeros({3, 16}), kImage, false));
  CHECK_NOTHROW(fe::check_fits("a", torch::zeros({3, 0}, at::kDouble), kImage, false));
  CHECK_NOTHROW(fe::check_fits("a", torch::zeros({3, 1}, at::kHalf), kImage, false));
  CHECK_NOTHROW(
      fe::check_fits("a", torch::zeros({2}, at::kByte), {.name = "ids", .dtype = at::kLong}, false));
  CHECK_NOTHROW(fe::check_fits("a", torch::zeros({2, 5}, at::kBool), {.name = "any"}, false));
  CHECK_NOTHROW(fe::check_fits("a", torch::tensor(1), {.name = "y", .dims = {{}}}, false));
}

TEST_CASE("whole numbers for fractions, and the reverse, are refused with place, name and types") {
  CHECK_THROWS_AS(fe::check_fits("a:1", torch::zeros({3, 4}, at::kLong), kImage, false), fe::DataError);
  CHECK_THROWS_WITH(fe::check_fits("a:1", torch::zeros({3, 4}, at::kLong), kImage, false),
                    "a:1: \"image\" is Long, and the model takes Float");
  CHECK_THROWS_WITH(fe::check_fits("b", torch::zeros({1}), {.name = "mask", .dtype = at::kBool}, false),
                    "b: \"mask\" is Float, and the model takes Bool");
}

TEST_CASE("other sizes are refused with both sizes") {
  const std::string takes = " in each sample, and the model takes [3, s1 <= 16]";
  for (const bool padded : {false, true}) {
    CHECK_THROWS_WITH(fe::check_fits("a", torch::zeros({3}), kImage, padded),
                      "a: \"image\" has sizes [3]" + takes);
    CHECK_THROWS_WITH(fe::check_fits("a", torch::zeros({4, 2}), kImage, padded),
                      "a: \"image\" has sizes [4, 2]" + takes);
    CHECK_THROWS_WITH(fe::check_fits("a", torch::zeros({3, 17}), kImage, padded),
                      "a: \"image\" has sizes [3, 17]" + takes);
  }
}

TEST_CASE("only what will be padded may be shorter than a fixed size") {
  CHECK_NOTHROW(fe::check_fits("a", torch::zeros({2, 4}), kImage, true));
  CHECK_THROWS_WITH(fe::check_fits("a", torch::zeros({2, 4}), kImage, false),
                    "a: \"image\" has sizes [2, 4] in each sample, and the model takes [3, s1 <= 16]");
}

TEST_CASE("open sizes of one symbol are equal in a sample, or refused by both names") {
  const auto column = [](const std::string& name, const std::string& symbol) {
    return fe::Column{.name = name, .dims = {{{.symbol = symbol}, {.size = 2}}}};
  };
  fe::OpenSizes sizes;
  sizes.add("a:1", torch::zeros({4, 2}), column("ids", "s1"));
  CHECK_NOTHROW(sizes.add("a:1", torch::zeros({4, 2}), column("mask", "s1")));
  CHECK_NOTHROW(sizes.add("a:1", torch::zeros({3, 2}), column("other", "s2")));
  CHECK_NOTHROW(sizes.add("a:1", torch::zeros({3, 2}), column("computed", "")));
  CHECK_NOTHROW(sizes.add("a:1", torch::zeros({3}), {.name = "labels"}));
  CHECK_THROWS_WITH(
      sizes.add("a:1", torch::zeros({3, 2}), column("mask", "s1")),
      "a:1: \"mask\" has a size of 3 and \"ids\" of 4, and the model takes one size, s1, for both");
}
