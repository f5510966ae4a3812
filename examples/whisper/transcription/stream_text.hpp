// SPDX-License-Identifier: MIT
// Gives a stream's text in pieces, one for each window. Joined, the pieces equal the text of the whole
// stream, although a window may end within a character.
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include "../decoding/recognizer.hpp"
#include "../text/python_text.hpp"
#include "segments.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// The segments and text that one window adds to a stream's transcript.
struct StreamPart {
  std::string name;  ///< Name of the stream.
  std::vector<Segment> segments{};
  std::string text{};  ///< The text since the end of the previous part, as in Transcription.
  std::string language{};
  bool has_words = false;
  bool is_last = false;
};

/// Joins the texts of segments. A character may be split between two of them.
class SegmentTexts {
 public:
  /// Keeps a reference to the recognizer.
  explicit SegmentTexts(const Recognizer& recognizer) : split_(recognizer.tokenizer, recognizer.decoding) {}

  /// Returns the text that these segments complete.
  [[nodiscard]] std::string add(const std::vector<Segment>& segments) {
    for (const auto& segment : segments) bytes_ += split_.bytes_of(segment.tokens);
    const auto whole = detail::whole_characters(bytes_).size();
    auto text = looptorch::replace_invalid_utf8(std::string_view(bytes_).substr(0, whole));
    bytes_.erase(0, whole);
    return text;
  }

  /// Returns the rest of the text: U+FFFD if a character is incomplete.
  [[nodiscard]] std::string finish() { return looptorch::replace_invalid_utf8(std::exchange(bytes_, {})); }

 private:
  SegmentSplitter split_;
  std::string bytes_;
};

/// A text that is shown as it grows, without the white space at its ends.
class ShownText {
 public:
  /// Returns the part of `text` that can be shown now; white space at its end waits for more text.
  [[nodiscard]] std::string add(std::string_view text) {
    hidden_ += text;
    const auto words = stripped(hidden_);
    if (words.empty()) return {};
    const auto begin = static_cast<std::size_t>(words.data() - hidden_.data()), end = begin + words.size();
    auto shown = hidden_.substr(begins_ ? begin : 0, end - (begins_ ? begin : 0));
    hidden_.erase(0, end);
    begins_ = false;
    return shown;
  }

 private:
  std::string hidden_;
  bool begins_ = true;
};

}  // namespace whisper
