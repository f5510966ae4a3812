// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/evaluation.hpp>

#include <string>

using whisper::choose_normalizer;
using whisper::word_error_rate;

TEST_CASE("The normaliser is Whisper's for English and keeps combining marks for other languages") {
  CHECK(choose_normalizer("auto", "en").name == "english");
  CHECK(choose_normalizer("auto", "mr").name == "marks");
  CHECK(choose_normalizer("marks", "en").name == "marks");
  CHECK(choose_normalizer("english", "mr").name == "english");
  CHECK_THROWS_AS(choose_normalizer("basic", "en"), whisper::CommandLineError);
  CHECK_THROWS_WITH(choose_normalizer("basic", "en"),
                    "--normalizer: \"basic\" is not auto, english, marks or none");
}

TEST_CASE("Each normaliser forgives what it should, and no more") {
  const auto rate = [](const std::string& name, const std::string& reference, const std::string& heard) {
    return word_error_rate({reference}, {heard}, choose_normalizer(name, "en"));
  };
  CHECK(rate("english", "Heading two one zero, sir.", "heading 210 sir") == 0);
  CHECK(rate("marks", "Heading two one zero, sir.", "heading 210 sir") == 0.6);
  CHECK(rate("marks", "Heading, SIR.", "heading sir") == 0);
  CHECK(rate("none", "Heading, SIR.", "heading sir") == 1);
  CHECK(rate("marks", "कोंकणी भास", "कोंकणी भास।") == 0);
  CHECK(rate("marks", "कोंकणी भास", "कोंकणी भसि") == 0.5);
}
