// SPDX-License-Identifier: MIT
// Against the clusters of the package regex, recorded by tests/parity/metrics_unicode.py.
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include <string>
#include <string_view>
#include <vector>

using looptorch::code_points;
using looptorch::grapheme_clusters;

TEST_CASE("grapheme clusters: as regex cuts them, in all scripts") {
  const auto reference =
      looptorch::load_json(LOOPTORCH_SOURCE_DIR "/tests/parity/data/metrics_graphemes.json");
  REQUIRE(reference["clusters"].as_array().size() >= 700);
  for (const auto& row : reference["clusters"].as_array()) {
    std::string text;
    std::vector<std::string> expected;
    for (const auto& cluster : row.as_array()) text += expected.emplace_back(cluster.as_string());
    CAPTURE(row.dump());
    const auto found = grapheme_clusters(text);
    CHECK((std::vector<std::string>(found.begin(), found.end()) == expected));
  }
}

TEST_CASE("grapheme clusters: what a reader of Devanagari calls a letter") {
  using Parts = std::vector<std::string_view>;
  CHECK((grapheme_clusters("कोंकणी") == Parts{"कों", "क", "णी"}));
  CHECK((grapheme_clusters("नमस्ते") == Parts{"न", "म", "स्ते"}));
  CHECK((grapheme_clusters("स्त्री") == Parts{"स्त्री"}));
  CHECK((code_points("की") == Parts{"क", "ी"}));
}

TEST_CASE("grapheme clusters: a virama joins only what follows a consonant") {
  using Parts = std::vector<std::string_view>;
  CHECK((grapheme_clusters("\u094d\u0915") == Parts{"\u094d", "\u0915"}));
  CHECK((grapheme_clusters("\u0915\u093e\u094d\u0937") == Parts{"\u0915\u093e\u094d", "\u0937"}));
  CHECK((grapheme_clusters("\u0915\u093c\u094d\u200d\u0937") == Parts{"\u0915\u093c\u094d\u200d\u0937"}));
  CHECK((grapheme_clusters("\u0915\u094d\u200c\u0937") == Parts{"\u0915\u094d\u200c", "\u0937"}));
}

TEST_CASE("grapheme clusters and code points: of faulty text each byte is somewhere") {
  const std::string text = "a\xFF\xE0\xA4z\xCC";
  std::string clusters, points;
  for (const auto part : grapheme_clusters(text)) clusters += part;
  for (const auto part : code_points(text)) points += part;
  CHECK(clusters == text);
  CHECK(points == text);
  CHECK(code_points(text).size() == 5);
  CHECK(grapheme_clusters("").empty());
  CHECK(code_points("").empty());
}
