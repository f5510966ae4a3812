// SPDX-License-Identifier: MIT
// Normalises text for error rates, in any script: lower case, no punctuation or symbols, single spaces. Keeps
// apostrophes inside words. Keeps combining marks, such as Devanagari's vowel signs and viramas, which
// Whisper's basic normaliser removes. Does not compose or decompose characters: texts that may mix normal
// forms go through `composed_form` first. Takes linear time, with two table look-ups for each character
// beyond ASCII.
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/tables/unicode_ranges.hpp>
#include <looptorch/metrics/unicode/grapheme_clusters.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace looptorch {

/// Returns lower-cased words without punctuation, separated by single spaces, without any at the ends.
/// Punctuation and symbols separate words ("left-right" becomes two), and marks on them are removed with
/// them. An apostrophe between letters is kept, as "'". Invisible formatting (soft hyphens, directions,
/// variation selectors) is removed. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string normalize_text(std::string_view text);

/// Returns the lower case of a character, by Unicode's simple case mapping.
[[nodiscard]] char32_t to_lower(char32_t c);

/// True if the normaliser treats a character as white space, punctuation or a symbol, and not as part of a
/// word.
[[nodiscard]] bool is_separator(char32_t c);

namespace detail {

/// True for characters that are removed: soft hyphen, directions, word joiner and invisible operators, byte
/// order mark, variation selectors, tags.
[[nodiscard]] constexpr bool is_ignorable(char32_t c) {
  constexpr CodePointRange kIgnorable[] = {{0xAD, 0xAD},     {0x61C, 0x61C},   {0x180B, 0x180F},
                                           {0x200E, 0x200F}, {0x202A, 0x202E}, {0x2060, 0x206F},
                                           {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}, {0xE0000, 0xE0FFF}};
  for (const auto& [first, last] : kIgnorable) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

/// True for the joiners, which belong to the spelling inside a word and to emoji elsewhere.
[[nodiscard]] constexpr bool is_joiner(char32_t c) { return c == 0x200C || c == 0x200D; }

[[nodiscard]] constexpr bool is_apostrophe(char32_t c) { return c == U'\'' || c == U'\u2019'; }

/// The state of the normaliser: the words so far, and the characters after the last of them.
class TextNormalizer {
 public:
  void add(char32_t c) {
    if (is_ignorable(c)) return;
    if (is_separator(c)) return separate(c);
    if (is_joiner(c) && !is_inside_word()) return;
    if (base_is_gone_ && is_mark(c)) return;
    if (!out_.empty() && between_ != '\0') out_ += between_;
    between_ = '\0', base_is_gone_ = false;
    append_utf8(out_, to_lower(c));
  }

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  [[nodiscard]] bool is_inside_word() const { return !out_.empty() && between_ == '\0'; }

  void separate(char32_t c) {
    between_ = is_inside_word() && is_apostrophe(c) ? '\'' : ' ';
    base_is_gone_ = !is_blank(c);
  }

  [[nodiscard]] static bool is_blank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  std::string out_;
  char between_ = '\0';        ///< separator between the last word character and the next, if any
  bool base_is_gone_ = false;  ///< the base of a following mark was removed
};

}  // namespace detail

inline char32_t to_lower(char32_t c) {
  if (c < 0x80) return c >= U'A' && c <= U'Z' ? c + 0x20 : c;
  const auto* range = find_range(detail::kCapitals, c);
  const bool is_capital = range != nullptr && (c - range->first) % range->stride == 0;
  return is_capital ? static_cast<char32_t>(static_cast<std::int32_t>(c) + range->distance) : c;
}

inline bool is_separator(char32_t c) { return find_range(detail::kSeparators, c) != nullptr; }

inline std::string normalize_text(std::string_view text) {
  detail::TextNormalizer normalizer;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    at += step.size;
    normalizer.add(step.code_point);
  }
  return normalizer.take();
}

}  // namespace looptorch
