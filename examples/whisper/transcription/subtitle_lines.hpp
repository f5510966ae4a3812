// SPDX-License-Identifier: MIT
// Divides a transcript into subtitles, one for each segment, as openai-whisper's writers do. With word times
// it can also limit a line's width and the number of lines or words, and underline the spoken word.
#pragma once

#include "../text/python_text.hpp"
#include "segments.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// How words become subtitles; all of it needs word times.
struct SubtitleOptions {
  std::optional<std::int64_t> max_line_width{};  ///< Characters; a longer line is broken at a word.
  std::optional<std::int64_t>
      max_line_count{};  ///< Lines of a subtitle; with a width, segments run together.
  std::optional<std::int64_t> max_words_per_line{};  ///< Ignored with a width.
  bool highlight_words = false;                      ///< Underlines each word while it is said.
};

/// A text and when it shows, in seconds.
struct Subtitle {
  double start = 0, end = 0;
  std::string text;
};

/// Writes times as SRT and VTT have them.
struct TimeFormat {
  bool always_hours = false;
  char decimal_mark = '.';

  [[nodiscard]] std::string operator()(double seconds) const {
    const auto all = static_cast<long long>(std::nearbyint(seconds * 1000));
    const auto hours = all / 3'600'000, minutes = all / 60'000 % 60, rest = all / 1000 % 60,
               part = all % 1000;
    char text[48];
    if (always_hours || hours > 0)
      std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld", hours, minutes, rest, decimal_mark,
                    part);
    else
      std::snprintf(text, sizeof text, "%02lld:%02lld%c%03lld", minutes, rest, decimal_mark, part);
    return text;
  }
};

namespace detail {

/// Collects words into subtitles.
class SubtitleWords {
 public:
  explicit SubtitleWords(const SubtitleOptions& options)
      : width_(static_cast<std::size_t>(options.max_line_width.value_or(kUnlimited))),
        lines_(options.max_line_count),
        keeps_segments_(!options.max_line_count || !options.max_line_width) {}

  /// Adds the next word. `begins` is true for the first word of a segment, or of a part of one.
  void add(Word word, bool begins) {
    if (!last_start_) last_start_ = word.start;
    const bool pause = !keeps_segments_ && word.start - *last_start_ > kLongPause;
    const bool breaks = begins && !words_.empty() && keeps_segments_;
    const auto size = character_count(word.text);
    last_start_ = word.start;
    if (line_ > 0 && line_ + size <= width_ && !pause && !breaks) {
      line_ += size;
    } else {
      word.text = stripped(word.text);
      const auto length = character_count(word.text);
      if ((!words_.empty() && lines_ && (pause || line_count_ >= *lines_)) || breaks) {
        close();
      } else if (line_ > 0) {
        ++line_count_;
        word.text = "\n" + word.text;
      }
      line_ = length;
    }
    words_.push_back(std::move(word));
  }

  /// Returns and forgets the words of complete subtitles.
  [[nodiscard]] std::vector<std::vector<Word>> take() { return std::exchange(subtitles_, {}); }

  /// Completes the current subtitle.
  void finish() {
    if (!words_.empty()) close();
  }

 private:
  static constexpr std::int64_t kUnlimited = 1000;
  static constexpr double kLongPause = 3;  // seconds

  void close() {
    subtitles_.push_back(std::exchange(words_, {}));
    line_count_ = 1;
  }

  std::size_t width_;
  std::optional<std::int64_t> lines_;
  bool keeps_segments_;
  std::size_t line_ = 0;  // characters of the current line
  std::int64_t line_count_ = 1;
  std::optional<double> last_start_{};
  std::vector<Word> words_;
  std::vector<std::vector<Word>> subtitles_;
};

/// Returns the text of `words`, with the word `marked` underlined.
inline std::string underlined(const std::vector<Word>& words, std::size_t marked) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i].text;
    const auto begin = i == marked ? word.size() - stripped(word + "|").size() + 1 : 0;
    text += i == marked ? word.substr(0, begin) + "<u>" + word.substr(begin) + "</u>" : word;
  }
  return text;
}

}  // namespace detail

/// Turns segments into subtitles, one after the other.
class Subtitles {
 public:
  /// `times` decides which times are equal: gaps that vanish in its format get no subtitle.
  Subtitles(const SubtitleOptions& options, TimeFormat times, bool has_words)
      : options_(options), times_(times), has_words_(has_words), words_(options) {}

  /// Returns the subtitles that the next segment completes.
  [[nodiscard]] std::vector<Subtitle> add(const Segment& segment) {
    if (!has_words_) return {{segment.start, segment.end, replaced(stripped(segment.text), "-->", "->")}};
    const auto part = static_cast<std::size_t>(options_.max_words_per_line.value_or(1000));
    for (std::size_t i = 0; i < segment.words.size(); ++i) words_.add(segment.words[i], i % part == 0);
    return shown();
  }

  /// Returns the rest.
  [[nodiscard]] std::vector<Subtitle> finish() {
    words_.finish();
    return shown();
  }

 private:
  std::vector<Subtitle> shown() {
    std::vector<Subtitle> subtitles;
    for (const auto& words : words_.take()) show(words, subtitles);
    return subtitles;
  }

  void show(const std::vector<Word>& words, std::vector<Subtitle>& subtitles) const {
    std::string text;
    for (const auto& word : words) text += word.text;
    if (!options_.highlight_words) {
      subtitles.push_back({words.front().start, words.back().end, text});
      return;
    }
    double last = words.front().start;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (times_(last) != times_(words[i].start)) subtitles.push_back({last, words[i].start, text});
      subtitles.push_back({words[i].start, words[i].end, detail::underlined(words, i)});
      last = words[i].end;
    }
  }

  SubtitleOptions options_;
  TimeFormat times_;
  bool has_words_;
  detail::SubtitleWords words_;
};

}  // namespace whisper
