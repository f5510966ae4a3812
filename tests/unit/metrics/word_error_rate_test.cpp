// SPDX-License-Identifier: MIT
// Against jiwer's counts, recorded by tests/parity/word_error_rate.py.
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include <string>

using looptorch::align_words;
using looptorch::count_word_errors;
using looptorch::EditCounts;
using looptorch::Json;
using looptorch::WordErrorRate;

namespace {

const std::string kReference = std::string(LOOPTORCH_SOURCE_DIR) + "/tests/parity/data/word_error_rate.json";

EditCounts to_counts(const Json& json) {
  return {json.at(0).as_int(), json.at(1).as_int(), json.at(2).as_int(), json.at(3).as_int()};
}

}  // namespace

TEST_CASE("word error rate: each pair has jiwer's counts and rate") {
  const auto reference = looptorch::load_json(kReference);
  REQUIRE(reference["pairs"].as_array().size() >= 200);
  for (const auto& pair : reference["pairs"].as_array()) {
    const auto& said = pair["reference"].as_string();
    const auto& recognised = pair["hypothesis"].as_string();
    CAPTURE(said, recognised);
    CHECK(count_word_errors(said, recognised) == to_counts(pair["counts"]));
    CHECK(align_words(said, recognised).counts() == to_counts(pair["counts"]));
    CHECK(count_word_errors(said, recognised).rate() == pair["wer"].as_number());
  }
}

TEST_CASE("word error rate: accumulated sentences have jiwer's rate") {
  const auto reference = looptorch::load_json(kReference);
  WordErrorRate wer;
  for (const auto& pair : reference["pairs"].as_array()) {
    wer.add(pair["reference"].as_string(), pair["hypothesis"].as_string());
  }
  CHECK(wer.errors() == to_counts(reference["total"]));
  CHECK(wer.rate() == reference["wer"].as_number());
  CHECK(wer.sentences() == static_cast<std::int64_t>(reference["pairs"].as_array().size()));
}

TEST_CASE("word error rate: counts by hand") {
  CHECK(count_word_errors("turn left heading seven", "turn right heading seven zero") ==
        EditCounts{.hits = 3, .substitutions = 1, .insertions = 1});
  CHECK(count_word_errors("a b c d", "a d") == EditCounts{.hits = 2, .deletions = 2});
  CHECK(WordErrorRate().rate() == 0);
  CHECK(count_word_errors("a", "b c d").rate() == 3);
}

TEST_CASE("word error rate: white space parts words where jiwer says so") {
  CHECK(count_word_errors("hello\u00A0", "hello") == EditCounts{.hits = 1});
  CHECK(count_word_errors("a\u3000\u3000b \t c", "a b c") == EditCounts{.hits = 3});
  CHECK(count_word_errors("a\tb", "a b") == EditCounts{.substitutions = 1, .insertions = 1});
  CHECK(count_word_errors("a\tb", "a\tb") == EditCounts{.hits = 1});
  CHECK(count_word_errors("\xFF \xC2", "\xFF \xC2") == EditCounts{.hits = 2});
}
