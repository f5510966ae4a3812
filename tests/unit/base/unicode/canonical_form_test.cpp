// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/unicode/canonical_form.hpp>

#include <filesystem>
#include <string>

using looptorch::canonical_form;

// Recorded by tests/parity/canonical_form.py: every character with a decomposition, and random strings.
TEST_CASE("the canonical form is Unicode's normal form D") {
  const std::filesystem::path data = std::string(LOOPTORCH_SOURCE_DIR) + "/tests/parity/data";
  const auto pairs = looptorch::load_json(data / "canonical_form.json");
  REQUIRE(pairs.as_array().size() > 2000);
  for (const auto& pair : pairs.as_array()) {
    const auto& text = pair.at(std::size_t{0}).as_string();
    CAPTURE(text);
    REQUIRE(canonical_form(text) == pair.at(std::size_t{1}).as_string());
  }
}

TEST_CASE("equivalent spellings have one canonical form") {
  CHECK(canonical_form("r\u00e9sum\u00e9.wav") == canonical_form("re\u0301sume\u0301.wav"));
  CHECK(canonical_form("\u1ec7") == canonical_form("e\u0302\u0323"));  // two marks, in another order
  CHECK(canonical_form("\ud55c\uad6d") == "\u1112\u1161\u11ab\u1100\u116e\u11a8");
  CHECK(canonical_form("\u212b") == "A\u030a");
  CHECK(canonical_form("plain") == "plain");
  CHECK(canonical_form("\ufb01") == "\ufb01");  // compatible with "fi", and not equivalent
  CHECK(canonical_form("caf\xe9") == "caf\ufffd");
  CHECK(canonical_form("").empty());
}
