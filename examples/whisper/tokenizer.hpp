// SPDX-License-Identifier: MIT
// Byte-level BPE, as GPT-2 and Whisper use it, from a Hugging Face tokenizer.json: text to token ids and
// back, equal to the Python package `tokenizers`. Loading Whisper's takes some 50 ms; a loaded tokenizer is
// immutable and may be used by any number of threads.
#pragma once

#include <looptorch/error.hpp>
#include <looptorch/state/json.hpp>
#include <looptorch/state/utf8.hpp>

#include "byte_pair_encoding.hpp"
#include "gpt2_split.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace whisper {

/// A tokenizer.json of another kind, or text that is not UTF-8 (with the offset of its first wrong byte).
struct TokenizerError : looptorch::Error {
  using Error::Error;
};

class Tokenizer {
 public:
  /// From the contents of a tokenizer.json; throws TokenizerError. `load_tokenizer` reads a file.
  explicit Tokenizer(const looptorch::Json& json);

  /// Token ids of UTF-8 text, without any that a prompt adds; throws TokenizerError. Special tokens that are
  /// spelled out in the text, such as "<|endoftext|>", become their ids.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;

  /// Text of token ids. Bytes that do not make up a character, as half a character at the end, become U+FFFD;
  /// ids without a token are left out, as are special tokens if `skip_special`.
  [[nodiscard]] std::string decode(const std::vector<std::int64_t>& ids, bool skip_special = true) const;

  /// Id of a token as the file spells it, "<|endoftext|>" for example.
  [[nodiscard]] std::optional<std::int64_t> token_id(std::string_view token) const;

  /// One more than the largest id.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  void read_vocabulary(const looptorch::Json& model);
  void read_merges(const looptorch::Json& model);
  void read_added_tokens(const looptorch::Json& json);
  void add_token(const std::string& token, std::int64_t id);
  [[nodiscard]] std::int64_t require_id(const std::string& token, const char* what) const;
  [[nodiscard]] std::size_t added_token_size(std::string_view text) const;
  void encode_plain(std::string_view text, std::vector<std::int64_t>& ids) const;

  std::unordered_map<std::string, std::int64_t> ids_;
  std::vector<std::optional<std::string>> bytes_;  ///< By id: the bytes that a token stands for.
  std::array<std::int64_t, 256> byte_ids_{};
  MergeTable merges_;
  std::unordered_set<std::string> added_;
  std::set<std::size_t, std::greater<>> added_sizes_;
  std::unordered_set<std::int64_t> special_;
};

/// Reads a tokenizer.json; throws looptorch::FileError, and TokenizerError that names the file.
[[nodiscard]] inline Tokenizer load_tokenizer(const std::filesystem::path& path) {
  try {
    return Tokenizer(looptorch::load_json(path));
  } catch (const looptorch::JsonError& error) {
    throw TokenizerError(error.what());
  } catch (const TokenizerError& error) {
    throw TokenizerError(path.string() + ": " + error.what());
  }
}

