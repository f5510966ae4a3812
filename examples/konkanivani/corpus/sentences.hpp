// SPDX-License-Identifier: MIT
// Generates Konkani sentences: fills the slots of more than 400 patterns, such as "हांव {place_to} वतां",
// with words. Patterns and words were written for this project. The same seed gives the same sentences on
// every platform.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/random.hpp>
#include <looptorch/base/text/trimmed.hpp>

#include "patterns_market.hpp"
#include "patterns_meeting.hpp"
#include "patterns_time.hpp"
#include "patterns_travel.hpp"
#include "words.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace konkanivani {

/// Thrown for a malformed grammar, and for sentences of a length that the grammar does not have.
struct GrammarError : looptorch::Error {
  using Error::Error;
};

using looptorch::Dice;

/// Patterns, and the forms for their slots.
class Grammar {
 public:
  /// Takes `words`, a slot a line ("name: form | form"), and `patterns`, one a line. Throws GrammarError for
  /// a line without a colon, for a slot that has no forms, is given twice, is used but not given, or contains
  /// itself, and if there are no patterns.
  Grammar(std::string_view words, const std::vector<std::string_view>& patterns);

  /// Returns the project's own grammar.
  [[nodiscard]] static Grammar konkani() {
    return {kWords, {kMeetingPatterns, kMarketPatterns, kTimePatterns, kTravelPatterns}};
  }

  [[nodiscard]] const std::vector<std::string>& patterns() const { return patterns_; }
  [[nodiscard]] const std::map<std::string, std::vector<std::string>, std::less<>>& slots() const {
    return slots_;
  }

  /// Returns a pattern with each slot filled.
  [[nodiscard]] std::string sentence(Dice& dice) const { return fill(dice.pick(patterns_), dice); }

 private:
  [[nodiscard]] std::string fill(std::string_view pattern, Dice& dice) const;
  void check(std::string_view pattern, std::vector<std::string_view> within) const;

  std::map<std::string, std::vector<std::string>, std::less<>> slots_;
  std::vector<std::string> patterns_;
};

[[nodiscard]] inline std::int64_t count_words(std::string_view text) {
  return text.empty() ? 0 : 1 + std::count(text.begin(), text.end(), ' ');
}

/// An endless stream of sentences with `min_words` to `max_words` words.
class Sentences {
 public:
  Sentences(const Grammar& grammar, std::uint64_t seed, std::int64_t min_words, std::int64_t max_words)
      : grammar_(&grammar), dice_(seed), min_words_(min_words), max_words_(max_words) {}

  /// Returns the next sentence. Throws GrammarError if 10,000 sentences in a row are shorter or longer.
  [[nodiscard]] std::string next() {
    for (int i = 0; i < 10'000; ++i) {
      auto text = grammar_->sentence(dice_);
      if (const auto words = count_words(text); words >= min_words_ && words <= max_words_) return text;
    }
    throw GrammarError(looptorch::message("the grammar has no sentences of ", min_words_, " to ", max_words_,
                                          " words, or hardly any"));
  }

 private:
  const Grammar* grammar_;
  Dice dice_;
  std::int64_t min_words_, max_words_;
};

// ---- Implementation ----

namespace detail {

/// Returns the parts between separators, trimmed, without empty ones.
[[nodiscard]] inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    if (const auto part = looptorch::trimmed(text.substr(0, end)); !part.empty()) parts.push_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Calls `literal(text)` and `slot(name)` in the pattern's order.
template <class Literal, class Slot>
void for_each_part(std::string_view pattern, Literal&& literal, Slot&& slot) {
  while (!pattern.empty()) {
    const auto open = std::min(pattern.find('{'), pattern.size());
    literal(pattern.substr(0, open));
    if (open == pattern.size()) return;
    const auto close = pattern.find('}', open);
    if (close == std::string_view::npos)
      throw GrammarError(looptorch::message("\"", pattern, "\": a slot is not closed"));
    slot(pattern.substr(open + 1, close - open - 1));
    pattern.remove_prefix(close + 1);
  }
}

}  // namespace detail

inline Grammar::Grammar(std::string_view words, const std::vector<std::string_view>& patterns) {
  for (const auto line : detail::split(words, '\n')) {
    const auto colon = line.find(':');
    const auto name = std::string(line.substr(0, colon));
    const auto forms = detail::split(colon == std::string_view::npos ? "" : line.substr(colon + 1), '|');
    if (forms.empty())
      throw GrammarError(looptorch::message("\"", line, "\": expected \"slot: form | form\""));
    if (!slots_.try_emplace(name, forms.begin(), forms.end()).second)
      throw GrammarError(looptorch::message("the slot {", name, "} is given twice"));
  }
  for (const auto part : patterns) {
    for (const auto line : detail::split(part, '\n')) patterns_.emplace_back(line);
  }
  if (patterns_.empty()) throw GrammarError("the grammar has no pattern");
  for (const auto& [name, forms] : slots_) {
    for (const auto& form : forms) check(form, {name});
  }
  for (const auto& pattern : patterns_) check(pattern, {});
}

inline void Grammar::check(std::string_view pattern, std::vector<std::string_view> within) const {
  const auto check_slot = [&](std::string_view name) {
    const auto found = slots_.find(name);
    if (found == slots_.end())
      throw GrammarError(looptorch::message("\"", pattern, "\": there is no slot {", name, "}"));
    if (std::find(within.begin(), within.end(), name) != within.end())
      throw GrammarError(looptorch::message("the slot {", name, "} holds itself"));
    auto deeper = within;
    deeper.push_back(name);
    for (const auto& form : found->second) check(form, deeper);
  };
  detail::for_each_part(
      pattern, [](std::string_view) {}, check_slot);
}

inline std::string Grammar::fill(std::string_view pattern, Dice& dice) const {
  std::string text;
  detail::for_each_part(
      pattern, [&](std::string_view literal) { text += literal; },
      [&](std::string_view name) { text += fill(dice.pick(slots_.find(name)->second), dice); });
  return text;
}

}  // namespace konkanivani
