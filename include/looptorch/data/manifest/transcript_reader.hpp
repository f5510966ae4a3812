// SPDX-License-Identifier: MIT
// Implements `read_transcript`: segments of a JSON array become utterances, and errors name a segment's line.
// Users include transcript.hpp, which describes the format.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/data/manifest/audio_name.hpp>
#include <looptorch/data/manifest/json_fields.hpp>
#include <looptorch/data/manifest/json_utterance.hpp>
#include <looptorch/data/manifest/manifest_reader.hpp>
#include <looptorch/data/manifest/transcript.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Finds the lines, from 1, on which the elements of a JSON array begin. The text must be JSON.
class ElementLines {
 public:
  [[nodiscard]] static std::vector<std::size_t> of(std::string_view array) {
    ElementLines lines;
    for (const char c : array) lines.take(c);
    return std::move(lines.lines_);
  }

 private:
  void take(char c) {
    if (c == '\n') ++line_;
    if (in_string_) return take_in_string(c);
    const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    const bool closes = c == ']' || c == '}';
    if (depth_ == 1 && awaits_ && !is_blank && !closes) {
      lines_.push_back(line_);
      awaits_ = false;
    }
    if (depth_ == 1 && c == ',') awaits_ = true;
    if (c == '[' || c == '{') awaits_ = depth_++ == 0;
    if (closes) --depth_;
    in_string_ = c == '"';
  }

  void take_in_string(char c) {
    in_string_ = c != '"' || is_escaped_;
    is_escaped_ = c == '\\' && !is_escaped_;
  }

  std::vector<std::size_t> lines_;
  std::size_t line_ = 1;
  int depth_ = 0;
  bool awaits_ = false, in_string_ = false, is_escaped_ = false;
};

/// Returns the words of a text with single spaces between them.
inline std::string on_one_line(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  std::string out;
  for (auto at = text.find_first_not_of(kSpaces); at != text.npos; at = text.find_first_not_of(kSpaces, at)) {
    const auto end = std::min(text.find_first_of(kSpaces, at), text.size());
    if (!out.empty()) out += ' ';
    out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

inline std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) at += utf8_step(text, at).size;
  return count;
}

inline Utterance utterance_of_segment(const Json& segment, const std::filesystem::path& audio) {
  const JsonFields fields(segment);
  const double start = fields.seconds("start"), duration = fields.seconds("duration");
  if (start < 0) throw ManifestError(message("\"start\" is ", start, " s; it must not be negative"));
  if (duration < 0) throw ManifestError(message("\"duration\" is ", duration, " s; it must not be negative"));
  if (duration > 0 && !(start + duration > start))
    throw ManifestError(message("\"start\" is ", start, " s, too late for a duration of ", duration, " s"));
  return {.audio_filepath = audio,
          .text = on_one_line(fields.string("text")),
          .start = start,
          .end = start + duration,
          .language = language_of(fields)};
}

class TranscriptReader {
 public:
  TranscriptReader(const std::filesystem::path& path, const std::filesystem::path& audio,
                   const TranscriptOptions& options)
      : options_(options), audio_(audio), transcript_{.manifest = {.path = path}} {}

  [[nodiscard]] Transcript read() {
    find_audio();
    const std::string contents = read_file(path(), JsonLimits{}.max_bytes);
    std::string_view text = contents;
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    const Json segments = parse(text);
    const auto lines = ElementLines::of(text);
    for (std::size_t i = 0; i < lines.size(); ++i) take(lines[i], segments.at(i));
    return std::move(transcript_);
  }

 private:
  [[nodiscard]] const std::filesystem::path& path() const { return transcript_.manifest.path; }

  void find_audio() {
    try {
      audio_ = AudioFinder()(audio_, audio_.native());
    } catch (const ManifestError& error) {
      fail(error.what());
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ManifestError(path().string() + ": " + what);
  }

  [[nodiscard]] Json parse(std::string_view text) const {
    try {
      Json json = Json::parse(text);
      if (!json.is_array()) throw JsonError(message("expected a JSON array, found ", json.kind()));
      return json;
    } catch (const JsonError& error) {
      fail(error.what());
    }
  }

  /// Adds a segment's utterance, its drop, or its fault.
  void take(std::size_t line, const Json& segment) {
    try {
      auto utterance = utterance_of_segment(segment, audio_);
      if (options_.check) options_.check(utterance);
      const double seconds = segment.at("duration").as_number();  // end - start is rounded
      if (auto reason = why_dropped(utterance, seconds); !reason.empty())
        return transcript_.drops.push_back({line, std::move(reason)});
      transcript_.manifest.utterances.push_back(std::move(utterance));
      transcript_.manifest.lines.push_back(line);
    } catch (const Error& error) {
      if (options_.strict) throw ManifestError(message(path().string(), ":", line, ": ", error.what()));
      transcript_.manifest.faults.push_back({line, error.what()});
    }
  }

  [[nodiscard]] std::string why_dropped(const Utterance& utterance, double seconds) const {
    const auto characters = count_code_points(utterance.text);
    if (characters < options_.min_characters)
      return message("its text has ", characters, " characters, fewer than ", options_.min_characters);
    if (seconds < options_.min_seconds)
      return message("lasts ", seconds, " s, less than ", options_.min_seconds, " s");
    if (seconds == 0) return "lasts 0 s";  // no limit keeps it: there is nothing to read
    if (seconds > options_.max_seconds)
      return message("lasts ", seconds, " s, more than ", options_.max_seconds, " s");
    const double peak = options_.peak ? options_.peak(utterance) : options_.min_peak;
    return peak < options_.min_peak ? message("its peak is ", peak, ", less than ", options_.min_peak) : "";
  }

  const TranscriptOptions& options_;
  std::filesystem::path audio_;
  Transcript transcript_;
};

}  // namespace detail

inline std::string Transcript::describe_drops(std::size_t at_most) const {
  return detail::describe_lines(drops.size() == 1 ? "segment is dropped" : "segments are dropped",
                                manifest.path, drops, at_most);
}

inline Transcript read_transcript(const std::filesystem::path& path, const std::filesystem::path& audio,
                                  const TranscriptOptions& options) {
  return detail::TranscriptReader(path, audio, options).read();
}

inline std::filesystem::path recording_of(const std::filesystem::path& transcript) {
  EquivalentFiles files;
  for (const auto extension : kAudioExtensions) {
    std::string capitals(extension);
    for (char& letter : capitals)
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    for (const std::string_view spelling : {extension, std::string_view(capitals)}) {
      auto audio = transcript;
      audio.replace_extension(spelling);
      if (detail::is_file(audio)) return audio;
      if (const auto found = files.find(audio); found.size() == 1) return found.front();
    }
  }
  throw ManifestError(
      message(transcript.string(), ": no recording of this name ends in ", names_of_audio_extensions()));
}

}  // namespace looptorch
