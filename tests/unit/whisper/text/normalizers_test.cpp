// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/metrics/word_error_rate.hpp>

#include <whisper/text/normalizers.hpp>

#include <string>

using whisper::choose_normalizer;

TEST_CASE("The normaliser is Whisper's for English and keeps combining marks for other languages") {
  CHECK(choose_normalizer("auto", "en").name == "english");
  CHECK(choose_normalizer("auto", "mr").name == "marks");
  for (const auto* code : {"zh", "yue", "ja", "th", "lo", "my"})
    CHECK(choose_normalizer("auto", code).name == "characters");
  CHECK(choose_normalizer("auto", "ko").name == "marks");
  CHECK(choose_normalizer("marks", "en").name == "marks");
  CHECK(choose_normalizer("english", "mr").name == "english");
  CHECK_THROWS_AS(choose_normalizer("basic", "en"), looptorch::app::CommandLineError);
  CHECK_THROWS_WITH(choose_normalizer("basic", "en"),
                    "--normalizer: \"basic\" is not auto, english, marks, characters or none");
}

TEST_CASE("Each normaliser forgives what it should, and no more") {
  const auto rate = [](const std::string& name, const std::string& reference, const std::string& hypothesis) {
    const auto normalizer = choose_normalizer(name, "en");
    return looptorch::count_word_errors(normalizer.apply(reference), normalizer.apply(hypothesis)).rate();
  };
  CHECK(rate("english", "Heading two one zero, sir.", "heading 210 sir") == 0);
  CHECK(rate("marks", "Heading two one zero, sir.", "heading 210 sir") == 0.6);
  CHECK(rate("marks", "Heading, SIR.", "heading sir") == 0);
  CHECK(rate("none", "Heading, SIR.", "heading sir") == 1);
  CHECK(rate("characters", "今日は いい天気。", "今日はいい元気") == Approx(1.0 / 7));
  CHECK(rate("marks", "今日はいい天気", "今日はいい元気") == 1);
  CHECK(rate("characters", "ที่นี่ดี", "ที่นี่ดิ") == Approx(1.0 / 3));  // a vowel sign belongs to its letter
  CHECK(rate("characters", "Ab, c", "abc") == 0);
  CHECK(rate("marks", "कोंकणी भास", "कोंकणी भास।") == 0);
  CHECK(rate("marks", "कोंकणी भास", "कोंकणी भसि") == 0.5);
  for (const auto* name : {"english", "marks", "characters"}) {
    CHECK(rate(name, "Cafe\u0301 \u0958", "caf\u00e9 \u0915\u093c") == 0);  // two spellings of the same
    CHECK(rate(name, "\u1112\u1161\u11ab\u1100\u116e\u11a8", "\ud55c\uad6d") == 0);
  }
}
