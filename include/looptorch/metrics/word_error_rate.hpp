// SPDX-License-Identifier: MIT
// Computes the word error rate: the fewest word substitutions, deletions and insertions that turn the
// reference into the hypothesis, divided by the reference's number of words. For several sentences, adds up
// errors and words. The rate equals that of Python's jiwer.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/unicode/white_space.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace looptorch {

/// Counts the errors. Of several alignments with equally few errors, counts the one that jiwer 4 takes (in
/// sentences of more than about 2000 words jiwer may take another one). Words are compared byte by byte:
/// normalise both texts first, see normalize.hpp. They are separated as in jiwer: by a space, or by two or
/// more characters of Unicode's white space. A lone tab, line end or no-break space belongs to its word.
[[nodiscard]] EditCounts count_word_errors(std::string_view reference, std::string_view hypothesis);

/// Returns the words of both texts side by side: the alignment that `count_word_errors` counts.
[[nodiscard]] Alignment align_words(std::string_view reference, std::string_view hypothesis);

/// The word error rate over sentences: total errors over total reference words.
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

/// True if white space separates words, rather than being a character of one.
[[nodiscard]] constexpr bool separates_words(std::string_view white_space) {
  return white_space == " " || utf8_step(white_space, 0).size < white_space.size();
}

[[nodiscard]] inline Tokens words_of(std::string_view text) {
  text = strip_white_space(text);
  Tokens words;
  std::size_t word = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = find_white_space(text, at);
    at = skip_white_space(text, end);
    if (end < text.size() && !separates_words(text.substr(end, at - end))) continue;
    words.push_back(text.substr(word, end - word));
    word = at;
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
