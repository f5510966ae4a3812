// SPDX-License-Identifier: MIT
// Character error rate: as the word error rate, over characters, blanks between words included. A character
// is a code point, as in jiwer, or a grapheme cluster: what a reader of Devanagari calls a letter, so that a
// wrong vowel sign is one wrong letter and a conjunct counts once. O(n m) time, O(m) memory a sentence.
#pragma once

#include <looptorch/metrics/edit_alignment.hpp>
#include <looptorch/metrics/grapheme_clusters.hpp>
#include <looptorch/state/utf8.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace looptorch {

/// What counts as one character.
enum class CharacterUnit { code_point, grapheme_cluster };

/// White space at the ends is passed over, as in jiwer. Of several alignments with equally few errors, counts
/// the one that jiwer 4 takes (in texts of more than some 2000 characters jiwer may take another one). What
/// is not UTF-8 counts as one character for each maximal ill-formed part, and differs from other such parts.
[[nodiscard]] EditCounts count_character_errors(std::string_view reference, std::string_view hypothesis,
                                                CharacterUnit unit = CharacterUnit::code_point);

/// The characters of both texts side by side: the alignment that `count_character_errors` counts.
[[nodiscard]] Alignment align_characters(std::string_view reference, std::string_view hypothesis,
                                         CharacterUnit unit = CharacterUnit::code_point);

/// Character error rate over sentences: total errors over total reference characters.
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

/// White space as Python's str.strip has it.
[[nodiscard]] constexpr bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

[[nodiscard]] inline std::string_view strip_white_space(std::string_view text) {
  std::size_t first = text.size(), last = text.size();
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    const bool is_blank = is_white_space(step.code_point);
    if (!is_blank && first == text.size()) first = at;
    at += step.size;
    if (!is_blank) last = at;
  }
  return text.substr(first, last - first);
}

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
