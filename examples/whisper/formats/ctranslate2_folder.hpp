// SPDX-License-Identifier: MIT
// Makes the files that CTranslate2 and faster-whisper read beside model.bin: config.json, vocabulary.json,
// tokenizer.json and preprocessor_config.json. Takes their contents from a Hugging Face folder.
#pragma once

#include <looptorch/base/json/json.hpp>

#include "../model/config.hpp"
#include "../text/tokenizer_folder.hpp"
#include "huggingface_folder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Returns the tokenizer.json of a Hugging Face folder, or makes one of vocab.json, merges.txt and the files
/// about added tokens. Throws looptorch::FileError and looptorch::JsonError.
[[nodiscard]] inline looptorch::Json load_tokenizer_json(const std::filesystem::path& folder) {
  using looptorch::Json;
  const auto file = folder / "tokenizer.json";
  if (std::filesystem::exists(file)) return looptorch::load_json(file);
  auto json = detail::tokenizer_json_of(folder);
  auto pre_tokenizer = Json::object(), decoder = Json::object(), model = Json::object();
  pre_tokenizer.set("type", "ByteLevel").set("add_prefix_space", false).set("trim_offsets", true);
  decoder.set("type", "ByteLevel").set("add_prefix_space", true).set("trim_offsets", true);
  model.set("type", "BPE").set("vocab", json["model"]["vocab"]).set("merges", json["model"]["merges"]);
  auto added = Json::array();
  for (auto token : json["added_tokens"].as_array()) {
    for (const auto* flag : {"single_word", "lstrip", "rstrip", "normalized"})
      token.set(flag, token.get(flag, false));
    added.push_back(std::move(token));
  }
  auto whole = Json::object();
  whole.set("version", "1.0").set("truncation", nullptr).set("padding", nullptr);
  whole.set("added_tokens", added).set("normalizer", nullptr).set("pre_tokenizer", pre_tokenizer);
  return whole.set("post_processor", nullptr).set("decoder", decoder).set("model", model);
}

/// Returns vocabulary.json: the token of each id below `size`, as in tokenizer.json. Missing ids at the end
/// are timestamps. Throws FolderError for an id that is missing before them.
[[nodiscard]] inline looptorch::Json ctranslate2_vocabulary(const looptorch::Json& tokenizer,
                                                            std::int64_t size) {
  std::vector<std::string> tokens(static_cast<std::size_t>(size));
  std::vector<bool> known(tokens.size());
  const auto put = [&](const std::string& token, std::int64_t id) {
    if (id < 0 || id >= size)
      throw FolderError(looptorch::message("token \"", token, "\" has the id ", id,
                                           ", outside the model's vocabulary of ", size));
    tokens[static_cast<std::size_t>(id)] = token;
    known[static_cast<std::size_t>(id)] = true;
  };
  for (const auto& [token, id] : tokenizer.at("model").at("vocab").as_object()) put(token, id.as_int());
  for (const auto& token : tokenizer.at("added_tokens").as_array())
    put(token.at("content").as_string(), token.at("id").as_int());
  const auto times = std::find(known.begin(), known.end(), false);
  if (std::find(times, known.end(), true) != known.end())
    throw FolderError(looptorch::message("no token has the id ", times - known.begin()));
  auto list = looptorch::Json::array();
  for (auto token = tokens.begin(); token != tokens.end(); ++token) {
    const auto step = token - tokens.begin() - (times - known.begin());
    if (step >= 0) {
      char text[32];
      const auto hundredths = 2 * static_cast<long long>(step);
      std::snprintf(text, sizeof text, "<|%lld.%02lld|>", hundredths / 100, hundredths % 100);
      *token = text;
    }
    list.push_back(*token);
  }
  return list;
}

namespace detail {

/// Returns all heads of the later half of the decoder's layers, CTranslate2's default for a model with
/// unknown alignment heads.
inline looptorch::Json default_alignment_heads(const WhisperConfig& config) {
  auto heads = looptorch::Json::array();
  for (auto layer = config.decoder_layers / 2; layer < config.decoder_layers; ++layer)
    for (std::int64_t head = 0; head < config.decoder_attention_heads; ++head)
      heads.push_back(looptorch::Json::array({layer, head}));
  return heads;
}

inline looptorch::Json sorted_ids(const looptorch::Json& ids) {
  std::vector<std::int64_t> sorted;
  for (const auto& [token, id] : ids.as_object()) sorted.push_back(id.as_int());
  std::sort(sorted.begin(), sorted.end());
  return looptorch::Json::array(sorted);
}

}  // namespace detail

/// Returns CTranslate2's config.json; `generation` is generation_config.json.
[[nodiscard]] inline looptorch::Json ctranslate2_config(const WhisperConfig& config,
                                                        const looptorch::Json& generation,
                                                        const looptorch::Json& tokenizer) {
  const auto list = [&](const char* field) {
    const auto ids = generation.get(field, nullptr);
    return ids.is_null() ? looptorch::Json::array() : ids;
  };
  auto json = looptorch::Json::object();
  const auto heads = generation.get("alignment_heads", nullptr);
  json.set("alignment_heads", heads.is_null() ? detail::default_alignment_heads(config) : heads);
  json.set("lang_ids", detail::sorted_ids(generation.contains("lang_to_id")
                                              ? generation["lang_to_id"]
                                              : detail::language_ids(added_token_ids(tokenizer))));
  return json.set("suppress_ids", list("suppress_tokens"))
      .set("suppress_ids_begin", list("begin_suppress_tokens"));
}

}  // namespace whisper
