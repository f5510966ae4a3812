// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"

#include <konkanivani/text/vocabulary.hpp>

#include <algorithm>
#include <string>
#include <vector>

using Catch::Contains;
using konkanivani::Unit;
using konkanivani::UnknownCharacters;
using konkanivani::Vocabulary;
using konkanivani::VocabularyError;
using looptorch::testing::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

namespace {

std::string why_refused(const std::string& json) {
  try {
    (void)Vocabulary::from_json(looptorch::Json::parse(json), "x");
  } catch (const VocabularyError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("Composition is Unicode's normal form C for Devanagari and Latin letters") {
  const auto cases = looptorch::load_json(LOOPTORCH_SOURCE_DIR "/tests/parity/data/konkanivani_text.json");
  REQUIRE(cases.as_array().size() == 400);
  for (const auto& line : cases.as_array()) {
    INFO(line.dump());
    CHECK(looptorch::composed_form(line.at(std::size_t{0}).as_string()) == line.at(1).as_string());
    CHECK(looptorch::composed_form(line.at(1).as_string()) == line.at(1).as_string());
  }
}

TEST_CASE("Texts are normalised: one spelling, lower case, no punctuation, single blanks, vowel signs kept") {
  CHECK(konkanivani::normalize("  म्हजें   नांव, मारिया! ") == "म्हजें नांव मारिया");
  CHECK(konkanivani::normalize("\u0958") == "\u0915\u093C");     // qa, taken apart as form C has it
  CHECK(konkanivani::normalize("\u0930\u093C") == "\u0931");     // rra, put together
  CHECK(konkanivani::normalize("Mha\u0303ka") == "mh\u00E3ka");  // Roman script
  CHECK(konkanivani::normalize("हांव\u200B वता\u0964") == konkanivani::normalize("हांव वता"));
  CHECK(konkanivani::normalize("\u0c95\u0cc6\u0cc2") == "\u0c95\u0cca");  // Kannada script
  CHECK(konkanivani::normalize("...") == "");
}

TEST_CASE("Special ids come first, then the training texts' characters by their bytes, blank included") {
  const std::vector<std::string> texts{"बाब", "आब"}, others{"आब", "बाब", "बाब"};
  const auto vocabulary = Vocabulary::of(texts, Unit::code_point);
  CHECK(vocabulary.characters() == std::vector<std::string>{"आ", "ब", "ा"});
  CHECK(vocabulary.size() == 8);
  CHECK(vocabulary == Vocabulary::of(others, Unit::code_point));
  CHECK(konkanivani::kPad == 0);
  CHECK(konkanivani::kBlank == 1);
  CHECK(konkanivani::kStart == 2);
  CHECK(konkanivani::kEnd == 3);
  CHECK(konkanivani::kUnknown == 4);
  UnknownCharacters unknown;
  CHECK(vocabulary.encode("बाब!", unknown) == Ids{6, 7, 6});
  CHECK(unknown.empty());
  CHECK(unknown.describe().empty());
}

TEST_CASE("Characters are code points or what a reader takes for one") {
  const std::vector<std::string> texts{"क्ष की"};
  CHECK(Vocabulary::of(texts, Unit::code_point).characters() ==
        std::vector<std::string>{" ", "क", "ष", "ी", "्"});
  CHECK(Vocabulary::of(texts, Unit::grapheme).characters() == std::vector<std::string>{" ", "की", "क्ष"});
}

TEST_CASE("What is encoded is decoded, in both scripts and units") {
  const std::vector<std::string> texts{"म्हजें नांव मारिया", "hanv goeam vetam", "कशें आसा"};
  for (const auto unit : {Unit::code_point, Unit::grapheme}) {
    const auto vocabulary = Vocabulary::of(texts, unit);
    for (const auto& text : texts) {
      UnknownCharacters unknown;
      const auto ids = vocabulary.encode(text, unknown);
      CHECK(unknown.empty());
      CHECK(std::all_of(ids.begin(), ids.end(), [](auto id) { return id >= konkanivani::kFirstCharacter; }));
      CHECK(vocabulary.decode(ids) == text);
    }
  }
}

TEST_CASE("A vocabulary holds the training split alone: other characters are unknown, counted and listed") {
  const std::vector<std::string> texts{"कग"};
  const auto vocabulary = Vocabulary::of(texts, Unit::code_point);
  UnknownCharacters unknown;
  CHECK(vocabulary.encode("कऋग", unknown) == Ids{5, 4, 6});
  CHECK(vocabulary.encode("ऋq", unknown) == Ids{4, 4});
  CHECK(unknown.total() == 3);
  CHECK(unknown.describe() == "3 characters outside the vocabulary, read as unknown: ऋ (2), q (1)");
  UnknownCharacters one;
  one.add("x");
  CHECK(one.describe() == "1 character outside the vocabulary, read as unknown: x (1)");
}

TEST_CASE("Special ids leave no trace in a text; ids beyond the vocabulary are refused") {
  const std::vector<std::string> texts{"कग"};
  const auto vocabulary = Vocabulary::of(texts, Unit::code_point);
  CHECK(vocabulary.decode(Ids{2, 5, 1, 4, 6, 3, 0}) == "कग");
  CHECK_THROWS_WITH(vocabulary.decode(Ids{5, 7}), "id 7 is outside the vocabulary of 7");
}

TEST_CASE("A decoded text has single spaces, as the texts that it is compared with") {
  const std::vector<std::string> texts{"क ग"};
  const auto vocabulary = Vocabulary::of(texts, Unit::code_point);
  CHECK(vocabulary.decode(Ids{5, 6, 5, 5, 7, 5}) == "क ग");
}

TEST_CASE("Texts without characters make no vocabulary") {
  const std::vector<std::string> texts{"", " ?! "};
  CHECK_THROWS_WITH(Vocabulary::of(texts, Unit::code_point), "the 2 training texts hold no characters");
}

TEST_CASE("A vocabulary is saved as JSON and loaded again") {
  const TemporaryFolder folder;
  const std::vector<std::string> texts{"क्ष \"की\" a"};
  for (const auto unit : {Unit::code_point, Unit::grapheme}) {
    const auto vocabulary = Vocabulary::of(texts, unit);
    konkanivani::save_vocabulary(folder / "vocabulary.json", vocabulary);
    CHECK(konkanivani::load_vocabulary(folder / "vocabulary.json") == vocabulary);
  }
}

TEST_CASE("A file that holds no vocabulary is refused by name") {
  CHECK(why_refused(R"({"unit": "word", "first_id": 5, "characters": ["a"]})") ==
        "x: unit is \"word\", neither \"code_point\" nor \"grapheme\"");
  CHECK(why_refused(R"({"unit": "grapheme", "first_id": 4, "characters": ["a"]})") ==
        "x: first_id is 4, not 5");
  CHECK(why_refused(R"({"unit": "grapheme", "first_id": 5, "characters": ["a", "b", "a"]})") ==
        "x: character 2 is there twice");
  CHECK(why_refused(R"({"unit": "grapheme", "first_id": 5, "characters": ["a", ""]})") ==
        "x: character 1 is empty");
  CHECK(why_refused(R"({"unit": "grapheme", "first_id": 5, "characters": []})") == "x: has no characters");
  CHECK_THAT(why_refused(R"({"unit": "grapheme", "first_id": 5})"), Contains("characters"));
  const TemporaryFolder folder;
  looptorch::write_file_atomically(folder / "v.json", "[");
  CHECK_THROWS_WITH(konkanivani::load_vocabulary(folder / "v.json"), Contains((folder / "v.json").string()));
}
