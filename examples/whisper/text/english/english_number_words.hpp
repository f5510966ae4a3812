// SPDX-License-Identifier: MIT
// The words of English numbers, with the kind and value of each. The list is built at its first use; a
// look-up is a binary search.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper::detail {

enum class NumberWordKind : std::uint8_t {
  zero,         ///< zero, oh, o
  one,          ///< one to nineteen
  ten,          ///< twenty to ninety
  multiplier,   ///< hundred, thousand, ...
  sign,         ///< before a number: minus, plus, ...
  currency,     ///< after a number: dollars, ...
  percent,      ///< percent
  per,          ///< per, as in "per cent"
  conjunction,  ///< and
  repeat,       ///< double, triple
  point,        ///< point
};

/// A word of numbers. `value` is the exponent of ten for a multiplier, and the number of repetitions for a
/// repeat. `mark` is the text to write; for a word that ends a number, the ending, such as "th" or "s".
struct NumberWord {
  NumberWordKind kind;
  int value = 0;
  std::string_view mark = "";

  [[nodiscard]] bool is_digits() const {
    return mark.empty() &&
           (kind == NumberWordKind::zero || kind == NumberWordKind::one || kind == NumberWordKind::ten);
  }
  [[nodiscard]] bool is_multiplier() const { return mark.empty() && kind == NumberWordKind::multiplier; }
};

class NumberWords {
 public:
  NumberWords() {
    add_ones();
    add_tens();
    add_multipliers();
    add_others();
    std::sort(words_.begin(), words_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  /// Returns the word's entry, or nullptr.
  [[nodiscard]] const NumberWord* find(std::string_view word) const {
    const auto found = std::lower_bound(
        words_.begin(), words_.end(), word,
        [](const auto& entry, std::string_view value) { return std::string_view(entry.first) < value; });
    return found != words_.end() && found->first == word ? &found->second : nullptr;
  }

 private:
  using Kind = NumberWordKind;

  void add(std::string word, NumberWord meaning) { words_.emplace_back(std::move(word), meaning); }

  /// Adds the ones. "nineth" is openai-whisper's spelling: it leaves "ninth" unchanged.
  void add_ones() {
    static constexpr std::string_view kOnes[] = {"one",     "two",       "three",    "four",     "five",
                                                 "six",     "seven",     "eight",    "nine",     "ten",
                                                 "eleven",  "twelve",    "thirteen", "fourteen", "fifteen",
                                                 "sixteen", "seventeen", "eighteen", "nineteen"};
    static constexpr std::string_view kOrdinals[] = {
        "first",     "second",    "third",       "fourth",     "fifth",     "sixth",      "seventh",
        "eighth",    "nineth",    "tenth",       "eleventh",   "twelfth",   "thirteenth", "fourteenth",
        "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"};
    static constexpr std::string_view kEndings[] = {"st", "nd", "rd"};
    for (int n = 1; n < 20; ++n) {
      const std::string name(kOnes[n - 1]);
      add(name, {Kind::one, n});
      add(name + (n == 6 ? "es" : "s"), {Kind::one, n, "s"});
      add(std::string(kOrdinals[n - 1]), {Kind::one, n, n < 4 ? kEndings[n - 1] : "th"});
    }
    add("zeroth", {Kind::one, 0, "th"});
  }

  void add_tens() {
    static constexpr std::string_view kTens[] = {"twent", "thirt",  "fort",  "fift",
                                                 "sixt",  "sevent", "eight", "ninet"};
    for (int n = 2; n < 10; ++n) {
      const std::string stem(kTens[n - 2]);
      add(stem + "y", {Kind::ten, 10 * n});
      add(stem + "ies", {Kind::ten, 10 * n, "s"});
      add(stem + "ieth", {Kind::ten, 10 * n, "th"});
    }
  }

  void add_multipliers() {
    static constexpr std::pair<std::string_view, int> kMultipliers[] = {
        {"hundred", 2},     {"thousand", 3},     {"million", 6},      {"billion", 9},
        {"trillion", 12},   {"quadrillion", 15}, {"quintillion", 18}, {"sextillion", 21},
        {"septillion", 24}, {"octillion", 27},   {"nonillion", 30},   {"decillion", 33}};
    for (const auto& [name, exponent] : kMultipliers) {
      add(std::string(name), {Kind::multiplier, exponent});
      add(std::string(name) + "s", {Kind::multiplier, exponent, "s"});
      add(std::string(name) + "th", {Kind::multiplier, exponent, "th"});
    }
  }

  void add_others() {
    for (const char* zero : {"o", "oh", "zero"}) add(zero, {Kind::zero});
    for (const char* minus : {"minus", "negative"}) add(minus, {Kind::sign, 0, "-"});
    for (const char* plus : {"plus", "positive"}) add(plus, {Kind::sign, 0, "+"});
    static constexpr std::pair<const char*, const char*> kCurrencies[] = {
        {"pound", "\u00A3"}, {"euro", "\u20AC"}, {"dollar", "$"}, {"cent", "\u00A2"}};
    for (const auto& [name, mark] : kCurrencies) {
      add(name, {Kind::currency, 0, mark});
      add(std::string(name) + "s", {Kind::currency, 0, mark});
    }
    add("percent", {Kind::percent, 0, "%"});
    add("per", {Kind::per, 0, "%"});
    add("and", {Kind::conjunction});
    add("double", {Kind::repeat, 2});
    add("triple", {Kind::repeat, 3});
    add("point", {Kind::point});
  }

  std::vector<std::pair<std::string, NumberWord>> words_;
};

[[nodiscard]] inline const NumberWord* find_number_word(std::string_view word) {
  static const NumberWords words;
  return words.find(word);
}

}  // namespace whisper::detail
