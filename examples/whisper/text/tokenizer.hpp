// SPDX-License-Identifier: MIT
// The tokenizer of Whisper: byte-level BPE, as in GPT-2, read from a Hugging Face tokenizer.json. Converts
// text to token ids and back as the Python package `tokenizers` does. Loading Whisper's tokenizer takes some
// 50 ms, encoding 1 MB of text some 15 ms (tests/bench/run.sh tokenizer). A loaded tokenizer is immutable:
// any number of threads may use it.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/keyed_hash.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>

#include "byte_pair_encoding.hpp"
#include "gpt2_split.hpp"
#include "piece_table.hpp"
#include "tokenizer_file.hpp"

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

class Tokenizer {
 public:
  /// Makes a tokenizer from the contents of a tokenizer.json (`load_tokenizer` reads a file). Throws
  /// TokenizerError.
  explicit Tokenizer(const looptorch::Json& json);

  /// Returns the token ids of UTF-8 text, without those that a prompt adds. Special tokens that are written
  /// in the text, such as "<|endoftext|>", become their ids. Throws TokenizerError for bytes that are not
  /// UTF-8; after looptorch::replace_invalid_utf8 the result equals that of Python's
  /// `decode(errors="replace")`.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;

  /// Makes `encode` give each character, also a space, tokens of its own, so that no token stands for several
  /// characters.
  void spell_out() { spells_ = true; }

  /// Returns the text of token ids. Bytes that do not form a character, such as half a character at the end,
  /// become U+FFFD. Ids without a token are omitted, and so are special tokens if `skip_special`.
  [[nodiscard]] std::string decode(const std::vector<std::int64_t>& ids, bool skip_special = true) const;

  /// Returns the bytes of token ids, incomplete characters included.
  [[nodiscard]] std::string bytes_of(const std::vector<std::int64_t>& ids, bool skip_special = true) const;

  /// Returns the id of a token as the file spells it, for example "<|endoftext|>".
  [[nodiscard]] std::optional<std::int64_t> token_id(std::string_view token) const;

  /// Returns one more than the largest id.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  void read_vocabulary(const looptorch::Json& model);
  void read_merges(const looptorch::Json& model);
  void read_added_tokens(const looptorch::Json& json);
  void add_token(const std::string& token, std::int64_t id);
  [[nodiscard]] std::int64_t require_id(const std::string& token, const char* what) const;
  void list_whole_pieces();
  [[nodiscard]] std::size_t added_token_size(std::string_view text) const;
  void encode_plain(std::string_view text, std::vector<std::int64_t>& ids) const;
  void merge_piece(std::string_view piece, std::vector<std::int64_t>& ids) const;

  std::unordered_map<std::string, std::int64_t, looptorch::KeyedHash, std::equal_to<>> ids_;
  std::vector<std::string> bytes_;  ///< By id: the bytes that a token stands for; empty if there is none.
  std::array<std::int64_t, 256> byte_ids_{};
  MergeTable merges_;
  PieceTable whole_pieces_;
  std::array<bool, 256> begins_added_{};  ///< By byte: true if an added token begins with it.
  std::unordered_set<std::string, looptorch::KeyedHash, std::equal_to<>> added_;
  std::set<std::size_t, std::greater<>> added_sizes_;
  std::unordered_set<std::int64_t> special_;
  bool spells_ = false;
};

/// Reads a tokenizer.json. Throws looptorch::FileError, and TokenizerError that names the file.
[[nodiscard]] inline Tokenizer load_tokenizer(const std::filesystem::path& path) {
  try {
    return Tokenizer(looptorch::load_json(path));
  } catch (const looptorch::JsonError& error) {
    throw TokenizerError(error.what());
  } catch (const TokenizerError& error) {
    throw TokenizerError(path.string() + ": " + error.what());
  }
}

inline Tokenizer::Tokenizer(const looptorch::Json& json) {
  try {
    detail::check_tokenizer_kind(json);
    read_vocabulary(json.at("model"));
    read_merges(json.at("model"));
    list_whole_pieces();
    read_added_tokens(json);
  } catch (const looptorch::JsonError& error) {
    throw TokenizerError(error.what());
  }
}

