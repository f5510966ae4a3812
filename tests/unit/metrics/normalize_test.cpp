// SPDX-License-Identifier: MIT
// By hand, and against the rendering of the same rules in tests/parity/metrics_normalize.py.
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/metrics/normalize.hpp>

#include <string>
#include <utility>

using looptorch::normalize_text;
using looptorch::to_lower;

TEST_CASE("normalise: lower case, no punctuation, single blanks") {
  CHECK(normalize_text("  Turn LEFT,\theading  seven-zero!\n") == "turn left heading seven zero");
  CHECK(normalize_text("\u00bfQu\u00c9?") == "qu\u00e9");
  CHECK(normalize_text("50% of $3.20") == "50 of 3 20");
  CHECK(normalize_text("...") == "");
  CHECK(normalize_text("") == "");
}

TEST_CASE("normalise: apostrophes inside words stay, as one spelling") {
  CHECK(normalize_text("Don't don\u2019t") == "don't don't");
  CHECK(normalize_text("'quoted' dogs' x") == "quoted dogs x");
  CHECK(normalize_text("a''b a' b a 'b") == "a b a b a b");
}

TEST_CASE("normalise: combining marks and joiners inside words stay") {
  CHECK(normalize_text("\u0915\u094b\u0902\u0915\u0923\u0940, \u0928\u092e\u0938\u094d\u0924\u0947\u0964") ==
        "\u0915\u094b\u0902\u0915\u0923\u0940 \u0928\u092e\u0938\u094d\u0924\u0947");
  CHECK(normalize_text("\u0915\u094d\u200d\u0937") == "\u0915\u094d\u200d\u0937");
  CHECK(normalize_text("Cafe\u0301") == "cafe\u0301");
  CHECK(normalize_text("\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd") == "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd");
}

TEST_CASE("normalise: Konkani in Devanagari stays intact") {
  CHECK(normalize_text("कोंकणी भास। कशी आसा?") == "कोंकणी भास कशी आसा");
  CHECK(normalize_text("“स्त्री”—संस्कृती; १२३ ॥") == "स्त्री संस्कृती १२३");
  CHECK(normalize_text("ज़रूर, म्हजें (नांव)") == "ज़रूर म्हजें नांव");
  CHECK(normalize_text("ॐ शांती॰") == "ॐ शांती");
}

TEST_CASE("normalise: a mark goes with the symbol that it stands on, and stays elsewhere") {
  CHECK(normalize_text("a =\u0338 b") == "a b");
  CHECK(normalize_text("1\ufe0f\u20e3 #\ufe0f\u20e3") == "1\u20e3");
  CHECK(normalize_text(" \u093f\u0915") == "\u093f\u0915");
}

TEST_CASE("normalise: as the recorded rendering of the rules, in all scripts") {
  const auto rows = looptorch::load_json(LOOPTORCH_SOURCE_DIR "/tests/parity/data/metrics_normalize.json");
  REQUIRE(rows.as_array().size() >= 300);
  for (const auto& row : rows.as_array()) {
    CAPTURE(row.dump());
    CHECK(normalize_text(row.at(0).as_string()) == row.at(1).as_string());
    CHECK(normalize_text(row.at(1).as_string()) == row.at(1).as_string());
  }
}

TEST_CASE("normalise: emoji, selectors and soft hyphens leave nothing behind") {
  CHECK(normalize_text("a \u2764\ufe0f b") == "a b");
  CHECK(normalize_text("\U0001f468\u200d\U0001f469\u200d\U0001f467 ok") == "ok");
  CHECK(normalize_text("co\u00adoperate") == "cooperate");
  CHECK(normalize_text("\u05d0\u200f\u05d1") == "\u05d0\u05d1");
}

TEST_CASE("normalise: text that is not UTF-8 is replaced, not dropped") {
  CHECK(normalize_text("A\xFF") == "a\uFFFD");
}

TEST_CASE("normalise: other scripts keep their letters") {
  CHECK(normalize_text("\u4f60\u597d\uff0c\u4e16\u754c\u3002") == "\u4f60\u597d \u4e16\u754c");
  CHECK(normalize_text("\u0645\u0631\u062d\u0628\u0627\u060c \u0628\u0643\u061f") ==
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643");
}

TEST_CASE("to_lower: Latin, Greek, Cyrillic and what else has capitals") {
  CHECK(normalize_text("\u00c0\u00d6\u00d8\u00de \u0100\u0130\u0132\u0139\u0147\u014a\u0176\u0178\u017d") ==
        "\u00e0\u00f6\u00f8\u00fe \u0101i\u0133\u013a\u0148\u014b\u0177\u00ff\u017e");
  CHECK(normalize_text("\u0391\u03a9\u03a3 \u0386\u0388\u038a\u038c\u038e\u038f") ==
        "\u03b1\u03c9\u03c3 \u03ac\u03ad\u03af\u03cc\u03cd\u03ce");
  CHECK(normalize_text("\u0401\u0410\u042f \u0460\u0490\u04c0\u04c1\u04d0\u052e") ==
        "\u0451\u0430\u044f \u0461\u0491\u04cf\u04c2\u04d1\u052f");
  CHECK(normalize_text("\u0218\u021a \u01a0\u01af \u1ea4\u1ef2 \u01cd") ==
        "\u0219\u021b \u01a1\u01b0 \u1ea5\u1ef3 \u01ce");
  CHECK(normalize_text("\u0531\u0556 \u10a0 \u13a0 \uff21 \U00010400") ==
        "\u0561\u0586 \u2d00 \uab70 \uff41 \U00010428");
  for (const char32_t c :
       {U'a', U'\u00df', U'\u00ff', U'\u00d7', U'\u0138', U'\u0149', U'\u0482', U'\u0915', U'7'}) {
    CHECK(to_lower(c) == c);
  }
}
