// SPDX-License-Identifier: MIT
// Word error rate: the fewest word substitutions, deletions and insertions that turn what was recognised into
// what was said, over the words said. Counts add up over sentences, equal to Python's jiwer. O(n m) time,
// O(m) memory a sentence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch {

/// What it takes to turn a hypothesis into its reference. All numbers are words.
struct WordErrors {
  std::int64_t hits = 0;
  std::int64_t substitutions = 0;
  std::int64_t deletions = 0;   ///< Said, not recognised.
  std::int64_t insertions = 0;  ///< Recognised, not said.

  [[nodiscard]] std::int64_t errors() const { return substitutions + deletions + insertions; }
  [[nodiscard]] std::int64_t reference_words() const { return hits + substitutions + deletions; }

  /// Errors over reference words: 1 is 100 %, more is possible. Without reference words, the insertions, as
  /// in jiwer.
  [[nodiscard]] double rate() const {
    return static_cast<double>(errors()) / static_cast<double>(std::max<std::int64_t>(reference_words(), 1));
  }

  WordErrors& operator+=(const WordErrors& other) {
    hits += other.hits;
    substitutions += other.substitutions;
    deletions += other.deletions;
    insertions += other.insertions;
    return *this;
  }
  friend WordErrors operator+(WordErrors a, const WordErrors& b) { return a += b; }
  friend bool operator==(const WordErrors&, const WordErrors&) = default;
};

/// Of several alignments with equally few errors, counts the one that jiwer 4 takes. Words are what ASCII
/// white space separates, compared byte by byte: normalise both texts first, see normalize.hpp.
[[nodiscard]] WordErrors count_word_errors(std::string_view reference, std::string_view hypothesis);

/// Word error rate over sentences: total errors over total reference words.
class WordErrorRate {
 public:
  void add(std::string_view reference, std::string_view hypothesis) {
    total_ += count_word_errors(reference, hypothesis);
    ++sentences_;
  }

  [[nodiscard]] double rate() const { return total_.rate(); }
  [[nodiscard]] const WordErrors& errors() const { return total_; }
  [[nodiscard]] std::int64_t sentences() const { return sentences_; }

 private:
  WordErrors total_;
  std::int64_t sentences_ = 0;
};

namespace detail {

/// Words as numbers: equal words get equal ones.
class WordNumbers {
 public:
  [[nodiscard]] std::vector<int> number(std::string_view text) {
    static constexpr std::string_view kSpace = " \t\n\v\f\r";
    std::vector<int> words;
    for (auto at = text.find_first_not_of(kSpace); at != text.npos; at = text.find_first_not_of(kSpace, at)) {
      const auto end = std::min(text.find_first_of(kSpace, at), text.size());
      words.push_back(
          numbers_.try_emplace(text.substr(at, end - at), static_cast<int>(numbers_.size())).first->second);
      at = end;
    }
    return words;
  }

 private:
  std::unordered_map<std::string_view, int> numbers_;
};

/// Removes what both end with; returns how many words that are.
inline std::size_t strip_common_end(std::vector<int>& a, std::vector<int>& b) {
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first;
  const auto count = static_cast<std::size_t>(end - a.rbegin());
  a.resize(a.size() - count);
  b.resize(b.size() - count);
  return count;
}

/// One cell of the Levenshtein table from its neighbours. A deletion goes before an insertion, and that
/// before the diagonal, where the distances allow it.
[[nodiscard]] inline WordErrors next_cell(const WordErrors& left, const WordErrors& above,
                                          const WordErrors& diagonal, bool is_equal) {
  const auto best = std::min({left.errors() + 1, above.errors() + 1, diagonal.errors() + (is_equal ? 0 : 1)});
  if (left.errors() + 1 == best) return left + WordErrors{.deletions = 1};
  if (above.errors() + 1 == diagonal.errors()) return above + WordErrors{.insertions = 1};
  return diagonal + (is_equal ? WordErrors{.hits = 1} : WordErrors{.substitutions = 1});
}

/// Levenshtein's table, hypothesis downwards and reference to the right, of which one row is kept.
[[nodiscard]] inline WordErrors align_words(const std::vector<int>& reference,
                                            const std::vector<int>& hypothesis) {
  std::vector<WordErrors> row(reference.size() + 1);
  for (std::size_t col = 0; col < row.size(); ++col) row[col].deletions = static_cast<std::int64_t>(col);
  for (const int word : hypothesis) {
    auto diagonal = std::exchange(row[0], row[0] + WordErrors{.insertions = 1});
    for (std::size_t col = 1; col < row.size(); ++col) {
      const auto cell = next_cell(row[col - 1], row[col], diagonal, reference[col - 1] == word);
      diagonal = std::exchange(row[col], cell);
    }
  }
  return row.back();
}

}  // namespace detail

inline WordErrors count_word_errors(std::string_view reference, std::string_view hypothesis) {
  detail::WordNumbers numbers;
  auto said = numbers.number(reference), recognised = numbers.number(hypothesis);
  // Like jiwer: what both begin with is set apart before what both end with.
  std::reverse(said.begin(), said.end()), std::reverse(recognised.begin(), recognised.end());
  auto common = detail::strip_common_end(said, recognised);
  std::reverse(said.begin(), said.end()), std::reverse(recognised.begin(), recognised.end());
  common += detail::strip_common_end(said, recognised);
  return detail::align_words(said, recognised) + WordErrors{.hits = static_cast<std::int64_t>(common)};
}

}  // namespace looptorch
