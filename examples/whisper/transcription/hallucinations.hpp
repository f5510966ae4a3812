// SPDX-License-Identifier: MIT
// Finds words that a model invents in silence, by openai-whisper's rules: a segment of improbable, very short
// or very long words with silence around it. Drops that segment and all later ones, and begins the next
// window where the segment began. If a window begins with silence before an invented segment, drops the whole
// window, and begins the next one after that silence.
#pragma once

#include "../text/python_text.hpp"
#include "segments.hpp"
#include "word_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace whisper {

namespace detail {

/// Returns how unusual a word is; 0 for an ordinary one.
inline double anomaly_of(const Word& word) {
  const double seconds = word.end - word.start;
  return (word.probability < 0.15 ? 1.0 : 0.0) + (seconds < 0.133 ? (0.133 - seconds) * 15 : 0.0) +
         (seconds > 2.0 ? seconds - 2.0 : 0.0);
}

/// True if the first eight words seem invented, by their times and probabilities.
inline bool is_anomalous(const Segment& segment) {
  constexpr std::size_t kLooked = 8;
  const WordPunctuation signs;
  const auto punctuation = signs.prepended + signs.appended;
  double sum = 0;
  std::size_t count = 0;
  for (const auto& word : segment.words) {
    if (count == kLooked) break;
    if (holds(punctuation, word.text)) continue;
    sum += anomaly_of(word), ++count;
  }
  return !segment.words.empty() && (sum >= 3 || sum + 0.01 >= static_cast<double>(count));
}

/// Returns the first segment from `first` on that has words, or null.
inline const Segment* next_with_words(const std::vector<Segment>& segments, std::size_t first) {
  for (; first < segments.size(); ++first)
    if (!segments[first].words.empty()) return &segments[first];
  return nullptr;
}

/// Returns the frame at a time, rounded as Python rounds.
inline std::int64_t frame_at(double seconds) {
  return static_cast<std::int64_t>(std::nearbyint(seconds * 100));
}

}  // namespace detail

/// A window's place in the recording, for SilenceSkipper.
struct TranscribedWindow {
  WindowSpan place;
  std::int64_t longest = 3000;   ///< Frames of a whole window.
  std::int64_t recording = 0;    ///< Frames of the recording, or enough to compare with the threshold.
  double last_speech = 0;        ///< Time in seconds at which the last word before the window ends.
  bool ends_in_silence = false;  ///< See WindowSegments.
};

/// The beginning of the next window, and whether this one counts.
struct SkippedSilence {
  std::int64_t seek = 0;  ///< First frame of the next window.
  bool repeats = false;   ///< True if this window is dropped: it is decoded again after its silence.
};

/// Skips silences longer than `threshold` seconds around invented words. Segments need words with times.
class SilenceSkipper {
 public:
  explicit SilenceSkipper(double threshold) : threshold_(threshold) {}

  /// Removes the first invented segment with silence around it, and all later ones. `seek` is where the next
  /// window would begin otherwise.
  [[nodiscard]] SkippedSilence operator()(std::vector<Segment>& segments, const TranscribedWindow& window,
                                          std::int64_t seek) const {
    const auto begin = window.place.seek;
    const double offset = seconds_of(begin), end = seconds_of(begin + window.longest);
    if (!window.ends_in_silence && !segments.empty() && last_end(segments) > offset) {
      const double last = last_end(segments);
      seek = end - last > threshold_ ? detail::frame_at(last) : begin + window.place.frames;
    }
    if (const auto* first = detail::next_with_words(segments, 0); first && detail::is_anomalous(*first)) {
      const double gap = first->start - offset;
      if (gap > threshold_) return {begin + detail::frame_at(gap), true};
    }
    return {remove_invented(segments, window, seek), false};
  }

 private:
  std::int64_t remove_invented(std::vector<Segment>& segments, const TranscribedWindow& window,
                               std::int64_t seek) const {
    double last = window.last_speech;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const auto segment = segments[i];
      if (segment.words.empty()) continue;
      if (detail::is_anomalous(segment) && is_surrounded(segments, i, window, last)) {
        segments.resize(i);
        if (seconds_of(window.recording) - segment.end < threshold_) return window.recording;
        return detail::frame_at(std::max(seconds_of(window.place.seek) + 1, segment.start));
      }
      last = segment.end;
    }
    return seek;
  }

  /// True if silence, or another invented segment after it, surrounds segment `i`. `last` is the end of the
  /// segment before.
  [[nodiscard]] bool is_surrounded(const std::vector<Segment>& segments, std::size_t i,
                                   const TranscribedWindow& window, double last) const {
    constexpr double kEdge = 2;  // s
    const auto& segment = segments[i];
    const double offset = seconds_of(window.place.seek);
    const double end = seconds_of(window.place.seek + window.longest);
    const auto* next = detail::next_with_words(segments, i + 1);
    const double next_start = next ? next->words.front().start : offset + seconds_of(window.place.frames);
    const bool before =
        segment.start - last > threshold_ || segment.start < threshold_ || segment.start - offset < kEdge;
    const bool behind = next_start - segment.end > threshold_ || (next && detail::is_anomalous(*next)) ||
                        end - segment.end < kEdge;
    return before && behind;
  }

  double threshold_;
};

}  // namespace whisper