inline void Tokenizer::add_token(const std::string& token, std::int64_t id) {
  if (id < 0 || id >= detail::kMaxTokens) {
    throw TokenizerError(looptorch::message("token \"", token, "\" has the id ", id));
  }
  if (id >= size()) bytes_.resize(static_cast<std::size_t>(id) + 1);
  bytes_[static_cast<std::size_t>(id)] = detail::spelled_bytes(token);
  ids_[token] = id;
}

inline std::int64_t Tokenizer::require_id(const std::string& token, const char* what) const {
  if (const auto id = token_id(token)) return *id;
  throw TokenizerError(looptorch::message("the vocabulary lacks \"", token, "\", ", what));
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
    merges_.add(left_id, right_id, {static_cast<std::int32_t>(rank), static_cast<std::int32_t>(merged_id)});
  }
}

/// Lists the tokens that merging makes of their own bytes: all except a few that an earlier merge prevents.
inline void Tokenizer::list_whole_pieces() {
  whole_pieces_ = PieceTable(ids_.size());
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < size(); ++id) {
    const auto& bytes = bytes_[static_cast<std::size_t>(id)];
    if (bytes.empty()) continue;
    ids.clear();
    merge_piece(bytes, ids);
    if (ids.size() == 1 && ids[0] == id) whole_pieces_.add(bytes, static_cast<std::int32_t>(id));
  }
}

inline void Tokenizer::read_added_tokens(const looptorch::Json& json) {
  for (const auto& entry : json.get("added_tokens", looptorch::Json::array()).as_array()) {
    const auto& token = entry.at("content").as_string();
    if (token.empty()) throw TokenizerError("an added token is empty");
    for (const auto* flag : {"single_word", "lstrip", "rstrip"}) {
      if (entry.get(flag, false) != false)
        throw TokenizerError("added token \"" + token + "\" is " + flag + ": " + detail::flag_meaning(flag) +
                             ", which this tokenizer does not do; set \"" + flag + "\" to false");
    }
    add_token(token, entry.at("id").as_int());
    added_.insert(token);
    added_sizes_.insert(token.size());
    begins_added_[static_cast<unsigned char>(token.front())] = true;
    if (entry.get("special", false).as_bool()) special_.insert(entry.at("id").as_int());
  }
}

inline std::optional<std::int64_t> Tokenizer::token_id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

/// Returns the size of the longest added token at the start of the text, or 0.
inline std::size_t Tokenizer::added_token_size(std::string_view text) const {
  if (!begins_added_[static_cast<unsigned char>(text.front())]) return 0;
  for (const auto size : added_sizes_) {
    if (size <= text.size() && added_.contains(text.substr(0, size))) return size;
  }
  return 0;
}

inline std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  if (const auto fault = looptorch::find_invalid_utf8(text); fault != std::string_view::npos) {
    throw TokenizerError(looptorch::message("text is not UTF-8 at byte ", fault));
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
  while (!text.empty()) {
    const auto piece = text.substr(0, spells_ ? looptorch::utf8_step(text, 0).size : gpt2_piece_size(text));
    if (const auto id = whole_pieces_.find(piece); id != PieceTable::kAbsent) {
      ids.push_back(id);
    } else {
      merge_piece(piece, ids);
    }
    text.remove_prefix(piece.size());
  }
}

inline void Tokenizer::merge_piece(std::string_view piece, std::vector<std::int64_t>& ids) const {
  const auto begin = ids.size();
  for (const char byte : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  merges_.apply(ids, begin);
}

inline std::string Tokenizer::bytes_of(const std::vector<std::int64_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const auto id : ids) {
    if (id < 0 || id >= size() || (skip_special && special_.contains(id))) continue;
    bytes += bytes_[static_cast<std::size_t>(id)];
  }
  return bytes;
}

inline std::string Tokenizer::decode(const std::vector<std::int64_t>& ids, bool skip_special) const {
  return looptorch::replace_invalid_utf8(bytes_of(ids, skip_special));
}

}  // namespace whisper
