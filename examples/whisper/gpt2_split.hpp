// SPDX-License-Identifier: MIT
// GPT-2's split pattern, by hand: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// One pass, no regular expression engine. Combining marks, such as Devanagari's vowel signs, are not letters.
#pragma once

#include <looptorch/state/utf8.hpp>

#include "unicode_classes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace whisper {

/// Length in bytes of the piece that the pattern takes from the start of `text`, which must be UTF-8 and not
/// empty.
[[nodiscard]] inline std::size_t gpt2_piece_size(std::string_view text);

namespace detail {

enum class SplitClass { kLetter, kNumber, kSpace, kOther };

template <std::size_t N>
[[nodiscard]] bool in_ranges(const CodePointRange (&ranges)[N], char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), c,
                       [](char32_t value, const CodePointRange& range) { return value < range.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

[[nodiscard]] inline SplitClass find_split_class(char32_t c) {
  if (in_ranges(kLetters, c)) return SplitClass::kLetter;
  if (in_ranges(kNumbers, c)) return SplitClass::kNumber;
  return in_ranges(kSpaces, c) ? SplitClass::kSpace : SplitClass::kOther;
}

[[nodiscard]] inline SplitClass split_class(char32_t c) {
  static const auto kAscii = [] {
    std::array<SplitClass, 128> table;
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = find_split_class(static_cast<char32_t>(i));
    return table;
  }();
  return c < kAscii.size() ? kAscii[c] : find_split_class(c);
}

/// Where the run of characters of the first one's class ends, and where its last character begins.
struct ClassRun {
  SplitClass kind;
  std::size_t last, end;
};

[[nodiscard]] inline ClassRun class_run(std::string_view text, std::size_t begin) {
  const auto first = looptorch::utf8_step(text, begin);
  ClassRun run{split_class(first.code_point), begin, begin + first.size};
  while (run.end < text.size()) {
    const auto step = looptorch::utf8_step(text, run.end);
    if (split_class(step.code_point) != run.kind) break;
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
  const bool is_one_blank = text.front() == ' ' && run.end == 1;
  if (is_one_blank && run.end < text.size()) return detail::class_run(text, 1).end;
  const bool is_whole = run.end == text.size() || run.last == 0;
  return is_whole ? run.end : run.last;  // leaves one space to the word that follows
}

}  // namespace whisper
