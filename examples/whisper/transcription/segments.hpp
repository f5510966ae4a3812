// SPDX-License-Identifier: MIT
// Divides the tokens of a window into segments with times, and decides where the next window begins, by
// openai-whisper's rules. The model writes "<|0.00|> first words <|2.40|><|2.40|> more words <|5.00|>"; a
// segment ends where two timestamps meet.
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include "../decoding/fallback.hpp"
#include "../text/python_text.hpp"
#include "../text/tokenizer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// A word with its times in seconds.
struct Word {
  std::string text;  ///< With the space before it.
  double start = 0, end = 0, probability = 0;
};

/// A part of a transcript, with the fields of openai-whisper's `segments`.
struct Segment {
  std::int64_t seek = 0;      ///< The first mel frame of the window that it was decoded from.
  double start = 0, end = 0;  ///< Seconds.
  std::string text;           ///< With the space before it.
  std::vector<std::int64_t> tokens;
  double temperature = 0, average_log_probability = 0, compression_ratio = 0, no_speech_probability = 0;
  std::vector<Word> words{};
};

/// The transcript of a recording.
struct Transcription {
  std::string text;
  std::vector<Segment> segments;
  std::string language;
  bool has_words = false;  ///< True if word times were asked for.
};

/// A window of a recording, in mel frames of 10 ms.
struct WindowSpan {
  std::int64_t seek = 0, frames = 0;
};

/// Returns the seconds of so many mel frames, with the bits of openai-whisper's result.
inline double seconds_of(std::int64_t frames) { return static_cast<double>(frames * 160) / 16000; }

/// The segments of a window.
struct WindowSegments {
  std::vector<Segment> segments;
  std::int64_t advance = 0;      ///< Frames up to the next window's beginning.
  bool ends_in_silence = false;  ///< True if a single timestamp ends the tokens: silence follows.
};

/// Splits the tokens of windows. Takes the ids of a model's special tokens.
class SegmentSplitter {
 public:
  SegmentSplitter(const Tokenizer& tokenizer, const DecodingOptions& decoding)
      : tokenizer_(tokenizer),
        first_timestamp_(decoding.special.first_timestamp()),
        end_of_text_(decoding.end_of_text) {}

  /// Returns the segments of the window at `place`. Leaves tokens after the last pair of timestamps to the
  /// next window, unless a timestamp ends them. Without a pair, all tokens are one segment.
  [[nodiscard]] WindowSegments operator()(const Transcript& transcript, WindowSpan place) const {
    const auto& tokens = transcript.tokens;
    const auto size = tokens.size();
    WindowSegments window{.segments = {}, .advance = place.frames};
    window.ends_in_silence = size >= 2 && !is_time(tokens[size - 2]) && is_time(tokens[size - 1]);
    auto ends = pair_ends(tokens);
    if (ends.empty()) {
      window.segments.push_back(segment(transcript, place, tokens));
      window.segments.back().end = window.segments.back().start + whole_duration(tokens, place);
      return window;
    }
    if (window.ends_in_silence) ends.push_back(size);
    std::size_t begin = 0;
    for (const auto end : ends) {
      const std::vector some(tokens.begin() + std::ptrdiff_t(begin), tokens.begin() + std::ptrdiff_t(end));
      window.segments.push_back(segment(transcript, place, some));
      window.segments.back().start += seconds_at(some.front());
      window.segments.back().end += seconds_at(some.back());
      begin = end;
    }
    if (!window.ends_in_silence)
      window.advance = std::min(place.frames, steps_at(tokens[begin - 1]) * kFramesPerStep);
    return window;
  }

  /// Returns the text of tokens without timestamps, as Python decodes it: partial characters become U+FFFD.
  [[nodiscard]] std::string text_of(std::vector<std::int64_t> tokens) const {
    return looptorch::replace_invalid_utf8(bytes_of(std::move(tokens)));
  }

  /// Returns the bytes of that text, incomplete characters included.
  [[nodiscard]] std::string bytes_of(std::vector<std::int64_t> tokens) const {
    std::erase_if(tokens, [&](std::int64_t id) { return id >= end_of_text_; });
    return tokenizer_.bytes_of(tokens);
  }

 private:
  static constexpr std::int64_t kFramesPerStep = 2;
  static constexpr double kSecondsPerStep = 0.02;

  [[nodiscard]] bool is_time(std::int64_t token) const { return token >= first_timestamp_; }
  [[nodiscard]] std::int64_t steps_at(std::int64_t timestamp) const { return timestamp - first_timestamp_; }
  /// Returns the seconds of a timestamp; 0 for another token.
  [[nodiscard]] double seconds_at(std::int64_t token) const {
    return is_time(token) ? static_cast<double>(steps_at(token)) * kSecondsPerStep : 0;
  }

  /// Returns the index of the second timestamp of each pair.
  [[nodiscard]] std::vector<std::size_t> pair_ends(const std::vector<std::int64_t>& tokens) const {
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i < tokens.size(); ++i)
      if (is_time(tokens[i - 1]) && is_time(tokens[i])) ends.push_back(i);
    return ends;
  }

  /// Returns the seconds up to the last timestamp or, without one, the window's seconds.
  [[nodiscard]] double whole_duration(const std::vector<std::int64_t>& tokens, WindowSpan place) const {
    const auto last = std::find_if(tokens.rbegin(), tokens.rend(), [&](auto id) { return is_time(id); });
    if (last != tokens.rend() && *last != first_timestamp_) return seconds_at(*last);
    return seconds_of(place.frames);
  }

  [[nodiscard]] Segment segment(const Transcript& transcript, WindowSpan place,
                                const std::vector<std::int64_t>& tokens) const {
    const double offset = seconds_of(place.seek);
    return {.seek = place.seek,
            .start = offset,
            .end = offset,
            .text = text_of(tokens),
            .tokens = tokens,
            .temperature = transcript.temperature,
            .average_log_probability = transcript.average_log_probability,
            .compression_ratio = transcript.compression_ratio,
            .no_speech_probability = transcript.no_speech_probability};
  }

  const Tokenizer& tokenizer_;
  std::int64_t first_timestamp_, end_of_text_;
};

/// Empties segments that last no time or hold no text, as openai-whisper does.
inline void clear_empty(std::vector<Segment>& segments) {
  for (auto& segment : segments) {
    if (segment.start != segment.end && !stripped(segment.text).empty()) continue;
    segment.text.clear();
    segment.tokens.clear();
    segment.words.clear();
  }
}

}  // namespace whisper
