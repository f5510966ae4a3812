// SPDX-License-Identifier: MIT
// Turns British spellings into American ones. The first use builds the list, in about 1 ms and 150 KB; a
// look-up is a binary search.
#pragma once

#include <looptorch/metrics/unicode/white_space.hpp>

#include "english_spellings.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper::detail {

/// Calls `use` with each part of a list separated by spaces; parts may be empty.
template <class Use>
void for_each_part(std::string_view list, Use use) {
  for (std::size_t at = 0; at <= list.size();) {
    const auto end = std::min(list.find(' ', at), list.size());
    use(list.substr(at, end - at));
    at = end + 1;
  }
}

class AmericanSpellings {
 public:
  AmericanSpellings() {
    for (const auto& rule : kSpellingRules) {
      for_each_part(rule.stems, [&](std::string_view stem) {
        for_each_part(rule.endings, [&](std::string_view ending) { add(stem, rule, ending); });
      });
    }
    std::sort(pairs_.begin(), pairs_.end());
  }

  /// Returns the American spelling of a British word, and any other word unchanged.
  [[nodiscard]] std::string_view of(std::string_view word) const {
    const auto found = std::lower_bound(
        pairs_.begin(), pairs_.end(), word,
        [](const auto& pair, std::string_view value) { return std::string_view(pair.first) < value; });
    return found != pairs_.end() && found->first == word ? std::string_view(found->second) : word;
  }

  [[nodiscard]] std::size_t size() const { return pairs_.size(); }

 private:
  void add(std::string_view stem, const SpellingRule& rule, std::string_view ending) {
    std::string british(stem), american(stem);
    british.append(rule.old_part).append(ending);
    american.append(rule.new_part).append(ending);
    pairs_.emplace_back(std::move(british), std::move(american));
  }

  std::vector<std::pair<std::string, std::string>> pairs_;
};

[[nodiscard]] inline const AmericanSpellings& american_spellings() {
  static const AmericanSpellings spellings;
  return spellings;
}

/// Returns the words in American spelling, with single spaces between them.
[[nodiscard]] inline std::string spell_american(std::string_view text) {
  std::string out;
  for (const auto word : looptorch::split_white_space(text)) {
    if (!out.empty()) out += ' ';
    out += american_spellings().of(word);
  }
  return out;
}

}  // namespace whisper::detail