namespace detail {

inline constexpr std::int64_t kMaxTokens = 1 << 24;

/// GPT-2's alphabet: the character that stands for each byte. Printable Latin-1 stands for itself, the other
/// bytes are numbered from U+0100 on.
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

/// The bytes that a token spells in GPT-2's alphabet; a token with other characters stands for itself.
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

/// Refuses what would make `tokenizers` split or join otherwise than this class does.
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

/// The two tokens of a merge, which older files write as "a b" and newer ones as ["a", "b"].
[[nodiscard]] inline std::pair<std::string, std::string> merge_parts(const looptorch::Json& merge) {
  if (merge.is_array()) return {merge.at(0).as_string(), merge.at(1).as_string()};
  const auto& text = merge.as_string();
  const auto space = text.find(' ');
  if (space == std::string::npos) throw TokenizerError("merge \"" + text + "\" is not of two tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace detail

inline Tokenizer::Tokenizer(const looptorch::Json& json) {
  try {
    detail::check_tokenizer_kind(json);
    read_vocabulary(json.at("model"));
    read_merges(json.at("model"));
    read_added_tokens(json);
  } catch (const looptorch::JsonError& error) {
    throw TokenizerError(error.what());
  }
}

inline void Tokenizer::add_token(const std::string& token, std::int64_t id) {
  if (id < 0 || id >= detail::kMaxTokens) {
    throw TokenizerError(looptorch::detail::message("token \"", token, "\" has the id ", id));
  }
  if (id >= size()) bytes_.resize(static_cast<std::size_t>(id) + 1);
  bytes_[static_cast<std::size_t>(id)] = detail::spelled_bytes(token);
  ids_[token] = id;
}

inline std::int64_t Tokenizer::require_id(const std::string& token, const char* what) const {
  if (const auto id = token_id(token)) return *id;
  throw TokenizerError(looptorch::detail::message("the vocabulary lacks \"", token, "\", ", what));
}

inline void Tokenizer::read_vocabulary(const looptorch::Json& model) {
  const auto& vocabulary = model.at("vocab").as_object();
  ids_.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary) add_token(token, id.as_int());
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = require_id(detail::byte_token(byte), "which stands for a byte");
  }
}

inline void Tokenizer::read_merges(const looptorch::Json& model) {
  const auto& merges = model.at("merges").as_array();
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = detail::merge_parts(merges[rank]);
    const auto left_id = require_id(left, "part of a merge"), right_id = require_id(right, "part of a merge");
    const auto merged_id = require_id(left + right, "result of a merge");
    merges_.add(left_id, right_id, {static_cast<std::int64_t>(rank), merged_id});
  }
}

inline void Tokenizer::read_added_tokens(const looptorch::Json& json) {
  for (const auto& entry : json.get("added_tokens", looptorch::Json::array()).as_array()) {
    const auto& token = entry.at("content").as_string();
    if (token.empty()) throw TokenizerError("an added token is empty");
    for (const auto* flag : {"single_word", "lstrip", "rstrip"}) {
      if (entry.get(flag, false) != false) throw TokenizerError("added token \"" + token + "\" is " + flag);
    }
    add_token(token, entry.at("id").as_int());
    added_.insert(token);
    added_sizes_.insert(token.size());
    if (entry.get("special", false).as_bool()) special_.insert(entry.at("id").as_int());
  }
}

inline std::optional<std::int64_t> Tokenizer::token_id(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

/// Size of the longest added token at the start of the text, or 0.
inline std::size_t Tokenizer::added_token_size(std::string_view text) const {
  for (const auto size : added_sizes_) {
    if (size <= text.size() && added_.contains(std::string(text.substr(0, size)))) return size;
  }
  return 0;
}

inline std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  if (const auto fault = looptorch::find_invalid_utf8(text); fault != std::string_view::npos) {
    throw TokenizerError(looptorch::detail::message("text is not UTF-8 at byte ", fault));
  }
  std::vector<std::int64_t> ids;
  std::size_t plain = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto size = added_token_size(text.substr(at));
    if (size > 0) {
      encode_plain(text.substr(plain, at - plain), ids);
      ids.push_back(*token_id(text.substr(at, size)));
      plain = at + size;
    }
    at += std::max<std::size_t>(size, 1);
  }
  encode_plain(text.substr(plain), ids);
  return ids;
}

inline void Tokenizer::encode_plain(std::string_view text, std::vector<std::int64_t>& ids) const {
  std::vector<std::int64_t> piece;
  while (!text.empty()) {
    const auto size = gpt2_piece_size(text);
    piece.clear();
    for (const char byte : text.substr(0, size)) piece.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    merges_.apply(piece);
    ids.insert(ids.end(), piece.begin(), piece.end());
    text.remove_prefix(size);
  }
}

inline std::string Tokenizer::decode(const std::vector<std::int64_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const auto id : ids) {
    if (id < 0 || id >= size() || (skip_special && special_.contains(id))) continue;
    bytes += bytes_[static_cast<std::size_t>(id)].value_or("");
  }
  return looptorch::replace_invalid_utf8(bytes);
}

}  // namespace whisper
