// SPDX-License-Identifier: MIT
// Converts a transcript to the decoder's target ids: prompt, text, end of text. OpenAI trained Whisper on
// texts that begin with a blank, and its decoding never begins with the token of a blank alone. So the blank
// is kept if the vocabulary merges it with the first letter, as in English, and left out if it would stand
// alone, as in Chinese, Japanese, Thai or Malayalam. (transformers always leaves it out.)
#pragma once

#include <looptorch/base/error.hpp>

#include "decoding.hpp"
#include "tokenizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

/// Returns the token ids of a transcript without leading white space. Throws TokenizerError for text that is
/// not UTF-8.
inline std::vector<std::int64_t> transcript_tokens(const Tokenizer& tokenizer, std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin);
  auto ids = tokenizer.encode(" " + std::string(text));
  return ids.front() == tokenizer.encode(" ").front() ? tokenizer.encode(text) : ids;
}

/// Returns prompt, `text` and end of text. Throws looptorch::UsageError, a sentence about "its text", for one
/// without tokens and for one with more tokens than the model has positions.
inline std::vector<std::int64_t> training_tokens(const Tokenizer& tokenizer, const DecodingOptions& decoding,
                                                 std::string_view text) {
  const auto ids = transcript_tokens(tokenizer, text);
  if (ids.empty()) throw looptorch::UsageError("its text is blank");
  auto tokens = decoding.prompt;
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  tokens.push_back(decoding.end_of_text);
  if (static_cast<std::int64_t>(tokens.size()) <= decoding.max_length) return tokens;
  throw looptorch::UsageError(looptorch::message("its text has ", tokens.size(),
                                                 " tokens with prompt and end, more than the model's ",
                                                 decoding.max_length, " positions"));
}

}  // namespace whisper
