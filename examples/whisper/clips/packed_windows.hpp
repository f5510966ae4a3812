// SPDX-License-Identifier: MIT
// Packs the segments of long recordings into windows of up to 30 s, for `whisper_finetune --chunking`, as
// Whisper was trained (A. Radford et al., "Robust speech recognition via large-scale weak supervision", 2022,
// section 2.3). A window has its segments with their times, and the previous window's text. A segment that
// crosses the window's end belongs to the next window. Without timestamps the window's sound ends before
// that segment; with them the sound goes on, and the model learns when the segment begins.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include "../text/normalizers.hpp"
#include "training_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace whisper {

/// The segments of a window, and the text before it.
struct WindowText {
  std::vector<SpokenSegment> segments;  ///< In the order of their times, which do not overlap.
  std::string previous{};               ///< The previous window's text; empty at a recording's beginning.
  /// The begin of a segment cut off by the 30 s, in seconds from the window's beginning.
  std::optional<double> cut_off{};
};

/// The segments and previous text of each packed window.
class WindowTexts {
 public:
  void add(const looptorch::Utterance& window, WindowText text) {
    texts_[place_of(window)] = std::move(text);
  }

  /// Returns null for an utterance that is no packed window.
  [[nodiscard]] const WindowText* find(const looptorch::Utterance& utterance) const {
    const auto found = texts_.find(place_of(utterance));
    return found == texts_.end() ? nullptr : &found->second;
  }

 private:
  using Place = std::tuple<std::string, double, std::string>;  // recording, beginning, whole text
  static Place place_of(const looptorch::Utterance& utterance) {
    return {utterance.audio_filepath.string(), utterance.start.value_or(0), utterance.text};
  }

  std::map<Place, WindowText> texts_;
};

struct PackOptions {
  double max_seconds = 30;  ///< Length of a window at most.
  /// A longer gap without a segment ends a window, since it may hold untranscribed speech.
  double max_gap = 2;
  double lead = 1;  ///< Seconds that a window begins before its first segment; never within the last window.
  double max_distance = 30;       ///< Text that ended so many seconds earlier is not used as previous text.
  std::int64_t max_tokens = 224;  ///< Tokens of a window at most, unless one segment has more.
};

namespace detail {

/// Packs the segments of one recording, in the order of their times.
class WindowPacker {
 public:
  WindowPacker(const PackOptions& options, std::vector<looptorch::Utterance>& windows, WindowTexts& texts)
      : options_(options), windows_(windows), texts_(texts) {}

  void add(const looptorch::Utterance& segment, std::int64_t tokens) {
    const double begin = segment.start.value_or(0), end = *segment.end;
    const bool fits = !text_.segments.empty() && segment.language == window_.language &&
                      begin - last_end_ <= options_.max_gap &&
                      end - *window_.start <= options_.max_seconds + kRounding &&
                      tokens_ + tokens <= options_.max_tokens;
    if (!fits) {
      mark_cut_off(segment, begin, end);
      open(segment, begin, end);
    }
    const double behind = text_.segments.empty() ? 0 : text_.segments.back().end;
    const double from = std::max(begin - *window_.start, behind), to = std::max(end - *window_.start, from);
    text_.segments.push_back({segment.text, from, to});
    if (!window_.text.empty() && !writes_without_spaces(window_.language)) window_.text += ' ';
    window_.text += segment.text;
    tokens_ += tokens;
    last_end_ = std::max(last_end_, end);
    window_.end = last_end_;
  }

  /// Adds the current window.
  void close() {
    if (text_.segments.empty()) return;
    windows_.push_back(window_);
    texts_.add(window_, std::exchange(text_, {}));
  }

 private:
  /// Notes the next segment if it begins within the window and ends after the window's longest length.
  void mark_cut_off(const looptorch::Utterance& segment, double begin, double end) {
    if (text_.segments.empty() || segment.language != window_.language ||
        begin - last_end_ > options_.max_gap)
      return;
    const double longest = *window_.start + options_.max_seconds;
    if (begin < longest - kLeastCut && end > longest + kRounding)
      text_.cut_off = std::max(begin, last_end_) - *window_.start;
  }

  void open(const looptorch::Utterance& segment, double begin, double end) {
    close();
    const bool continues = segment.language == window_.language && !window_.text.empty() &&
                           begin - last_end_ <= options_.max_distance;
    text_ = {.segments = {}, .previous = continues ? window_.text : std::string()};
    window_ = segment;
    window_.duration.reset();
    window_.text.clear();
    const double earliest = std::max({begin - options_.lead, last_end_, end - options_.max_seconds, 0.0});
    window_.start = std::min(begin, earliest);
    tokens_ = 0;
  }

  static constexpr double kRounding = 1e-6;  // tolerance for times that were added up
  static constexpr double kLeastCut = 0.02;  // s that a cut-off segment has in the window, at least

  const PackOptions& options_;
  std::vector<looptorch::Utterance>& windows_;
  WindowTexts& texts_;
  looptorch::Utterance window_{};  // keeps the last window's text until the next is opened
  WindowText text_{};
  double last_end_ = 0;  // s in the recording
  std::int64_t tokens_ = 0;
};

}  // namespace detail

/// Returns windows of the segments, recording by recording in the order of first mention, each sorted by time
/// and in one language. A window is an utterance with its segments' text; `texts` gets the rest. `tokens_of`
/// returns the number of tokens of a segment. Utterances without `end` are no segments and stay as they are.
/// Segments longer than `max_seconds` stay alone, to be refused as too long.
inline std::vector<looptorch::Utterance> pack_windows(
    std::vector<looptorch::Utterance> segments, const PackOptions& options, WindowTexts& texts,
    const std::function<std::int64_t(const looptorch::Utterance&)>& tokens_of) {
  std::vector<looptorch::Utterance> windows;
  std::map<std::string, std::size_t> number_of;
  std::vector<std::vector<looptorch::Utterance>> recordings;
  for (auto& segment : segments) {
    if (!segment.end) {
      windows.push_back(std::move(segment));
      continue;
    }
    const auto [place, is_new] = number_of.try_emplace(segment.audio_filepath.string(), recordings.size());
    if (is_new) recordings.emplace_back();
    recordings[place->second].push_back(std::move(segment));
  }
  for (auto& recording : recordings) {
    std::stable_sort(recording.begin(), recording.end(),
                     [](const auto& a, const auto& b) { return a.start.value_or(0) < b.start.value_or(0); });
    detail::WindowPacker packer(options, windows, texts);
    for (const auto& segment : recording) packer.add(segment, tokens_of(segment));
    packer.close();
  }
  return windows;
}

/// Returns the windows that would cut off a segment at `max_seconds`, lengthened to there, by their number in
/// `windows`. `seconds_of` returns an utterance's length by its file.
inline std::map<std::int64_t, looptorch::Utterance> whole_sounds(
    const std::vector<looptorch::Utterance>& windows, const WindowTexts& texts, double max_seconds,
    const std::function<double(const looptorch::Utterance&)>& seconds_of) {
  std::map<std::int64_t, looptorch::Utterance> whole;
  for (std::int64_t i = 0; i < std::ssize(windows); ++i) {
    auto window = windows[static_cast<std::size_t>(i)];
    const auto* text = texts.find(window);
    if (!text || !text->cut_off) continue;
    window.end = window.start.value_or(0) + max_seconds;
    window.duration = seconds_of(window);
    if (*window.duration > *text->cut_off) whole.emplace(i, std::move(window));
  }
  return whole;
}

}  // namespace whisper
