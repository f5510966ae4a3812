// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/metrics/text_example.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include <cstddef>
#include <vector>

TEST_CASE("text_example: a word, or its place, for each edit") {
  const auto example =
      looptorch::text_example("clip", looptorch::align_words("turn left heading", "turn right heading two"));
  CHECK((example.title == "clip" && example.separator == " "));
  REQUIRE(example.pieces.size() == 4);
  CHECK((example.pieces[0].expected == "turn" && example.pieces[0].got == "turn"));
  CHECK((example.pieces[1].expected == "left" && example.pieces[1].got == "right"));
  CHECK((example.pieces[3].expected.empty() && example.pieces[3].got == "two"));
}

TEST_CASE("evenly_spaced: from the first on, each index once, all if there are fewer") {
  using Indices = std::vector<std::size_t>;
  CHECK(looptorch::evenly_spaced(4, 10) == Indices{0, 2, 5, 7});
  CHECK(looptorch::evenly_spaced(3, 3) == Indices{0, 1, 2});
  CHECK(looptorch::evenly_spaced(8, 2) == Indices{0, 1});
  CHECK(looptorch::evenly_spaced(0, 5).empty());
  CHECK(looptorch::evenly_spaced(5, 0).empty());
}
