// SPDX-License-Identifier: MIT
// Generates sentences of air-traffic radiotelephony in the words of ICAO Doc 9432: call signs in the spelling
// alphabet, digits one by one with "tree", "fower", "fife" and "niner", clearances and their readbacks. The
// same seed gives the same sentences on every platform.
#pragma once

#include <looptorch/base/random.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace whisper {

using looptorch::Dice;

/// An endless stream of instructions, clearances, reports and readbacks of at most 17 words.
class Phraseology {
 public:
  explicit Phraseology(std::uint64_t seed) : dice_(seed) {}

  /// Returns the next sentence: lower case, words separated by one space, no punctuation.
  std::string sentence() {
    const auto caller = call_sign(), said = message();
    return dice_.between(0, 3) == 0 ? join({said, caller}) : join({caller, said});
  }

 private:
  using Words = std::span<const std::string_view>;

  // Joins the parts. A braced list draws them from left to right, whereas the operands of `+` have no order.
  static std::string join(std::initializer_list<std::string> parts) {
    std::string text;
    for (const auto& part : parts) text += (text.empty() ? "" : " ") + part;
    return text;
  }

  std::string word(Words from) { return std::string(dice_.pick(from)); }

  static std::string digit(int d) {
    static constexpr std::array<std::string_view, 10> kDigits{"zero", "one", "two",   "tree",  "fower",
                                                              "fife", "six", "seven", "eight", "niner"};
    return std::string(kDigits[static_cast<std::size_t>(d)]);
  }

  /// Returns `number` spoken digit by digit, with leading zeros up to `count` digits.
  static std::string digits(int number, int count) {
    return count == 1 ? digit(number % 10) : join({digits(number / 10, count - 1), digit(number % 10)});
  }

  std::string letter() {
    static constexpr std::array<std::string_view, 26> kAlphabet{
        "alfa",    "bravo", "charlie", "delta",  "echo",     "foxtrot", "golf",   "hotel",  "india",
        "juliett", "kilo",  "lima",    "mike",   "november", "oscar",   "papa",   "quebec", "romeo",
        "sierra",  "tango", "uniform", "victor", "whiskey",  "x-ray",   "yankee", "zulu"};
    return word(kAlphabet);
  }

  std::string call_sign() {
    static constexpr std::array<std::string_view, 6> kOperators{"speedbird", "lufthansa", "swiss",
                                                                "finnair",   "qantas",    "emirates"};
    if (dice_.between(0, 3) == 0) return join({word(kOperators), digits(dice_.between(100, 999), 3)});
    return join({letter(), letter(), letter()});
  }

  std::string runway() {
    static constexpr std::array<std::string_view, 2> kSides{"left", "right"};
    const auto number = join({"runway", digits(dice_.between(1, 36), 2)});
    return dice_.between(0, 2) == 0 ? join({number, word(kSides)}) : number;
  }

  std::string level() {
    if (dice_.between(0, 1) == 0) return join({"flight level", digits(10 * dice_.between(6, 41), 3)});
    const auto thousands = join({digit(dice_.between(2, 9)), "thousand"});
    return dice_.between(0, 1) == 0 ? join({thousands, "feet"}) : join({thousands, "fife hundred feet"});
  }

  std::string turn() {
    static constexpr std::array<std::string_view, 5> kForms{"turn left heading", "turn right heading",
                                                            "fly heading", "left heading", "right heading"};
    return join({word(kForms), digits(5 * dice_.between(1, 72), 3)});
  }

  std::string climb_or_descend() {
    static constexpr std::array<std::string_view, 6> kForms{"climb to",      "descend to", "climbing to",
                                                            "descending to", "maintain",   "report passing"};
    return join({word(kForms), level()});
  }

  std::string frequency() {
    static constexpr std::array<std::string_view, 5> kUnits{"tower", "ground", "approach", "radar",
                                                            "departure"};
    return join({"contact", word(kUnits), digits(dice_.between(118, 136), 3), "decimal",
                 digits(5 * dice_.between(1, 19), 2)});
  }

  std::string taxi() {
    static constexpr std::array<std::string_view, 3> kForms{"taxi to holding point", "hold short of taxiway",
                                                            "taxi via taxiway"};
    return join({word(kForms), letter(), runway()});
  }

  std::string clearance() {
    static constexpr std::array<std::string_view, 6> kForms{"cleared for takeoff",  "cleared to land",
                                                            "line up and wait",     "cleared touch and go",
                                                            "cleared ils approach", "report final"};
    return join({runway(), word(kForms)});
  }

  std::string wind() {
    static constexpr std::array<std::string_view, 2> kForms{"cleared for takeoff", "cleared to land"};
    return join({"wind", digits(10 * dice_.between(1, 36), 3), "degrees", digit(dice_.between(2, 9)), "knots",
                 word(kForms)});
  }

  std::string squawk() {
    const auto octal = [this] { return digit(dice_.between(0, 7)); };
    return join({"squawk", octal(), octal(), octal(), octal()});
  }

  std::string report() {
    static constexpr std::array<std::string_view, 8> kForms{
        "go around",        "report downwind",  "vacate next taxiway left", "vacate next taxiway right",
        "request start up", "request pushback", "traffic in sight",         "unable to comply"};
    return word(kForms);
  }

  std::string message() {
    switch (dice_.between(0, 9)) {
      case 0:
        return turn();
      case 1:
        return climb_or_descend();
      case 2:
        return frequency();
      case 3:
        return taxi();
      case 4:
        return clearance();
      case 5:
        return wind();
      case 6:
        return squawk();
      case 7:
        return join({"qnh", digits(dice_.between(980, 1039), 4)});
      case 8:
        return join({"reduce speed to", digits(10 * dice_.between(14, 28), 3), "knots"});
      default:
        return report();
    }
  }

  Dice dice_;
};

}  // namespace whisper
