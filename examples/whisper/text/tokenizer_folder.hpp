// SPDX-License-Identifier: MIT
// Loads the tokenizer of a Hugging Face folder in either form: tokenizer.json, or vocab.json with merges.txt
// and files about the added tokens, as older versions of transformers write them.
#pragma once

#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>

#include "tokenizer.hpp"

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace whisper {

namespace detail {

/// Returns the merges of a merges.txt, without the line with its version.
inline looptorch::Json merges_of(std::string_view text) {
  auto merges = looptorch::Json::array();
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !(merges.as_array().empty() && line.starts_with("#version")))
      merges.push_back(std::string(line));
  }
  return merges;
}

/// True for "<|en|>", false for a timestamp such as "<|0.02|>".
inline bool spells_special(std::string_view token) {
  return token.starts_with("<|") && token.ends_with("|>") && token.size() > 4 &&
         !std::isdigit(static_cast<unsigned char>(token[2]));
}

/// Tokens added to the learnt ones, by id, as `added_tokens` of a tokenizer.json lists them.
using AddedTokens = std::map<std::int64_t, looptorch::Json>;

inline void add_token_id(AddedTokens& added, const std::string& token, std::int64_t id) {
  auto entry = looptorch::Json::object();
  added.emplace(id, entry.set("content", token).set("id", id).set("special", spells_special(token)));
}

/// Reads the added tokens of tokenizer_config.json, which describes them more fully than the other files.
inline void read_added_decoder(const looptorch::Json& config, AddedTokens& added) {
  for (const auto& [id, token] : config.get("added_tokens_decoder", looptorch::Json::object()).as_object()) {
    auto entry = token;
    entry.set("id", looptorch::Json::parse(id).as_int());
    added.emplace(entry.at("id").as_int(), std::move(entry));
  }
}

/// Returns the folder's tokenizer as a tokenizer.json.
inline looptorch::Json tokenizer_json_of(const std::filesystem::path& folder) {
  using looptorch::Json;
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name); };
  const auto vocabulary = looptorch::load_json(folder / "vocab.json");
  AddedTokens added;
  if (has("tokenizer_config.json"))
    read_added_decoder(looptorch::load_json(folder / "tokenizer_config.json"), added);
  if (has("added_tokens.json")) {
    const auto tokens = looptorch::load_json(folder / "added_tokens.json");
    for (const auto& [token, id] : tokens.as_object()) add_token_id(added, token, id.as_int());
  }
  if (vocabulary.contains("<|endoftext|>"))
    add_token_id(added, "<|endoftext|>", vocabulary.at("<|endoftext|>").as_int());

  auto tokens = Json::array();
  for (auto& [id, entry] : added) tokens.push_back(std::move(entry));
  auto splitter = Json::object(), model = Json::object(), json = Json::object();
  splitter.set("type", "ByteLevel").set("add_prefix_space", false);
  model.set("vocab", vocabulary).set("merges", merges_of(looptorch::read_file(folder / "merges.txt")));
  return json.set("pre_tokenizer", splitter).set("model", model).set("added_tokens", tokens);
}

}  // namespace detail

/// Reads the tokenizer of a Hugging Face folder: tokenizer.json, or else vocab.json and merges.txt. Throws
/// looptorch::FileError, and TokenizerError that names file or folder.
[[nodiscard]] inline Tokenizer load_folder_tokenizer(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "tokenizer.json")) return load_tokenizer(folder / "tokenizer.json");
  if (!std::filesystem::exists(folder / "vocab.json"))
    throw TokenizerError(
        folder.string() +
        ": holds neither tokenizer.json nor vocab.json with merges.txt. Checkpoints of a training lack them: copy tokenizer.json, "
        "tokenizer_config.json, generation_config.json and preprocessor_config.json there from the model that it began with");
  try {
    return Tokenizer(detail::tokenizer_json_of(folder));
  } catch (const looptorch::JsonError& error) {
    throw TokenizerError(error.what());
  } catch (const TokenizerError& error) {
    throw TokenizerError(folder.string() + ": " + error.what());
  }
}

}  // namespace whisper
