// SPDX-License-Identifier: MIT
// Sets the times of the words in a window's segments, from the alignment of word_alignment.hpp, by
// openai-whisper's rules. Punctuation joins its word. Words that are too long after a sentence's end or a
// pause are shortened to twice the usual length. Segments begin and end with their words.
#pragma once

#include "../text/python_text.hpp"
#include "segments.hpp"
#include "word_alignment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// The signs that join a word.
struct WordPunctuation {
  std::string prepended = "\"'“¿([{-";                ///< joins the next word
  std::string appended = "\"'.。,，!！?？:：”)]}、";  ///< joins the word before
};

namespace detail {

inline bool holds(std::string_view list, std::string_view text) {
  return list.find(text) != std::string_view::npos;
}

/// Lengths of a window's words.
struct WordLengths {
  double median = 0;

  [[nodiscard]] double longest() const { return 2 * median; }
};

/// Returns the median length of words longer than 0, at most 0.7 s.
inline WordLengths lengths_of(const std::vector<AlignedWord>& words) {
  std::vector<double> lengths;
  for (const auto& word : words)
    if (word.end != word.start) lengths.push_back(word.end - word.start);
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const auto middle = lengths.size() / 2;
  const double median =
      lengths.size() % 2 == 1 ? lengths[middle] : (lengths[middle - 1] + lengths[middle]) / 2;
  return {std::min(0.7, median)};
}

/// Shortens long punctuation at the end of a sentence, and long words after it.
inline void shorten_at_sentence_ends(std::vector<AlignedWord>& words, WordLengths lengths) {
  constexpr std::string_view kEnds = ".。!！?？";
  for (std::size_t i = 1; lengths.median > 0 && i < words.size(); ++i) {
    if (words[i].end - words[i].start <= lengths.longest()) continue;
    if (holds(kEnds, words[i].text))
      words[i].end = words[i].start + lengths.longest();
    else if (holds(kEnds, words[i - 1].text))
      words[i].start = words[i].end - lengths.longest();
  }
}

/// Joins the text of `from` to `to`, at the front if `before`, else at the end. Empties `from`.
inline void join(AlignedWord& to, AlignedWord& from, bool before) {
  to.text = before ? from.text + to.text : to.text + from.text;
  to.tokens.insert(before ? to.tokens.begin() : to.tokens.end(), from.tokens.begin(), from.tokens.end());
  from.text.clear();
  from.tokens.clear();
}

inline void join_punctuation(std::vector<AlignedWord>& words, const WordPunctuation& signs) {
  const auto size = std::ssize(words);
  const auto word = [&](std::ptrdiff_t at) -> AlignedWord& { return words[static_cast<std::size_t>(at)]; };
  for (std::ptrdiff_t i = size - 2, next = size - 1; i >= 0; --i) {
    if (word(i).text.starts_with(' ') && holds(signs.prepended, stripped(word(i).text)))
      join(word(next), word(i), /*before=*/true);
    else
      next = i;
  }
  for (std::ptrdiff_t i = 1, last = 0; i < size; ++i) {
    if (!word(last).text.ends_with(' ') && holds(signs.appended, word(i).text))
      join(word(last), word(i), /*before=*/false);
    else
      last = i;
  }
}

/// Shortens the first words of a segment if they are too long after a pause.
inline void shorten_behind_pause(std::vector<Word>& words, WordLengths lengths, double last_speech) {
  const double longest = lengths.longest();
  if (words[0].end - last_speech <= 4 * lengths.median) return;
  const bool two_long = words.size() > 1 && words[1].end - words[0].start > 2 * longest;
  if (words[0].end - words[0].start <= longest && !two_long) return;
  if (words.size() > 1 && words[1].end - words[1].start > longest)
    words[0].end = words[1].start = std::max(words[1].end / 2, words[1].end - longest);
  words[0].start = std::max(0.0, words[0].end - longest);
}

/// Moves a segment's ends to its words. If its first or last word is too long, shortens that word instead.
inline void fit_ends(Segment& segment, WordLengths lengths) {
  auto &first = segment.words.front(), &last = segment.words.back();
  if (segment.start < first.end && segment.start - 0.5 > first.start)
    first.start = std::max(0.0, std::min(first.end - lengths.median, segment.start));
  else
    segment.start = first.start;
  if (segment.end > last.start && segment.end + 0.5 < last.end)
    last.end = std::max(last.start + lengths.median, segment.end);
  else
    segment.end = last.end;
}

}  // namespace detail

/// Sets the words of a window's segments, and moves the segments' ends. `words` are the words of all
/// segments, as WordAligner returns them; `last_speech` is the end of the last word before the window.
inline void set_word_times(std::vector<Segment>& segments, std::vector<AlignedWord> words, double last_speech,
                           std::int64_t end_of_text, const WordPunctuation& signs = {}) {
  if (segments.empty()) return;
  const auto lengths = detail::lengths_of(words);
  detail::shorten_at_sentence_ends(words, lengths);
  detail::join_punctuation(words, signs);
  const double offset = seconds_of(segments.front().seek);
  std::size_t next = 0;
  for (auto& segment : segments) {
    const auto tokens = static_cast<std::size_t>(std::count_if(segment.tokens.begin(), segment.tokens.end(),
                                                               [&](auto id) { return id < end_of_text; }));
    for (std::size_t taken = 0; next < words.size() && taken < tokens; ++next) {
      const auto& word = words[next];
      taken += word.tokens.size();
      if (!word.text.empty())
        segment.words.push_back({word.text, rounded_to_hundredths(offset + word.start),
                                 rounded_to_hundredths(offset + word.end), word.probability});
    }
    if (segment.words.empty()) continue;
    detail::shorten_behind_pause(segment.words, lengths, last_speech);
    detail::fit_ends(segment, lengths);
    last_speech = segment.end;
  }
}

/// Returns the end of the last word; without words, the end of the last segment; without segments, 0.
inline double last_end(const std::vector<Segment>& segments) {
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment)
    if (!segment->words.empty()) return segment->words.back().end;
  return segments.empty() ? 0 : segments.back().end;
}

}  // namespace whisper
