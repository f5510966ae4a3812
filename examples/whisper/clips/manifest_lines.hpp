// SPDX-License-Identifier: MIT
// Remembers in which file and line each clip of a corpus is listed, so that a message about a clip can name
// its line. Also lists the lines that were skipped.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace whisper {

class ManifestLines {
 public:
  /// Adds the lines read from a file, and dropped segments.
  void add(const looptorch::Manifest& read, const std::vector<looptorch::ManifestFault>& drops = {}) {
    const auto name = read.path.string();
    for (const auto* faults : {&read.faults, &drops})
      for (const auto& [line, reason] : *faults)
        skipped_.push_back(looptorch::message(name, ":", line, ": ", reason));
    for (std::size_t i = 0; i < read.utterances.size(); ++i)
      lines_[read.utterances[i].audio_filepath.string()].push_back(
          {range_of(read.utterances[i]), files_.size(), read.lines[i]});
    files_.push_back(name);
  }

  /// Returns the skipped lines, each as FILE:LINE: REASON.
  [[nodiscard]] const std::vector<std::string>& skipped() const { return skipped_; }

  /// Returns the first line of a clip's fault, with the clip's place.
  [[nodiscard]] std::string placed(const std::string& fault, const looptorch::Utterance& clip) const {
    return fault.substr(0, fault.find('\n')) + (*this)(clip);
  }

  /// Returns the line of a clip, or the first of a window's, as " (FILE:LINE)" or " (FILE:LINE and 2 more)";
  /// empty for a clip that was not read.
  [[nodiscard]] std::string operator()(const looptorch::Utterance& clip) const {
    const auto found = lines_.find(clip.audio_filepath.string());
    if (found == lines_.end()) return {};
    const Range range = range_of(clip);
    auto lines = those(found->second, [&](const Range& line) { return line == range; });
    if (lines.empty())
      lines = those(found->second,
                    [&](const Range& line) { return line.begin < range.end && range.begin < line.end; });
    if (lines.empty()) return {};
    const auto place = looptorch::message(" (", files_[lines.front().file], ":", lines.front().number);
    return lines.size() == 1 ? place + ")" : looptorch::message(place, " and ", lines.size() - 1, " more)");
  }

 private:
  /// Seconds of a recording.
  struct Range {
    double begin, end;
    friend bool operator==(const Range&, const Range&) = default;
  };

  struct Line {
    Range range;
    std::size_t file, number;
  };

  [[nodiscard]] static Range range_of(const looptorch::Utterance& clip) {
    return {clip.start.value_or(0), clip.end.value_or(std::numeric_limits<double>::infinity())};
  }

  template <class Condition>
  [[nodiscard]] static std::vector<Line> those(const std::vector<Line>& lines, const Condition& condition) {
    std::vector<Line> chosen;
    for (const Line& line : lines)
      if (condition(line.range)) chosen.push_back(line);
    return chosen;
  }

  std::vector<std::string> files_, skipped_;
  std::map<std::string, std::vector<Line>> lines_;  // by recording
};

}  // namespace whisper
