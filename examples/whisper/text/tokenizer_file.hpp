// SPDX-License-Identifier: MIT
// Reads the tokens and merges of a Hugging Face tokenizer.json, and refuses unsupported kinds of tokenizer.
// Include tokenizer.hpp instead.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace whisper {

/// Thrown for a tokenizer.json of another kind, and for text that is not UTF-8 (with the offset of its first
/// wrong byte).
struct TokenizerError : looptorch::Error {
  using Error::Error;
};

namespace detail {

/// The limit on ids, so that a file cannot claim memory for tokens that it does not have: four times the
/// largest vocabulary in use.
inline constexpr std::int64_t kMaxTokens = 1 << 20;

/// Returns GPT-2's alphabet: the character that stands for each byte. Printable Latin-1 characters stand for
/// themselves; the other bytes are numbered from U+0100 on.
[[nodiscard]] inline const std::array<char32_t, 256>& byte_alphabet() {
  static const auto kAlphabet = [] {
    std::array<char32_t, 256> alphabet;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      alphabet[byte] = is_printable ? byte : next++;
    }
    return alphabet;
  }();
  return kAlphabet;
}

[[nodiscard]] inline std::string byte_token(std::size_t byte) {
  std::string token;
  looptorch::append_utf8(token, byte_alphabet()[byte]);
  return token;
}

/// Returns the bytes that a token spells in GPT-2's alphabet; a token with other characters stands for
/// itself.
[[nodiscard]] inline std::string spelled_bytes(const std::string& token) {
  static const auto kBytes = [] {
    std::unordered_map<char32_t, char> bytes;
    for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte_alphabet()[byte]] = static_cast<char>(byte);
    return bytes;
  }();
  std::string out;
  for (std::size_t at = 0; at < token.size();) {
    const auto step = looptorch::utf8_step(token, at);
    const auto byte = kBytes.find(step.code_point);
    if (byte == kBytes.end()) return token;
    out += byte->second;
    at += step.size;
  }
  return out;
}

/// Throws TokenizerError for settings that would make `tokenizers` split or join differently.
inline void check_tokenizer_kind(const looptorch::Json& json) {
  const auto refuse = [](const std::string& what) { throw TokenizerError("not a GPT-2 tokenizer: " + what); };
  if (!json.get("normalizer", nullptr).is_null()) refuse("it has a normalizer");
  const auto splitter = json.get("pre_tokenizer", nullptr);
  if (!splitter.is_object() || splitter.get("type", "") != "ByteLevel") {
    refuse("its pre_tokenizer is not ByteLevel");
  }
  if (splitter.get("add_prefix_space", true) != false) refuse("its pre_tokenizer adds a space");
  if (splitter.get("use_regex", true) != true) refuse("its pre_tokenizer does not split");
  const auto& model = json.at("model");
  if (model.get("type", "BPE") != "BPE") refuse("its model is not BPE");
  for (const auto* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto text = model.get(affix, nullptr);
    if (!text.is_null() && text != "") refuse(std::string("its model has a ") + affix);
  }
  for (const auto* flag : {"byte_fallback", "ignore_merges"}) {
    if (model.get(flag, false) != false) refuse(std::string("its model has ") + flag);
  }
}

/// Returns the effect of an added token's flag.
[[nodiscard]] inline std::string flag_meaning(std::string_view flag) {
  if (flag == "single_word") return "it is not found within a word";
  return flag == "lstrip" ? "it takes away the blanks before it" : "it takes away the blanks after it";
}

/// Returns the two tokens of a merge, which older files write as "a b" and newer ones as ["a", "b"].
[[nodiscard]] inline std::pair<std::string, std::string> merge_parts(const looptorch::Json& merge) {
  if (merge.is_array()) return {merge.at(0).as_string(), merge.at(1).as_string()};
  const auto& text = merge.as_string();
  const auto space = text.find(' ');
  if (space == std::string::npos) throw TokenizerError("merge \"" + text + "\" is not of two tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace detail

}  // namespace whisper
