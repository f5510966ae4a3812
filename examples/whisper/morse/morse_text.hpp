// SPDX-License-Identifier: MIT
// Generates the texts that radio operators send in Morse code: call signs, contacts with reports and names,
// common words, figures and code groups. The same seed gives the same texts on every platform.
#pragma once

#include <looptorch/base/random.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace morse {

/// An endless stream of words in lower case, or of single characters for beginners.
class MorseText {
 public:
  explicit MorseText(std::uint64_t seed) : random_(seed) {}

  /// Returns the next phrase: one to nine words with a space between them.
  [[nodiscard]] std::string phrase() {
    switch (random_.below(6)) {
      case 0:
        return calling();
      case 1:
        return report();
      case 2:
        return groups();
      case 3:
        return call_sign();
      default:
        return words();
    }
  }

  /// Returns 1 to `most` characters, of those that phrases have, some with a space before them.
  [[nodiscard]] std::string characters(std::uint64_t most) {
    static constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyz0123456789/=.?";
    std::string text;
    for (std::uint64_t count = 1 + random_.below(most); count > 0; --count) {
      if (!text.empty() && random_.below(5) == 0) text += ' ';
      text += kCharacters[random_.below(kCharacters.size())];
    }
    return text;
  }

 private:
  using Texts = std::span<const std::string_view>;

  std::string pick(Texts from) { return std::string(from[random_.below(from.size())]); }
  char letter() { return static_cast<char>('a' + random_.below(26)); }
  char digit() { return static_cast<char>('0' + random_.below(10)); }

  std::string call_sign() {
    static constexpr std::array<std::string_view, 24> kPrefixes{
        "w",  "k",  "n",  "aa", "ve", "g",  "m",  "dl", "dk", "f",  "i",  "ea",
        "oh", "sm", "ok", "sp", "ja", "vk", "zl", "vu", "ur", "pa", "ly", "lu"};
    std::string sign = pick(kPrefixes) + digit();
    for (std::uint64_t letters = 1 + random_.below(3); letters > 0; --letters) sign += letter();
    if (random_.below(12) == 0) sign += "/p";
    return sign;
  }

  std::string calling() {
    const std::string sign = call_sign();
    switch (random_.below(3)) {
      case 0:
        return "cq cq de " + sign + " " + sign + " k";
      case 1:
        return "cq test " + sign;
      default: {
        const std::string other = call_sign();
        return other + " de " + sign;
      }
    }
  }

  std::string report() {
    static constexpr std::array<std::string_view, 14> kNames{"bob",  "tom",  "anna", "jim", "karl",
                                                             "sue",  "ivan", "luis", "ken", "mary",
                                                             "olaf", "raj",  "eva",  "pete"};
    static constexpr std::array<std::string_view, 12> kPlaces{"paris",  "berlin", "goa",   "tokyo",
                                                              "boston", "oslo",   "rome",  "denver",
                                                              "perth",  "madrid", "delhi", "kyiv"};
    std::string text;
    switch (random_.below(4)) {
      case 0:
        text = std::string("ur rst 5") + digit() + "9 5nn";
        break;
      case 1:
        text = "name is " + pick(kNames);
        break;
      case 2:
        text = "qth " + pick(kPlaces);
        break;
      default:
        text = std::string("rig 100w ant dipole wx ") + (random_.below(2) == 0 ? "sunny" : "rain") +
               " temp " + digit() + "c";
    }
    return text + (random_.below(3) == 0 ? " = tnx" : "");
  }

  std::string groups() {
    std::string text;
    for (std::uint64_t group = 1 + random_.below(3); group > 0; --group) {
      text += text.empty() ? "" : " ";
      const bool figures = random_.below(3) == 0;
      for (int i = 0; i < 5; ++i) text += figures ? digit() : letter();
    }
    return text;
  }

  std::string words() {
    static constexpr std::array<std::string_view, 96> kWords{
        "the",   "of",    "and",   "to",    "in",    "is",    "you",   "that", "it",    "he",     "was",
        "for",   "on",    "are",   "with",  "his",   "they",  "at",    "be",   "this",  "have",   "from",
        "or",    "one",   "had",   "by",    "word",  "but",   "not",   "what", "all",   "were",   "we",
        "when",  "your",  "can",   "said",  "there", "use",   "an",    "each", "which", "she",    "do",
        "how",   "their", "if",    "will",  "up",    "other", "about", "out",  "many",  "then",   "them",
        "these", "so",    "some",  "her",   "would", "make",  "like",  "him",  "into",  "time",   "has",
        "look",  "two",   "more",  "write", "go",    "see",   "no",    "way",  "could", "people", "my",
        "than",  "first", "water", "been",  "call",  "who",   "oil",   "now",  "find",  "long",   "down",
        "day",   "did",   "get",   "come",  "made",  "may",   "part",  "over"};
    std::string text;
    for (std::uint64_t count = 1 + random_.below(5); count > 0; --count)
      text += (text.empty() ? "" : " ") + pick(kWords);
    if (random_.below(5) == 0) text += random_.below(2) == 0 ? "." : "?";
    return text;
  }

  looptorch::SplitMix64 random_;
};

}  // namespace morse
