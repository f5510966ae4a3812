// SPDX-License-Identifier: MIT
// Against jiwer's counts and alignments, recorded by tests/parity/metrics_character_error_rate.py.
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/metrics/character_error_rate.hpp>

#include <cstddef>
#include <string>
#include <string_view>

using looptorch::align_characters;
using looptorch::Alignment;
using looptorch::CharacterErrorRate;
using looptorch::CharacterUnit;
using looptorch::count_character_errors;
using looptorch::EditCounts;
using looptorch::Json;

namespace {

Json recorded() {
  return looptorch::load_json(LOOPTORCH_SOURCE_DIR "/tests/parity/data/metrics_character_error_rate.json");
}

EditCounts to_counts(const Json& json) {
  return {json.at(0).as_int(), json.at(1).as_int(), json.at(2).as_int(), json.at(3).as_int()};
}

std::string letters(const Alignment& alignment) {
  std::string out;
  for (const auto& edit : alignment.edits)
    out += std::string_view("=SDI")[static_cast<std::size_t>(edit.kind)];
  return out;
}

}  // namespace

TEST_CASE("character error rate: each pair has jiwer's counts, rate and alignment") {
  const auto reference = recorded();
  REQUIRE(reference["pairs"].as_array().size() >= 400);
  for (const auto& pair : reference["pairs"].as_array()) {
    const auto& said = pair["reference"].as_string();
    const auto& recognised = pair["hypothesis"].as_string();
    CAPTURE(said, recognised);
    const auto counts = count_character_errors(said, recognised);
    CHECK(counts == to_counts(pair["counts"]));
    CHECK(counts.rate() == pair["cer"].as_number());
    CHECK(letters(align_characters(said, recognised)) == pair["edits"].as_string());
  }
}

TEST_CASE("character error rate: grapheme clusters, as jiwer counts them when they are its tokens") {
  const auto reference = recorded();
  for (const auto& pair : reference["pairs"].as_array()) {
    const auto& said = pair["reference"].as_string();
    const auto& recognised = pair["hypothesis"].as_string();
    CAPTURE(said, recognised);
    constexpr auto kUnit = CharacterUnit::grapheme_cluster;
    CHECK(count_character_errors(said, recognised, kUnit) == to_counts(pair["cluster_counts"]));
    CHECK(letters(align_characters(said, recognised, kUnit)) == pair["cluster_edits"].as_string());
  }
}

TEST_CASE("character error rate: accumulated sentences have jiwer's rate") {
  const auto reference = recorded();
  CharacterErrorRate cer;
  for (const auto& pair : reference["pairs"].as_array()) {
    cer.add(pair["reference"].as_string(), pair["hypothesis"].as_string());
  }
  CHECK(cer.errors() == to_counts(reference["total"]));
  CHECK(cer.rate() == reference["cer"].as_number());
  CHECK(cer.sentences() == static_cast<std::int64_t>(reference["pairs"].as_array().size()));
}

TEST_CASE("character error rate: by hand") {
  CHECK(count_character_errors("kitten", "sitting") ==
        EditCounts{.hits = 4, .substitutions = 2, .insertions = 1});
  CHECK(count_character_errors("a b", "ab") == EditCounts{.hits = 2, .deletions = 1});
  CHECK(count_character_errors("नमस्ते", "नमसते") == EditCounts{.hits = 5, .deletions = 1});
  CHECK(count_character_errors("नमस्ते", "नमसते", CharacterUnit::grapheme_cluster) ==
        EditCounts{.hits = 2, .substitutions = 1, .insertions = 1});
  CharacterErrorRate by_letter(CharacterUnit::grapheme_cluster);
  by_letter.add("कि", "की");
  CHECK(by_letter.rate() == 1);
  CHECK(CharacterErrorRate().rate() == 0);
}

TEST_CASE("character error rate: a fault in UTF-8 is a character, equal to the same fault only") {
  CHECK(count_character_errors("a\xFF", "a\xFF") == EditCounts{.hits = 2});
  CHECK(count_character_errors("a\xFF", "a\xFE") == EditCounts{.hits = 1, .substitutions = 1});
  CHECK(count_character_errors("a\xE0\xA4", "a") == EditCounts{.hits = 1, .deletions = 1});
}
