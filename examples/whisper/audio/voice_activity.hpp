// SPDX-License-Identifier: MIT
// Finds the parts of a recording with speech, for `whisper_transcribe --vad`: sound that is louder than the
// noise around it. Needs no model and no training; 10 hours take a tenth of a second. Intermittent music and
// machines count as speech; Whisper's own no-speech probability has to reject them.
//
// The level of the noise is tracked as it changes: at each time it is the lowest level, averaged over 0.1 s,
// within the 10 s around that time (R. Martin, "Noise power spectral density estimation based on optimal
// smoothing and minimum statistics", 2001).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace whisper {

/// A part of a recording, in frames of 10 ms.
struct FrameSpan {
  std::int64_t begin = 0, end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  friend bool operator==(const FrameSpan&, const FrameSpan&) = default;
};

/// Settings of the detector; times in frames of 10 ms, levels in dB.
struct VoiceOptions {
  double margin = 10;                ///< Speech begins where the level is this far above the noise floor.
  double hysteresis = 4;             ///< Speech ends where the level is this far below that of its beginning.
  double range = 45;                 ///< Levels this far below the recording's loud frames are no speech.
  std::int64_t min_speech = 10;      ///< Shorter bursts are no speech.
  std::int64_t min_silence = 50;     ///< Shorter silences belong to the speech around them.
  std::int64_t lead_in = 20;         ///< Frames added before speech.
  std::int64_t hangover = 40;        ///< Frames added after speech.
  std::int64_t floor_window = 1000;  ///< Frames over which the noise floor is the minimum.
};

namespace detail {

/// Returns the mean of each level and its neighbours, `width` frames in all.
inline std::vector<float> smoothed(const std::vector<float>& levels, std::int64_t width) {
  const auto size = std::ssize(levels);
  std::vector<float> means(levels.size());
  double sum = 0;
  std::int64_t begin = 0, end = 0;
  for (std::int64_t at = 0; at < size; ++at) {
    for (; end < std::min(size, at + width / 2 + 1); ++end) sum += levels[std::size_t(end)];
    for (; begin < at - width / 2; ++begin) sum -= levels[std::size_t(begin)];
    means[std::size_t(at)] = static_cast<float>(sum / static_cast<double>(end - begin));
  }
  return means;
}

/// Returns the lowest of the levels around each frame, `width` frames in all.
inline std::vector<float> lowest_around(const std::vector<float>& levels, std::int64_t width) {
  const auto size = std::ssize(levels);
  std::vector<float> lowest(levels.size());
  std::deque<std::int64_t> candidates;  // rising levels
  std::int64_t end = 0;
  for (std::int64_t at = 0; at < size; ++at) {
    for (; end < std::min(size, at + width / 2 + 1); ++end) {
      while (!candidates.empty() && levels[std::size_t(candidates.back())] >= levels[std::size_t(end)])
        candidates.pop_back();
      candidates.push_back(end);
    }
    while (candidates.front() < at - width / 2) candidates.pop_front();
    lowest[std::size_t(at)] = levels[std::size_t(candidates.front())];
  }
  return lowest;
}

/// Returns the level that 2 % of the frames exceed.
inline float loud_level(std::vector<float> levels) {
  const auto place = levels.begin() + std::ssize(levels) * 98 / 100;
  std::nth_element(levels.begin(), place, levels.end());
  return *place;
}

/// Returns the spans of frames that are loud enough, by two thresholds.
inline std::vector<FrameSpan> loud_spans(const std::vector<float>& levels, const VoiceOptions& options) {
  const auto smooth = smoothed(levels, 10), floor = lowest_around(smooth, options.floor_window);
  const double least = loud_level(smooth) - options.range;
  std::vector<FrameSpan> spans;
  bool speaks = false;
  for (std::size_t at = 0; at < levels.size(); ++at) {
    const double begins = std::max(floor[at] + options.margin, least);
    const bool loud = smooth[at] > begins - (speaks ? options.hysteresis : 0);
    const auto frame = static_cast<std::int64_t>(at);
    if (loud && !speaks) spans.push_back({frame, frame});
    if (loud) spans.back().end = frame + 1;
    speaks = loud;
  }
  return spans;
}

}  // namespace detail

/// Returns the spans with speech, sorted and disjoint, by the level of each frame in dB.
inline std::vector<FrameSpan> find_speech(const std::vector<float>& levels,
                                          const VoiceOptions& options = {}) {
  std::vector<FrameSpan> speech;
  if (levels.empty()) return speech;
  for (const auto& span : detail::loud_spans(levels, options)) {
    if (!speech.empty() && span.begin - speech.back().end < options.min_silence)
      speech.back().end = span.end;
    else
      speech.push_back(span);
  }
  std::erase_if(speech, [&](const FrameSpan& span) { return span.size() < options.min_speech; });
  for (std::size_t i = 0; i < speech.size(); ++i) {
    const auto before = i > 0 ? speech[i - 1].end : 0;
    const auto behind = i + 1 < speech.size() ? speech[i + 1].begin : std::ssize(levels);
    auto& [begin, end] = speech[i];
    begin = std::max(before, begin - options.lead_in);
    end = std::min<std::int64_t>(behind, end + options.hangover);
  }
  return speech;
}

/// Returns chunks of at most `longest` frames that cover all of `speech`, neighbours together if they fit.
/// Cuts longer speech where it is quietest, in the second half of what fits.
inline std::vector<FrameSpan> pack_speech(const std::vector<FrameSpan>& speech, std::int64_t longest,
                                          const std::vector<float>& levels) {
  const auto smooth = detail::smoothed(levels, 10);
  std::vector<FrameSpan> chunks;
  for (auto span : speech) {
    if (!chunks.empty() && span.end - chunks.back().begin <= longest) {
      chunks.back().end = span.end;
      continue;
    }
    for (; span.size() > longest; span.begin = chunks.back().end) {
      const auto from = smooth.begin() + (span.begin + longest / 2),
                 to = smooth.begin() + (span.begin + longest);
      chunks.push_back({span.begin, std::min_element(from, to) - smooth.begin()});
    }
    chunks.push_back(span);
  }
  return chunks;
}

}  // namespace whisper
