// SPDX-License-Identifier: MIT
// Reads the ids of Whisper's special tokens, such as the end of text and the languages, from the tokenizer in
// a folder. Programs use them for ids that the folder's config.json or generation_config.json lacks.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "tokenizer_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace whisper {

/// Thrown for a tokenizer.json without a token that Whisper needs, or a CTranslate2 config.json with
/// malformed ids.
struct FolderError : looptorch::Error {
  using Error::Error;
};

/// Returns the tokens that a tokenizer.json adds to the learnt ones, as an object from token to id.
[[nodiscard]] inline looptorch::Json added_token_ids(const looptorch::Json& tokenizer) {
  auto ids = looptorch::Json::object();
  for (const auto& token : tokenizer.at("added_tokens").as_array()) {
    ids.set(token.at("content").as_string(), token.at("id").as_int());
  }
  return ids;
}

namespace detail {

inline std::int64_t special_id(const looptorch::Json& ids, const std::string& token) {
  if (!ids.contains(token)) throw FolderError("tokenizer.json lacks the token " + token);
  return ids.at(token).as_int();
}

/// Returns the ids of the language tokens, which lie between start of transcript and the first task.
inline looptorch::Json language_ids(const looptorch::Json& ids) {
  auto languages = looptorch::Json::object();
  const auto first = special_id(ids, "<|startoftranscript|>"), last = special_id(ids, "<|translate|>");
  for (const auto& [token, id] : ids.as_object()) {
    if (id.as_int() > first && id.as_int() < last) languages.set(token, id);
  }
  return languages;
}

inline looptorch::Json task_ids(const looptorch::Json& ids) {
  auto tasks = looptorch::Json::object();
  for (const std::string task : {"transcribe", "translate"})
    tasks.set(task, special_id(ids, "<|" + task + "|>"));
  return tasks;
}

/// True for the vocabularies of OpenAI's English-only models: they have 51864 tokens or, if a fine-tune added
/// tokens, end texts with 50256.
inline bool is_english_only(std::int64_t vocabulary, std::optional<std::int64_t> end_of_text) {
  constexpr std::int64_t kEnglishVocabulary = 51864, kEnglishEnd = 50256;
  return vocabulary == kEnglishVocabulary || end_of_text == kEnglishEnd;
}

/// True if a model was trained with tokens for languages. English-only vocabularies list such tokens, too.
inline bool is_multilingual(std::int64_t vocabulary, const looptorch::Json& ids) {
  if (is_english_only(vocabulary, special_id(ids, "<|endoftext|>"))) return false;
  return ids.contains("<|translate|>") && ids.contains("<|transcribe|>") &&
         !language_ids(ids).as_object().empty();
}

}  // namespace detail

/// The special tokens of a folder's tokenizer; none if the folder has no tokenizer.
class FolderTokens {
 public:
  explicit FolderTokens(const std::filesystem::path& folder) {
    const auto has = [&](const char* name) { return std::filesystem::exists(folder / name); };
    if (has("tokenizer.json"))
      tokenizer_ = looptorch::load_json(folder / "tokenizer.json");
    else if (has("vocab.json"))
      tokenizer_ = detail::tokenizer_json_of(folder);
    else
      return;
    for (const auto& [token, id] : vocabulary().as_object())
      if (detail::spells_special(token)) ids_.set(token, id);
    const auto added = added_token_ids(tokenizer_);
    for (const auto& [token, id] : added.as_object()) ids_.set(token, id);
  }

  /// Returns an object from token to id.
  [[nodiscard]] const looptorch::Json& ids() const { return ids_; }

  [[nodiscard]] std::optional<std::int64_t> id(const std::string& token) const {
    return ids_.contains(token) ? std::optional(ids_.at(token).as_int()) : std::nullopt;
  }

  /// True if a learnt token of this id spells text.
  [[nodiscard]] bool spells_text(std::int64_t id) const {
    if (tokenizer_.is_null()) return false;
    for (const auto& [token, its_id] : vocabulary().as_object())
      if (its_id.as_int() == id) return !token.empty() && !detail::spells_special(token);
    return false;
  }

 private:
  [[nodiscard]] const looptorch::Json& vocabulary() const { return tokenizer_.at("model").at("vocab"); }

  looptorch::Json tokenizer_, ids_ = looptorch::Json::object();
};

namespace detail {

/// Returns the first of the `listed` ids that cannot end a text, and why; empty if all can.
inline std::string wrong_end(const looptorch::Json& listed, const FolderTokens& tokens,
                             std::int64_t vocabulary) {
  for (const auto& id : listed.as_array()) {
    if (!id.is_int() || tokens.spells_text(id.as_int())) return id.dump() + " spells text";
    if (id.as_int() < 0 || id.as_int() >= vocabulary)
      return looptorch::message(id.dump(), " is outside the vocabulary of ", vocabulary);
  }
  return {};
}

}  // namespace detail

}  // namespace whisper
