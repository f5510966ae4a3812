// SPDX-License-Identifier: MIT
// Writes a transcript's files while it grows, in little memory. TXT, SRT, VTT and TSV files are complete
// after each window, however the process ends. JSON has its text before its segments, so it is written when
// the stream has ended.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>

#include "../audio/unnamed_file.hpp"
#include "../text/python_text.hpp"
#include "stream_text.hpp"
#include "transcript_files.hpp"
#include "transcript_texts.hpp"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// A file of a format that grows.
class GrowingText {
 public:
  /// Replaces an older file. Throws looptorch::FileError.
  GrowingText(std::filesystem::path path, std::string_view format, const SubtitleOptions& options,
              bool has_words)
      : path_(std::move(path)), text_(format, options, has_words), file_(path_, std::ios::trunc) {
    write(text_.begin());
  }

  void add(const StreamPart& part) {
    std::string text;
    for (const auto& segment : part.segments) text += text_.add(segment);
    if (part.is_last) text += text_.finish();
    write(text);
  }

 private:
  void write(const std::string& text) {
    if (!file_.is_open()) throw detail::system_error(path_.string(), "cannot create");
    if (!(file_ << text << std::flush)) throw detail::system_error(path_.string(), "cannot write");
  }

  std::filesystem::path path_;
  TranscriptText text_;
  std::ofstream file_;
};

/// A JSON file, kept in temporary files until its end is known.
class GrowingJson {
 public:
  explicit GrowingJson(std::filesystem::path path) : path_(std::move(path)) {}

  /// Throws looptorch::FileError.
  void add(const StreamPart& part) {
    const auto quoted = ascii_json(part.text);
    text_.write(std::string_view(quoted).substr(1, quoted.size() - 2));
    for (const auto& segment : part.segments) {
      segments_.write((count_ == 0 ? "" : ", ") + detail::json_of(segment, count_, part.has_words));
      ++count_;
    }
    if (part.is_last) finish(part.language);
  }

 private:
  void finish(const std::string& language) const {
    looptorch::AtomicFile file(path_);
    const auto copy = [&](std::string_view block) { file.write(block); };
    file.write("{\"text\": \"");
    text_.read(copy);
    file.write("\", \"segments\": [");
    segments_.read(copy);
    file.write("], \"language\": " + ascii_json(language) + "}");
    file.commit();
  }

  std::filesystem::path path_;
  UnnamedFile text_, segments_;
  std::size_t count_ = 0;
};

/// The files of one stream's transcript.
class GrowingFiles {
 public:
  /// Creates the files of formats that grow. Throws looptorch::FileError.
  GrowingFiles(const TranscriptFiles& files, const std::string& name, bool has_words) {
    for (const auto& format : files.formats()) {
      paths_.push_back(files.path_of(name, format));
      if (format == "json")
        json_.emplace(paths_.back());
      else
        texts_.emplace_back(paths_.back(), format, files.options(), has_words);
    }
  }

  /// Throws looptorch::FileError.
  void add(const StreamPart& part) {
    for (auto& text : texts_) text.add(part);
    if (json_) json_->add(part);
  }

  [[nodiscard]] const std::vector<std::filesystem::path>& paths() const { return paths_; }

 private:
  std::vector<std::filesystem::path> paths_;
  std::vector<GrowingText> texts_;
  std::optional<GrowingJson> json_{};
};

}  // namespace whisper
