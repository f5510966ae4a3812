// SPDX-License-Identifier: MIT
// Converts a transcript to the token ids that the decoder learns to write: prompt, text and end of text, and
// on request the segments' times and the previous text. As in OpenAI's training, a text begins with a space,
// which joins the first letters in one token. In Chinese, Japanese, Thai or Malayalam the space would be a
// token of its own, with which OpenAI's decoding never begins a text; such a text gets no space.
// (transformers adds no space in any language.)
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/text/trimmed.hpp>

#include "../decoding/decoding.hpp"
#include "../text/tokenizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

/// Returns the token ids of a transcript without white space at its ends. Throws TokenizerError for text that
/// is not UTF-8.
inline std::vector<std::int64_t> transcript_tokens(const Tokenizer& tokenizer, std::string_view text) {
  text = looptorch::trimmed(text);
  if (text.empty()) return {};
  auto ids = tokenizer.encode(" " + std::string(text));
  return ids.front() == tokenizer.encode(" ").front() ? tokenizer.encode(text) : ids;
}

/// Returns prompt, `text` and end of text. Throws looptorch::UsageError for a text with more tokens than the
/// model has positions, and for one without tokens unless allow_empty_texts was called. The message is a
/// sentence about "its text".
inline std::vector<std::int64_t> training_tokens(const Tokenizer& tokenizer, const DecodingOptions& decoding,
                                                 std::string_view text) {
  const auto ids = transcript_tokens(tokenizer, text);
  if (ids.empty() && !decoding.empty_texts) throw looptorch::UsageError("its text is blank");
  auto tokens = decoding.prompt;
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  tokens.push_back(decoding.end_of_text);
  if (static_cast<std::int64_t>(tokens.size()) <= decoding.max_length) return tokens;
  throw looptorch::UsageError(looptorch::message("its text has ", tokens.size(),
                                                 " tokens with prompt and end, more than the model's ",
                                                 decoding.max_length, " positions"));
}

/// A part of a clip's text, with its times in seconds from the clip's beginning.
struct SpokenSegment {
  std::string text;
  double begin = 0, end = 0;

  friend bool operator==(const SpokenSegment&, const SpokenSegment&) = default;
};

/// Returns the token of a time in a window, in steps of 0.02 s up to 30 s.
inline std::int64_t timestamp_token(const SpecialTokens& special, double seconds) {
  constexpr double kStep = 0.02;
  constexpr std::int64_t kLast = 1500;
  return special.first_timestamp() + std::clamp<std::int64_t>(std::llround(seconds / kStep), 0, kLast);
}

/// Returns a window's target as Whisper was trained on it: the prompt without "no timestamps", each segment
/// between its time tokens, the beginning of a segment that the window's end cuts off, if any, and the end of
/// text. May be longer than the model's positions. `decoding` must be without timestamps.
inline std::vector<std::int64_t> timed_tokens(const Tokenizer& tokenizer, const DecodingOptions& decoding,
                                              const std::vector<SpokenSegment>& segments,
                                              std::optional<double> cut_off = {}) {
  auto tokens = decoding.prompt;
  tokens.pop_back();
  for (const auto& segment : segments) {
    const auto ids = transcript_tokens(tokenizer, segment.text);
    tokens.push_back(timestamp_token(decoding.special, segment.begin));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(timestamp_token(decoding.special, segment.end));
  }
  if (cut_off) tokens.push_back(timestamp_token(decoding.special, *cut_off));
  tokens.push_back(decoding.end_of_text);
  return tokens;
}

/// Returns the tokens of the previous text that precede a target of `length` tokens: the special token, then
/// as many of the text's last tokens as decoding takes and the target leaves room for. Empty for a blank
/// text, a model without that special token, and if there is no room.
inline std::vector<std::int64_t> previous_tokens(const Tokenizer& tokenizer, const DecodingOptions& decoding,
                                                 std::string_view text, std::int64_t length) {
  const auto ids = transcript_tokens(tokenizer, text);
  const auto room = std::min(decoding.max_length / 2 - 1, decoding.max_length - length - 1);
  if (ids.empty() || decoding.special.previous < 0 || room < 1) return {};
  std::vector<std::int64_t> tokens{decoding.special.previous};
  tokens.insert(tokens.end(), ids.end() - std::min<std::int64_t>(room, std::ssize(ids)), ids.end());
  return tokens;
}

}  // namespace whisper
