// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/metrics/text_example.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

TEST_CASE("text_example: a word, or its place, for each edit") {
  const auto example =
      looptorch::text_example("clip", looptorch::align_words("turn left heading", "turn right heading two"));
  CHECK((example.title == "clip" && example.separator == " "));
  REQUIRE(example.pieces.size() == 4);
  CHECK((example.pieces[0].expected == "turn" && example.pieces[0].got == "turn"));
  CHECK((example.pieces[1].expected == "left" && example.pieces[1].got == "right"));
  CHECK((example.pieces[3].expected.empty() && example.pieces[3].got == "two"));
}
