// SPDX-License-Identifier: MIT
// Splits a text's tokens into words as openai-whisper does: at spaces and punctuation or, in scripts without
// spaces, where tokens make whole characters.
#pragma once

#include <looptorch/base/text/utf8.hpp>

#include "../text/python_text.hpp"
#include "../text/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// A word and its tokens.
struct WordTokens {
  std::string text;
  std::vector<std::int64_t> tokens;
};

namespace detail {

inline constexpr char32_t kReplacement = U'\uFFFD';

/// Returns the characters of bytes, U+FFFD for each fault.
inline std::u32string characters_of(std::string_view bytes) {
  std::u32string characters;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto step = looptorch::utf8_step(bytes, at);
    characters += step.code_point;
    at += step.size;
  }
  return characters;
}

/// True for a substring of ASCII's punctuation, such as a single sign, and for spaces alone.
inline bool is_punctuation(std::string_view text) {
  constexpr std::string_view kSigns = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
  return kSigns.find(stripped(text)) != std::string_view::npos;
}

}  // namespace detail

/// Splits wherever tokens make whole characters.
inline std::vector<WordTokens> split_at_characters(const Tokenizer& tokenizer,
                                                   const std::vector<std::int64_t>& tokens) {
  const auto whole = detail::characters_of(tokenizer.bytes_of(tokens, /*skip_special=*/false));
  std::vector<WordTokens> words;
  std::vector<std::int64_t> pending;
  std::size_t done = 0;  // characters of `whole`
  for (const auto token : tokens) {
    pending.push_back(token);
    const auto bytes = tokenizer.bytes_of(pending, /*skip_special=*/false);
    const auto characters = detail::characters_of(bytes);
    const auto fault = characters.find(detail::kReplacement);
    // A fault that the whole text has too needs no more tokens.
    const bool is_whole = fault == std::u32string::npos ||
                          (done + fault < whole.size() && whole[done + fault] == detail::kReplacement);
    if (!is_whole) continue;
    words.push_back({looptorch::replace_invalid_utf8(bytes), std::move(pending)});
    pending.clear();
    done += characters.size();
  }
  return words;
}

/// Splits at spaces and around punctuation. Tokens from `first_special` on are words of their own.
inline std::vector<WordTokens> split_at_spaces(const Tokenizer& tokenizer,
                                               const std::vector<std::int64_t>& tokens,
                                               std::int64_t first_special) {
  std::vector<WordTokens> words;
  for (auto& part : split_at_characters(tokenizer, tokens)) {
    const bool is_special = part.tokens.front() >= first_special;
    if (words.empty() || is_special || part.text.starts_with(' ') || detail::is_punctuation(part.text)) {
      words.push_back(std::move(part));
      continue;
    }
    auto& word = words.back();
    word.text += part.text;
    word.tokens.insert(word.tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  return words;
}

/// Returns the words of a text in `language`, a code as "en".
inline std::vector<WordTokens> split_words(const Tokenizer& tokenizer,
                                           const std::vector<std::int64_t>& tokens, std::string_view language,
                                           std::int64_t first_special) {
  constexpr std::array<std::string_view, 6> kWithoutSpaces{"zh", "ja", "th", "lo", "my", "yue"};
  if (std::find(kWithoutSpaces.begin(), kWithoutSpaces.end(), language) != kWithoutSpaces.end())
    return split_at_characters(tokenizer, tokens);
  return split_at_spaces(tokenizer, tokens, first_special);
}

}  // namespace whisper
