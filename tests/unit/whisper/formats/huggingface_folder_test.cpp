// SPDX-License-Identifier: MIT
// Tests whisper/text: special_token_ids
#include "support/precompiled.hpp"

#include <whisper/formats/huggingface_folder.hpp>

using Catch::Contains;
using looptorch::Json;

namespace {

/// The added tokens of a multilingual tokenizer.json, with two languages.
Json tokenizer_json() {
  return Json::parse(R"({"added_tokens": [
    {"content": "<|endoftext|>", "id": 50257}, {"content": "<|startoftranscript|>", "id": 50258},
    {"content": "<|en|>", "id": 50259}, {"content": "<|mr|>", "id": 50260},
    {"content": "<|translate|>", "id": 50358}, {"content": "<|transcribe|>", "id": 50359},
    {"content": "<|startofprev|>", "id": 50361}, {"content": "<|notimestamps|>", "id": 50363}]})");
}

Json ctranslate2_json() {
  return Json::parse(R"({"suppress_ids": [1, 2], "suppress_ids_begin": [220], "alignment_heads": [[3, 1]]})");
}

whisper::WhisperConfig config_of(std::int64_t vocabulary) {
  whisper::WhisperConfig config{.vocab_size = vocabulary};
  whisper::set_token_ids(config, whisper::added_token_ids(tokenizer_json()));
  return config;
}

Json generation(std::int64_t vocabulary, const Json& ctranslate2) {
  return whisper::generation_config(config_of(vocabulary), ctranslate2,
                                    whisper::added_token_ids(tokenizer_json()));
}

}  // namespace

TEST_CASE("Hugging Face folder: token ids come from the tokenizer") {
  const auto config = config_of(51865);
  CHECK(config.eos_token_id == 50257);
  CHECK(config.pad_token_id == 50257);
  CHECK(config.decoder_start_token_id == 50258);
}

TEST_CASE("Hugging Face folder: a multilingual model lists its languages and tasks") {
  const auto json = generation(51865, ctranslate2_json());
  CHECK(json["is_multilingual"].as_bool());
  CHECK(json["lang_to_id"] == Json::parse(R"({"<|en|>": 50259, "<|mr|>": 50260})"));
  CHECK(json["task_to_id"] == Json::parse(R"({"transcribe": 50359, "translate": 50358})"));
  CHECK(json["no_timestamps_token_id"].as_int() == 50363);
  CHECK(json["suppress_tokens"] == Json::parse("[1, 2]"));
  CHECK(json["begin_suppress_tokens"] == Json::parse("[220]"));
  CHECK(json["alignment_heads"] == Json::parse("[[3, 1]]"));
  CHECK(json["decoder_start_token_id"].as_int() == 50258);
}

TEST_CASE("Hugging Face folder: an English model has neither") {
  const auto json = generation(51864, Json::object());
  CHECK_FALSE(json["is_multilingual"].as_bool());
  CHECK_FALSE(json.contains("lang_to_id"));
  CHECK_FALSE(json.contains("task_to_id"));
  CHECK(json["suppress_tokens"] == Json::array());
}

TEST_CASE("Hugging Face folder: what is missing or malformed is named") {
  CHECK_THROWS_AS(generation(51865, Json::parse(R"({"suppress_ids": 3})")), whisper::FolderError);
  CHECK_THROWS_WITH(generation(51865, Json::parse(R"({"suppress_ids": ["x"]})")),
                    Contains("field \"suppress_ids\""));
  whisper::WhisperConfig config;
  CHECK_THROWS_WITH(whisper::set_token_ids(config, Json::object()),
                    Contains("lacks the token <|endoftext|>"));
}

TEST_CASE("Hugging Face folder: the feature extractor has the model's mel bins") {
  CHECK(whisper::preprocessor_config({.num_mel_bins = 128})["feature_size"].as_int() == 128);
}
