// SPDX-License-Identifier: MIT
// Transcripts as files: TXT, SRT, VTT, TSV and JSON with the layout of openai-whisper's, byte for byte. Each
// file appears whole or not at all.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>

#include "python_text.hpp"
#include "segments.hpp"
#include "subtitle_lines.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace whisper {

/// Returns the text, a line for each segment.
inline std::string txt_of(const Transcription& transcription) {
  std::string text;
  for (const auto& segment : transcription.segments) text.append(stripped(segment.text)) += '\n';
  return text;
}

/// Returns numbered subtitles, as video players read them.
inline std::string srt_of(const Transcription& transcription, const SubtitleOptions& options = {}) {
  constexpr TimeFormat kTimes{.always_hours = true, .decimal_mark = ','};
  std::string text;
  std::size_t number = 0;
  for (const auto& [start, end, shown] : subtitles_of(transcription, options, kTimes))
    text += std::to_string(++number) + '\n' + kTimes(start) + " --> " + kTimes(end) + '\n' + shown + "\n\n";
  return text;
}

/// Returns subtitles as browsers read them.
inline std::string vtt_of(const Transcription& transcription, const SubtitleOptions& options = {}) {
  constexpr TimeFormat kTimes;
  std::string text = "WEBVTT\n\n";
  for (const auto& [start, end, shown] : subtitles_of(transcription, options, kTimes))
    text += kTimes(start) + " --> " + kTimes(end) + '\n' + shown + "\n\n";
  return text;
}

/// Returns a table: start and end in milliseconds, and the text.
inline std::string tsv_of(const Transcription& transcription) {
  const auto milliseconds = [](double seconds) {
    return std::to_string(static_cast<long long>(std::nearbyint(1000 * seconds)));
  };
  std::string text = "start\tend\ttext\n";
  for (const auto& segment : transcription.segments)
    text += milliseconds(segment.start) + '\t' + milliseconds(segment.end) + '\t' +
            replaced(stripped(segment.text), "\t", " ") + '\n';
  return text;
}

namespace detail {

/// Returns the parts between brackets, with commas.
inline std::string json_list(const std::vector<std::string>& parts) {
  std::string list;
  for (const auto& part : parts) list.append(list.empty() ? "" : ", ").append(part);
  return "[" + list + "]";
}

inline std::string json_of(const Word& word) {
  return "{\"word\": " + ascii_json(word.text) + ", \"start\": " + float_text(word.start) +
         ", \"end\": " + float_text(word.end) + ", \"probability\": " + float_text(word.probability) + "}";
}

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

inline constexpr std::array<std::string_view, 5> kTranscriptFormats{"txt", "vtt", "srt", "tsv", "json"};

/// Where transcripts go: a file for each recording and format.
class TranscriptFiles {
 public:
  /// Makes the folder. `format` is one of kTranscriptFormats, or "all". Throws std::filesystem's error.
  TranscriptFiles(std::filesystem::path folder, std::string_view format, SubtitleOptions options)
      : folder_(std::move(folder)), options_(options) {
    for (const auto known : kTranscriptFormats)
      if (format == known || format == "all") formats_.emplace_back(known);
    std::filesystem::create_directories(folder_);
  }

  /// Throws UsageError if two recordings have one name without folder and extension, since the files of one
  /// would replace those of the other.
  static void require_distinct(const std::vector<std::string>& recordings) {
    std::map<std::string, std::string> known;
    for (const auto& recording : recordings) {
      const auto [other, is_new] = known.emplace(stem_of(recording), recording);
      if (!is_new)
        throw looptorch::UsageError(looptorch::message(
            other->second, " and ", recording, " would be written to the same files: ", other->first, ".*"));
    }
  }

  /// Writes the files of a recording, and returns their paths. Throws looptorch::FileError.
  std::vector<std::filesystem::path> write(const std::string& recording,
                                           const Transcription& transcription) const {
    std::vector<std::filesystem::path> written;
    for (const auto& format : formats_) {
      written.push_back(folder_ / (stem_of(recording) + "." + format));
      looptorch::write_file_atomically(written.back(), text_of(format, transcription));
    }
    return written;
  }

 private:
  static std::string stem_of(const std::string& recording) {
    return recording == "-" ? "stdin" : std::filesystem::path(recording).stem().string();
  }

  [[nodiscard]] std::string text_of(std::string_view format, const Transcription& transcription) const {
    if (format == "txt") return txt_of(transcription);
    if (format == "vtt") return vtt_of(transcription, options_);
    if (format == "srt") return srt_of(transcription, options_);
    return format == "tsv" ? tsv_of(transcription) : json_of(transcription);
  }

  std::filesystem::path folder_;
  SubtitleOptions options_;
  std::vector<std::string> formats_;
};

}  // namespace whisper
