// SPDX-License-Identifier: MIT
// Splits a text by GPT-2's pattern into the pieces that the tokenizer encodes one by one. Takes one pass,
// without a regular expression engine. Combining marks, such as Devanagari's vowel signs, are not letters.
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include "unicode_classes.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <vector>

namespace whisper {

/// Returns the length in bytes of the piece that the pattern matches at the start of `text`, which must be
/// UTF-8 and not empty.
[[nodiscard]] inline std::size_t gpt2_piece_size(std::string_view text);

namespace detail {

enum class SplitClass : unsigned char { kOther, kLetter, kNumber, kSpace };

/// Returns the class of every code point up to the last that is not kOther: 200 KB, of which a text touches
/// only the pages of its scripts.
[[nodiscard]] inline const std::vector<SplitClass>& split_classes() {
  static const auto kClasses = [] {
    const auto end =
        std::max({std::end(kLetters)[-1].last, std::end(kNumbers)[-1].last, std::end(kSpaces)[-1].last}) + 1;
    std::vector<SplitClass> classes(end);
    const auto set = [&](const auto& ranges, SplitClass kind) {
      for (const auto& range : ranges) {
        std::fill(classes.begin() + range.first, classes.begin() + range.last + 1, kind);
      }
    };
    set(kLetters, SplitClass::kLetter), set(kNumbers, SplitClass::kNumber), set(kSpaces, SplitClass::kSpace);
    return classes;
  }();
  return kClasses;
}

/// The end of a run of characters of one class, and the beginning of the run's last character.
struct ClassRun {
  SplitClass kind;
  std::size_t last, end;
};

[[nodiscard]] inline ClassRun class_run(std::string_view text, std::size_t begin) {
  const auto& classes = split_classes();
  const auto class_of = [&](char32_t c) { return c < classes.size() ? classes[c] : SplitClass::kOther; };
  const auto first = looptorch::utf8_step(text, begin);
  ClassRun run{class_of(first.code_point), begin, begin + first.size};
  while (run.end < text.size()) {
    const auto step = looptorch::utf8_step(text, run.end);
    if (class_of(step.code_point) != run.kind) break;
    run.last = run.end;
    run.end += step.size;
  }
  return run;
}

[[nodiscard]] inline std::size_t contraction_size(std::string_view text) {
  if (text.front() != '\'') return 0;
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

}  // namespace detail

inline std::size_t gpt2_piece_size(std::string_view text) {
  if (const auto size = detail::contraction_size(text)) return size;
  const auto run = detail::class_run(text, 0);
  if (run.kind != detail::SplitClass::kSpace) return run.end;
  const bool is_one_space = text.front() == ' ' && run.end == 1;
  if (is_one_space && run.end < text.size()) return detail::class_run(text, 1).end;
  const bool is_whole = run.end == text.size() || run.last == 0;
  return is_whole ? run.end : run.last;  // leaves one space for the next word
}

}  // namespace whisper
