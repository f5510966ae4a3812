// SPDX-License-Identifier: MIT
// Word error rate: the fewest word substitutions, deletions and insertions that turn what was recognised into
// what was said, over the words said. Counts add up over sentences, equal to Python's jiwer. O(n m) time,
// O(m) memory a sentence.
#pragma once

#include <looptorch/metrics/edit_alignment.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace looptorch {

/// Of several alignments with equally few errors, counts the one that jiwer 4 takes (in sentences of more
/// than some 2000 words jiwer may take another one). Words are what ASCII white space separates, compared
/// byte by byte: normalise both texts first, see normalize.hpp.
[[nodiscard]] EditCounts count_word_errors(std::string_view reference, std::string_view hypothesis);

/// The words of both texts side by side: the alignment that `count_word_errors` counts.
[[nodiscard]] Alignment align_words(std::string_view reference, std::string_view hypothesis);

/// Word error rate over sentences: total errors over total reference words.
class WordErrorRate {
 public:
  void add(std::string_view reference, std::string_view hypothesis) {
    total_ += count_word_errors(reference, hypothesis);
    ++sentences_;
  }

  [[nodiscard]] double rate() const { return total_.rate(); }
  [[nodiscard]] const EditCounts& errors() const { return total_; }
  [[nodiscard]] std::int64_t sentences() const { return sentences_; }

 private:
  EditCounts total_;
  std::int64_t sentences_ = 0;
};

namespace detail {

[[nodiscard]] inline Tokens words_of(std::string_view text) {
  static constexpr std::string_view kSpace = " \t\n\v\f\r";
  Tokens words;
  for (auto at = text.find_first_not_of(kSpace); at != text.npos; at = text.find_first_not_of(kSpace, at)) {
    const auto end = std::min(text.find_first_of(kSpace, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace detail

inline EditCounts count_word_errors(std::string_view reference, std::string_view hypothesis) {
  return detail::count_edits(detail::words_of(reference), detail::words_of(hypothesis));
}

inline Alignment align_words(std::string_view reference, std::string_view hypothesis) {
  return {.edits = detail::align_tokens(detail::words_of(reference), detail::words_of(hypothesis)),
          .separator = " "};
}

}  // namespace looptorch
