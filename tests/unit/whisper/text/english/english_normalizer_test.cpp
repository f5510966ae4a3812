// SPDX-License-Identifier: MIT
// Against openai-whisper's own results, recorded by tests/parity/metrics_english.py, and by hand where a rule
// deserves a name.
// Tests metrics/unicode: white_space
// Tests whisper/text/english: decimal_digits, english_amounts, english_number_words, english_numbers
// Tests whisper/text/english: english_phrases
// Tests whisper/text/english: english_spelling, english_spellings, plain_letters, plain_text, text_patterns
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/metrics/word_error_rate.hpp>

#include <whisper/text/english/english_normalizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using looptorch::append_utf8;
using looptorch::Json;
using whisper::normalize_english;

namespace {

const Json& record() {
  static const Json record =
      looptorch::load_json(LOOPTORCH_SOURCE_DIR "/tests/parity/data/metrics_english.json");
  return record;
}

void check_rows(const Json& rows) {
  for (const auto& row : rows.as_array()) {
    CAPTURE(row.at(0).as_string());
    CHECK(normalize_english(row.at(0).as_string()) == row.at(1).as_string());
  }
}

/// The characters that Unicode assigns, as far as the recording Python knows.
std::vector<char32_t> assigned_characters() {
  std::vector<char32_t> characters;
  for (const auto& range : record().at("assigned").as_array()) {
    for (auto c = range.at(0).as_int(); c <= range.at(1).as_int(); ++c)
      characters.push_back(static_cast<char32_t>(c));
  }
  return characters;
}

/// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const std::string& text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  std::string hex() const {
    std::string out(16, '0');
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = "0123456789abcdef"[value_ >> (60 - 4 * i) & 15];
    return out;
  }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

}  // namespace

TEST_CASE("English: equal to openai-whisper on sentences with numbers, money, titles, British spellings") {
  REQUIRE(record().at("sentences").as_array().size() >= 1000);
  check_rows(record().at("sentences"));
}

TEST_CASE("English: equal to openai-whisper on random words, symbols and fragments") {
  REQUIRE(record().at("random").as_array().size() >= 500);
  check_rows(record().at("random"));
}

TEST_CASE("English: equal to openai-whisper on every character of Unicode") {
  const auto characters = assigned_characters();
  const auto& digests = record().at("digests").as_array();
  REQUIRE(characters.size() > 270000);
  REQUIRE(digests.size() == (characters.size() + 4095) / 4096);
  // Ideographs and private characters beyond U+20000 are most of Unicode and all alike: one block in eight.
  const bool takes_all = std::getenv("LOOPTORCH_WHISPER_LONG") != nullptr;  // ctest -C long sets it
  for (std::size_t block = 0; block < digests.size(); ++block) {
    const std::size_t begin = 4096 * block, end = std::min(begin + 4096, characters.size());
    const bool is_of_one_plane = characters[begin] >> 16 == characters[end - 1] >> 16;
    if (!takes_all && characters[begin] >= 0x20000 && is_of_one_plane && block % 8 != 0) continue;
    Digest digest;
    for (auto i = begin; i < end; ++i) {
      if (characters[i] == U'\u03A3') continue;  // the one difference, below
      std::string c;
      append_utf8(c, characters[i]);
      digest.add(normalize_english("uh" + c + "um" + c + "1" + c) + "\n");
    }
    CAPTURE(static_cast<std::uint32_t>(characters[begin]));
    CHECK(digest.hex() == digests[block].as_string());
  }
}

TEST_CASE("English: numbers of every form") {
  CHECK(normalize_english("twenty one") == "21");
  CHECK(normalize_english("one oh one") == "101");
  CHECK(normalize_english("two and a half million dollars") == "$2500000");
  CHECK(normalize_english("Ninety-nine point five percent!") == "99.5%");
  CHECK(normalize_english("double seven") == "77");
  CHECK(normalize_english("the twenty first of may nineteen eighty four") == "the 21st of may 1984");
  CHECK(normalize_english("two dollars and seven cents") == "$2.07");
  CHECK(normalize_english("minus three point oh five") == "-3.05");
  CHECK(normalize_english("one decillion") == "1000000000000000000000000000000000");
}

TEST_CASE("English: titles, contractions, fillers, brackets, spellings, diacritics") {
  CHECK(normalize_english("Mr. Brown's, um, [door slams] won't") == "mister brown is will not");
  CHECK(normalize_english("the centre's colour (red), organised in Caf\u00e9 Z\u00fcrich") ==
        "the center is color organized in cafe zurich");
  CHECK(normalize_english("").empty());
  CHECK(normalize_english("uh (hm)").empty());
}

TEST_CASE("English: what two people would write differently costs nothing") {
  looptorch::WordErrorRate errors;
  errors.add(normalize_english("Dr. Smith's paid $20 million - we've 21 theatres."),
             normalize_english("doctor smith is paid twenty million dollars we have twenty one theaters"));
  errors.add(normalize_english("Dr. Brown's paid twenty pounds"),
             normalize_english("doctor brown is paid \u00a320"));
  errors.add(normalize_english("Mr. Brown's paid twenty one pounds"),
             normalize_english("mister brown is paid \u00a321"));
  CHECK(errors.rate() == 0);
}

TEST_CASE("English: a capital sigma becomes the small one of a word's middle") {
  CHECK(normalize_english("\u039b\u039f\u0393\u039f\u03a3") == "\u03bb\u03bf\u03b3\u03bf\u03c3");
}

TEST_CASE("English: bytes that are not UTF-8 are symbols") {
  CHECK(normalize_english("one\xFFtwo") == normalize_english("one\uFFFDtwo"));
  CHECK(normalize_english("one\xFFtwo") == "12");
  CHECK(normalize_english("caf\xE9") == "caf");
}

TEST_CASE("English: any bytes become UTF-8, and long runs of one of them take no longer than others") {
  std::mt19937 random(11);
  const std::string alphabet = "<[(>])' ,.%$1a0s\t\xC2\xA0\xE2\x82\xAC\xFF";
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, ' ');
    for (auto& c : text) c = alphabet[random() % alphabet.size()];
    CAPTURE(text);
    CHECK(looptorch::find_invalid_utf8(normalize_english(text)) == std::string_view::npos);
  }
  for (const std::string part : {"<", "(", "()", " ", "'s", "1 ", "1,", "$0", "and ", "and a half ", "uh "}) {
    std::string text;
    while (text.size() < 100000) text += part;
    CHECK(normalize_english(text).size() < 2 * text.size());
  }
}

TEST_CASE("English: every British spelling of the list is known, once") {
  CHECK(whisper::detail::american_spellings().size() == 1738);
  CHECK(whisper::detail::american_spellings().of("manoeuvre") == "maneuver");
  CHECK(whisper::detail::american_spellings().of("manoeuvrex") == "manoeuvrex");
  CHECK(whisper::detail::american_spellings().of("") == "");
}
