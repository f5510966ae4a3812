// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../reference.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/formats/ctranslate2_folder.hpp>

using Catch::Contains;
using looptorch::Json;
using whisper::ctranslate2_config;
using whisper::ctranslate2_vocabulary;

namespace {

Json two_languages() {
  return Json::parse(R"({"model": {"vocab": {"a": 0, "Ġb": 1}}, "added_tokens": [
    {"content": "<|startoftranscript|>", "id": 2}, {"content": "<|en|>", "id": 4}, {"content": "<|mr|>", "id": 3},
    {"content": "<|translate|>", "id": 5}]})");
}

}  // namespace

TEST_CASE("CTranslate2 folder: the vocabulary lists tokens by id, then timestamps") {
  CHECK(ctranslate2_vocabulary(two_languages(), 9) ==
        Json::parse(R"(["a", "Ġb", "<|startoftranscript|>", "<|mr|>", "<|en|>", "<|translate|>", "<|0.00|>",
                        "<|0.02|>", "<|0.04|>"])"));
  CHECK_THROWS_WITH(ctranslate2_vocabulary(two_languages(), 5),
                    Contains("token \"<|translate|>\" has the id 5, outside the model's vocabulary of 5"));
  auto gap = two_languages();
  gap.set("model", Json::object().set("vocab", Json::object().set("a", 0)));
  CHECK_THROWS_AS(ctranslate2_vocabulary(gap, 9), whisper::FolderError);
  CHECK_THROWS_WITH(ctranslate2_vocabulary(gap, 9), Contains("no token has the id 1"));
}

TEST_CASE(
    "CTranslate2 folder: config.json has what generation_config.json has, or the converter's defaults") {
  const auto given = Json::parse(R"({"alignment_heads": [[3, 1]], "lang_to_id": {"<|mr|>": 9, "<|en|>": 7},
                                     "suppress_tokens": [1, 2], "begin_suppress_tokens": [220]})");
  const whisper::WhisperConfig config{.decoder_layers = 3, .decoder_attention_heads = 2};
  CHECK(ctranslate2_config(config, given, two_languages()) ==
        Json::parse(R"({"alignment_heads": [[3, 1]], "lang_ids": [7, 9], "suppress_ids": [1, 2],
                        "suppress_ids_begin": [220]})"));
  CHECK(ctranslate2_config(config, Json::parse(R"({"suppress_tokens": null})"), two_languages()) ==
        Json::parse(R"({"alignment_heads": [[1, 0], [1, 1], [2, 0], [2, 1]], "lang_ids": [3, 4],
                        "suppress_ids": [], "suppress_ids_begin": []})"));
}

TEST_CASE("CTranslate2 folder: a folder without tokenizer.json gets a whole one") {
  const auto folder = whisper_test::kParity / "small_tokenizer_folder";
  const auto json = whisper::load_tokenizer_json(folder);
  const whisper::Tokenizer made(json), expected = whisper::load_folder_tokenizer(folder);
  for (const auto* text : {" the end", "<|endoftext|>", "\xE0\xA4\x95\xE0\xA4\xBE"})
    CHECK(made.encode(text) == expected.encode(text));
  for (const auto* field : {"version", "normalizer", "post_processor", "decoder", "truncation", "padding"})
    CHECK(json.contains(field));
  CHECK(json["model"]["type"] == "BPE");
  for (const auto& token : json["added_tokens"].as_array())
    for (const auto* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"})
      CHECK(token.contains(flag));

  const looptorch::testing::TemporaryFolder other;
  looptorch::write_file_atomically(other / "tokenizer.json", R"({"model": 1})");
  CHECK(whisper::load_tokenizer_json(other.path()) == Json::parse(R"({"model": 1})"));
}
