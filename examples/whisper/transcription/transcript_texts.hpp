// SPDX-License-Identifier: MIT
// Formats transcripts as TXT, SRT, VTT, TSV and JSON with openai-whisper's layout, byte for byte. All formats
// but JSON can be written segment by segment, and are complete after each segment.
#pragma once

#include "../text/python_text.hpp"
#include "segments.hpp"
#include "subtitle_lines.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

inline constexpr std::array<std::string_view, 5> kTranscriptFormats{"txt", "vtt", "srt", "tsv", "json"};

/// A transcript in a format that grows: "txt", "srt" and "vtt", as video players and browsers read them, or
/// "tsv", a table of start and end in milliseconds and the text.
class TranscriptText {
 public:
  TranscriptText(std::string_view format, const SubtitleOptions& options, bool has_words)
      : format_(format),
        times_{.always_hours = format == "srt", .decimal_mark = format == "srt" ? ',' : '.'},
        subtitles_(options, times_, has_words) {}

  /// Returns the text before the first segment.
  [[nodiscard]] std::string begin() const {
    return format_ == "vtt" ? "WEBVTT\n\n" : format_ == "tsv" ? "start\tend\ttext\n" : "";
  }

  /// Returns the text that the next segment adds.
  [[nodiscard]] std::string add(const Segment& segment) {
    if (format_ == "txt") return std::string(stripped(segment.text)) + '\n';
    if (format_ == "tsv")
      return milliseconds(segment.start) + '\t' + milliseconds(segment.end) + '\t' +
             replaced(stripped(segment.text), "\t", " ") + '\n';
    return shown(subtitles_.add(segment));
  }

  /// Returns the text at the end: the words of an unfinished subtitle.
  [[nodiscard]] std::string finish() { return shown(subtitles_.finish()); }

 private:
  static std::string milliseconds(double seconds) {
    return std::to_string(static_cast<long long>(std::nearbyint(1000 * seconds)));
  }

  std::string shown(const std::vector<Subtitle>& subtitles) {
    std::string text;
    for (const auto& [start, end, words] : subtitles) {
      if (format_ == "srt") text += std::to_string(++number_) + '\n';
      text += times_(start) + " --> " + times_(end) + '\n' + words + "\n\n";
    }
    return text;
  }

  std::string format_;
  TimeFormat times_;
  Subtitles subtitles_;
  std::size_t number_ = 0;
};

/// Returns the whole transcript in a format that grows.
inline std::string text_of(std::string_view format, const Transcription& transcription,
                           const SubtitleOptions& options = {}) {
  TranscriptText text(format, options, transcription.has_words);
  auto all = text.begin();
  for (const auto& segment : transcription.segments) all += text.add(segment);
  return all + text.finish();
}

namespace detail {

/// Returns the parts in brackets, with commas.
inline std::string json_list(const std::vector<std::string>& parts) {
  std::string list;
  for (const auto& part : parts) list.append(list.empty() ? "" : ", ").append(part);
  return "[" + list + "]";
}

inline std::string json_of(const Word& word) {
  return "{\"word\": " + ascii_json(word.text) + ", \"start\": " + float_text(word.start) +
         ", \"end\": " + float_text(word.end) + ", \"probability\": " + float_text(word.probability) + "}";
}

/// `number` is the segment's number in the transcript.
inline std::string json_of(const Segment& segment, std::size_t number, bool with_words) {
  std::vector<std::string> tokens, words;
  for (const auto id : segment.tokens) tokens.push_back(std::to_string(id));
  for (const auto& word : segment.words) words.push_back(json_of(word));
  std::string text = "{\"id\": " + std::to_string(number) + ", \"seek\": " + std::to_string(segment.seek);
  const auto add = [&](const char* name, const std::string& value) {
    text.append(", \"").append(name).append("\": ").append(value);
  };
  add("start", float_text(segment.start)), add("end", float_text(segment.end));
  add("text", ascii_json(segment.text)), add("tokens", json_list(tokens));
  add("temperature", float_text(segment.temperature));
  add("avg_logprob", float_text(segment.average_log_probability));
  add("compression_ratio", float_text(segment.compression_ratio));
  add("no_speech_prob", float_text(segment.no_speech_probability));
  if (with_words || segment.text.empty()) add("words", json_list(words));
  return text + "}";
}

}  // namespace detail

/// Returns everything, as openai-whisper's `transcribe` returns it, on one line without an end.
inline std::string json_of(const Transcription& transcription) {
  std::vector<std::string> segments;
  for (const auto& segment : transcription.segments)
    segments.push_back(detail::json_of(segment, segments.size(), transcription.has_words));
  return "{\"text\": " + ascii_json(transcription.text) + ", \"segments\": " + detail::json_list(segments) +
         ", \"language\": " + ascii_json(transcription.language) + "}";
}

}  // namespace whisper
