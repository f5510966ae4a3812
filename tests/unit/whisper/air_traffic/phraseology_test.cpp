// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/air_traffic/phraseology.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace {

std::vector<std::string> sentences(std::uint64_t seed, int count) {
  whisper::Phraseology phrases(seed);
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(phrases.sentence());
  return out;
}

bool is_plain(const std::string& text) {
  return !text.empty() && text.front() != ' ' && text.back() != ' ' && text.find("  ") == std::string::npos &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || c == ' ' || c == '-'; });
}

}  // namespace

TEST_CASE("A seed fixes the sentences, on every platform") {
  CHECK(sentences(1, 200) == sentences(1, 200));
  CHECK(sentences(1, 200) != sentences(2, 200));
  CHECK(sentences(1, 3) ==
        std::vector<std::string>{"tango oscar delta climbing to seven thousand feet",
                                 "squawk tree tree one six echo yankee yankee",
                                 "india bravo oscar hold short of taxiway victor runway one two"});
}

TEST_CASE("Sentences are lower-case words of at most 17, seldom the same one twice") {
  const auto texts = sentences(3, 2000);
  for (const auto& text : texts) {
    INFO(text);
    CHECK(is_plain(text));
    CHECK(std::count(text.begin(), text.end(), ' ') < 17);
  }
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() > 1990);
}

TEST_CASE("Every digit and the kinds of message occur") {
  std::string all;
  for (const auto& text : sentences(4, 400)) all += " " + text + " ";
  for (const auto* part :
       {" zero ",          " one ",   " two ",   " tree ",  " fower ",      " fife ",   " six ",
        " seven ",         " eight ", " niner ", "heading", "flight level", "thousand", "decimal",
        "taxiway",         "runway",  "wind",    "squawk",  "qnh",          "knots",    "cleared for takeoff",
        "cleared to land", " x-ray "}) {
    INFO(part);
    CHECK(all.find(part) != std::string::npos);
  }
}
