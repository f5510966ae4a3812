// SPDX-License-Identifier: MIT
// Splits text into extended grapheme clusters, which readers perceive as characters, by Unicode 17 (UAX #29).
// Takes one table look-up per character. Implements all rules:
//
//   GB3 to GB5    line ends and controls
//   GB6 to GB8    Hangul syllables
//   GB9 to GB9b   marks, joiners, prepended signs
//   GB9c          conjuncts: consonant, virama, consonant stay together in Devanagari and its relatives
//   GB11          emoji joined by ZWJ
//   GB12, GB13    flags
#pragma once

#include <looptorch/base/text/utf8.hpp>
#include <looptorch/metrics/tables/unicode_ranges.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace looptorch {

/// Returns the extended grapheme clusters of the text, as views of it. Each maximal part that is not UTF-8
/// counts as U+FFFD.
[[nodiscard]] std::vector<std::string_view> grapheme_clusters(std::string_view text);

/// Returns the code points of the text, as views of it. Each maximal part that is not UTF-8 is one.
[[nodiscard]] std::vector<std::string_view> code_points(std::string_view text);

/// Returns the range of a sorted table that holds `c`, or nullptr.
template <class Range, std::size_t N>
[[nodiscard]] const Range* find_range(const Range (&table)[N], char32_t c) {
  const auto* after =
      std::upper_bound(std::begin(table), std::end(table), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  const bool is_in = after != std::begin(table) && c <= std::prev(after)->last;
  return is_in ? std::prev(after) : nullptr;
}

namespace detail {

/// Grapheme_Cluster_Break, numbered as in kGraphemeClasses; the last two are computed.
enum class GraphemeBreak : std::uint8_t {
  other,
  cr,
  lf,
  control,
  extend,
  zwj,
  regional,
  prepend,
  spacing_mark,
  l,
  v,
  t,
  lv,
  lvt
};

/// Indic_Conjunct_Break.
enum class ConjunctBreak : std::uint8_t { none, consonant, linker, extend };

struct GraphemeClass {
  GraphemeBreak cluster = GraphemeBreak::other;
  ConjunctBreak conjunct = ConjunctBreak::none;
  bool is_pictographic = false;
};

[[nodiscard]] inline GraphemeClass grapheme_class(char32_t c) {
  if (c >= 0xAC00 && c <= 0xD7A3)
    return {.cluster = (c - 0xAC00) % 28 == 0 ? GraphemeBreak::lv : GraphemeBreak::lvt};
  const auto* range = find_range(kGraphemeClasses, c);
  if (range == nullptr) return {};
  return {static_cast<GraphemeBreak>(range->value & 15), static_cast<ConjunctBreak>(range->value >> 4 & 3),
          (range->value & 64) != 0};
}

/// True for a mark or joiner, which attaches to the character before it.
[[nodiscard]] inline bool is_mark(char32_t c) {
  const auto cluster = grapheme_class(c).cluster;
  return cluster == GraphemeBreak::extend || cluster == GraphemeBreak::spacing_mark ||
         cluster == GraphemeBreak::zwj;
}

/// Reads a text character by character and reports where clusters begin.
class GraphemeBreaker {
 public:
  [[nodiscard]] bool breaks_before(char32_t c) {
    const auto next = grapheme_class(c);
    const bool result = !joins(last_, next.cluster) && !joins_conjunct(next) && !joins_emoji(next) &&
                        !joins_flag(next.cluster);
    remember(next);
    return result;
  }

 private:
  using B = GraphemeBreak;

  [[nodiscard]] static bool is_control(B b) { return b == B::control || b == B::cr || b == B::lf; }

  [[nodiscard]] static bool joins(B last, B next) {
    if (last == B::cr && next == B::lf) return true;                 // GB3
    if (is_control(last) || is_control(next)) return false;          // GB4, GB5
    if (next == B::extend || next == B::zwj) return true;            // GB9
    if (next == B::spacing_mark || last == B::prepend) return true;  // GB9a, GB9b
    return joins_hangul(last, next);
  }

  [[nodiscard]] static bool joins_hangul(B last, B next) {
    if (last == B::l) return next == B::l || next == B::v || next == B::lv || next == B::lvt;  // GB6
    if (last == B::lv || last == B::v) return next == B::v || next == B::t;                    // GB7
    return (last == B::lvt || last == B::t) && next == B::t;                                   // GB8
  }

  [[nodiscard]] bool joins_conjunct(GraphemeClass next) const {  // GB9c
    return has_linker_ && next.conjunct == ConjunctBreak::consonant;
  }
  [[nodiscard]] bool joins_emoji(GraphemeClass next) const {  // GB11
    return last_ == B::zwj && after_pictograph_ && next.is_pictographic;
  }
  [[nodiscard]] bool joins_flag(B next) const {  // GB12, GB13
    return next == B::regional && last_ == B::regional && regionals_ % 2 == 1;
  }

  void remember(GraphemeClass c) {
    const bool goes_on = c.conjunct == ConjunctBreak::linker || c.conjunct == ConjunctBreak::extend;
    has_consonant_ = c.conjunct == ConjunctBreak::consonant || (has_consonant_ && goes_on);
    has_linker_ = has_consonant_ && goes_on && (has_linker_ || c.conjunct == ConjunctBreak::linker);
    const bool awaits_emoji = after_pictograph_ && last_ != B::zwj;
    after_pictograph_ =
        c.is_pictographic || (awaits_emoji && (c.cluster == B::extend || c.cluster == B::zwj));
    regionals_ = c.cluster == B::regional ? regionals_ + 1 : 0;
    last_ = c.cluster;
  }

  B last_ = B::control;         ///< GB1: break at the text's beginning
  bool has_consonant_ = false;  ///< a consonant, then only linkers and extenders
  bool has_linker_ = false;     ///< at least one of them a linker
  bool after_pictograph_ = false;
  int regionals_ = 0;
};

/// Returns the parts of the text, split where `begins(code_point)` is true.
template <class Begins>
[[nodiscard]] std::vector<std::string_view> cut_text(std::string_view text, Begins begins) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = utf8_step(text, at);
    if (begins(step.code_point) && at > 0) {
      parts.push_back(text.substr(start, at - start));
      start = at;
    }
    at += step.size;
  }
  if (!text.empty()) parts.push_back(text.substr(start));
  return parts;
}

}  // namespace detail

inline std::vector<std::string_view> grapheme_clusters(std::string_view text) {
  return detail::cut_text(
      text, [breaker = detail::GraphemeBreaker{}](char32_t c) mutable { return breaker.breaks_before(c); });
}

inline std::vector<std::string_view> code_points(std::string_view text) {
  return detail::cut_text(text, [](char32_t) { return true; });
}

}  // namespace looptorch
