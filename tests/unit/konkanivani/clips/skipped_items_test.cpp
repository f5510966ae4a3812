// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <konkanivani/clips/skipped_items.hpp>

#include <stdexcept>

TEST_CASE("What was caught is listed where there is a list, and goes on as it was where there is none") {
  const auto catch_with = [](konkanivani::SkippedItems* skipped) {
    try {
      throw std::out_of_range("line 3");
    } catch (const std::exception& error) {
      konkanivani::list_or_rethrow(skipped, error);
    }
  };
  konkanivani::SkippedItems skipped({.one = "item", .many = "items"});
  catch_with(&skipped);
  CHECK(skipped.count() == 1);
  CHECK_THAT(skipped.describe(), Catch::Contains("line 3"));
  CHECK_THROWS_AS(catch_with(nullptr), std::out_of_range);
}
