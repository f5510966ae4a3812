// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/unicode/composed_form.hpp>

#include <filesystem>
#include <string>

using looptorch::composed_form;

// Recorded by tests/parity/canonical_form.py: every character with a decomposition, and random strings.
TEST_CASE("the composed form is Unicode's normal form C") {
  const std::filesystem::path data = std::string(LOOPTORCH_SOURCE_DIR) + "/tests/parity/data";
  const auto forms = looptorch::load_json(data / "canonical_form.json");
  REQUIRE(forms.as_array().size() > 2000);
  for (const auto& each : forms.as_array()) {
    const auto& composed = each.at(std::size_t{2}).as_string();
    CAPTURE(composed);
    for (const std::size_t spelling : {0, 1, 2})
      REQUIRE(composed_form(each.at(spelling).as_string()) == composed);
  }
}

TEST_CASE("equivalent spellings have one composed form") {
  CHECK(composed_form("re\u0301sume\u0301") == "r\u00e9sum\u00e9");
  CHECK(composed_form("\u1112\u1161\u11ab\u1100\u116e\u11a8") == "\ud55c\uad6d");
  CHECK(composed_form("\u0958") == "\u0915\u093c");
  CHECK(composed_form("caf\xe9") == "caf\ufffd");
  CHECK(composed_form("plain") == "plain");
  CHECK(composed_form("").empty());
}
