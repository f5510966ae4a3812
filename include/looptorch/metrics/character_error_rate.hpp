// SPDX-License-Identifier: MIT
// Computes the character error rate: as the word error rate, but over characters, including the spaces
// between words. A character is a code point, as in jiwer, or a grapheme cluster. With clusters, a wrong
// vowel sign in Devanagari is one wrong letter, and a conjunct counts once, as for a reader.
#pragma once

#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>
#include <looptorch/metrics/unicode/white_space.hpp>

#include <cstdint>
#include <string_view>

namespace looptorch {

/// The unit that counts as one character.
enum class CharacterUnit { code_point, grapheme_cluster };

/// Counts the errors. White space at the ends is ignored, as in jiwer. Of several alignments with equally few
/// errors, counts the one that jiwer 4 takes (in texts of more than about 2000 characters jiwer may take
/// another one). Each maximal ill-formed part of a text that is not UTF-8 counts as one character, and
/// differs from other such parts.
[[nodiscard]] EditCounts count_character_errors(std::string_view reference, std::string_view hypothesis,
                                                CharacterUnit unit = CharacterUnit::code_point);

/// Returns the characters of both texts side by side: the alignment that `count_character_errors` counts.
[[nodiscard]] Alignment align_characters(std::string_view reference, std::string_view hypothesis,
                                         CharacterUnit unit = CharacterUnit::code_point);

/// The character error rate over sentences: total errors over total reference characters.
class CharacterErrorRate {
 public:
  explicit CharacterErrorRate(CharacterUnit unit = CharacterUnit::code_point) : unit_(unit) {}

  void add(std::string_view reference, std::string_view hypothesis) {
    total_ += count_character_errors(reference, hypothesis, unit_);
    ++sentences_;
  }

  [[nodiscard]] double rate() const { return total_.rate(); }
  [[nodiscard]] const EditCounts& errors() const { return total_; }
  [[nodiscard]] std::int64_t sentences() const { return sentences_; }

 private:
  CharacterUnit unit_;
  EditCounts total_;
  std::int64_t sentences_ = 0;
};

namespace detail {

[[nodiscard]] inline Tokens characters_of(std::string_view text, CharacterUnit unit) {
  const auto stripped = strip_white_space(text);
  return unit == CharacterUnit::code_point ? code_points(stripped) : grapheme_clusters(stripped);
}

}  // namespace detail

inline EditCounts count_character_errors(std::string_view reference, std::string_view hypothesis,
                                         CharacterUnit unit) {
  return detail::count_edits(detail::characters_of(reference, unit), detail::characters_of(hypothesis, unit));
}

inline Alignment align_characters(std::string_view reference, std::string_view hypothesis,
                                  CharacterUnit unit) {
  return {.edits = detail::align_tokens(detail::characters_of(reference, unit),
                                        detail::characters_of(hypothesis, unit))};
}

}  // namespace looptorch
