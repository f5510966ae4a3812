// SPDX-License-Identifier: MIT
// Writes transcripts as files, one for each recording and format. A file appears whole or not at all.
#pragma once

#include <looptorch/app/run/output_files.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>

#include "segments.hpp"
#include "subtitle_lines.hpp"
#include "transcript_texts.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// Writes transcripts: a file for each recording and format.
class TranscriptFiles {
 public:
  /// Makes the folder. `format` is in kTranscriptFormats, or "all". Throws CommandLineError without a folder.
  TranscriptFiles(std::filesystem::path folder, std::string_view format, SubtitleOptions options)
      : folder_(std::move(folder)), options_(options) {
    for (const auto known : kTranscriptFormats)
      if (format == known || format == "all") formats_.emplace_back(known);
    looptorch::app::create_output_folder("output-dir", folder_);
  }

  /// Throws UsageError if two recordings have the same name without folder and extension: the files of one
  /// would replace the other's.
  static void require_distinct(const std::vector<std::string>& recordings) {
    std::map<std::string, std::string> known;
    for (const auto& recording : recordings) {
      const auto [other, is_new] = known.emplace(stem_of(recording), recording);
      if (!is_new)
        throw looptorch::UsageError(looptorch::message(
            other->second, " and ", recording, " would be written to the same files: ", other->first, ".*"));
    }
  }

  [[nodiscard]] const std::vector<std::string>& formats() const { return formats_; }
  [[nodiscard]] const SubtitleOptions& options() const { return options_; }

  /// Returns the path of a recording's transcript.
  [[nodiscard]] std::filesystem::path path_of(const std::string& recording, const std::string& format) const {
    return folder_ / (stem_of(recording) + "." + format);
  }

  /// Writes the files of a recording, and returns their paths. Throws looptorch::FileError.
  std::vector<std::filesystem::path> write(const std::string& recording,
                                           const Transcription& transcription) const {
    std::vector<std::filesystem::path> written;
    for (const auto& format : formats_) {
      written.push_back(path_of(recording, format));
      looptorch::write_file_atomically(written.back(), format == "json"
                                                           ? json_of(transcription)
                                                           : text_of(format, transcription, options_));
    }
    return written;
  }

 private:
  static std::string stem_of(const std::string& recording) {
    return recording == "-" ? "stdin" : std::filesystem::path(recording).stem().string();
  }

  std::filesystem::path folder_;
  SubtitleOptions options_;
  std::vector<std::string> formats_;
};

}  // namespace whisper
