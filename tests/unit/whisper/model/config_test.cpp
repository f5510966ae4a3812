// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"

#include <whisper/model/config.hpp>

using Catch::Contains;
using looptorch::Json;
using looptorch::testing::TemporaryFolder;
using whisper::config_from_json;
using whisper::config_to_json;
using whisper::ConfigError;
using whisper::WhisperConfig;

TEST_CASE("Whisper config: what is saved is loaded again") {
  const TemporaryFolder folder;
  const WhisperConfig config{.vocab_size = 51864,
                             .d_model = 512,
                             .encoder_layers = 6,
                             .encoder_attention_heads = 8,
                             .decoder_attention_heads = 8,
                             .pad_token_id = 50256,
                             .bos_token_id = 50256,
                             .eos_token_id = 50256,
                             .decoder_start_token_id = 50257};
  whisper::save_config(folder / "config.json", config);
  CHECK(whisper::load_config(folder / "config.json") == config);
  const auto json = looptorch::load_json(folder / "config.json");
  CHECK(json["architectures"].at(0).as_string() == "WhisperForConditionalGeneration");
  CHECK(json["model_type"].as_string() == "whisper");
}

TEST_CASE("Whisper config: the file and the field at fault are named") {
  const auto refuses = [](const char* field, Json value, const std::string& message) {
    CAPTURE(field, value.dump());
    const auto json = config_to_json({}).set(field, std::move(value));
    REQUIRE_THROWS_AS(config_from_json(json, "a/config.json"), ConfigError);
    REQUIRE_THROWS_WITH(config_from_json(json, "a/config.json"),
                        Contains("a/config.json: ") && Contains(message));
  };
  refuses("d_model", "384", "field \"d_model\" must be an integer, is \"384\"");
  refuses("d_model", 384.0, "field \"d_model\" must be an integer, is 384.0");
  refuses("encoder_layers", 0, "field \"encoder_layers\" is 0, outside 1..1024");
  refuses("vocab_size", std::int64_t{1} << 40, "field \"vocab_size\"");
  refuses("decoder_attention_heads", 5,
          "\"decoder_attention_heads\" is 5, which does not divide d_model 384");
  refuses("eos_token_id", 51865, "\"eos_token_id\" is 51865, outside the vocabulary of 51865");
  refuses("activation_function", "relu",
          "\"activation_function\" is \"relu\", and only \"gelu\" is supported");
  refuses("scale_embedding", true, "only false is supported");
  refuses("tie_word_embeddings", false, "only true is supported");
  refuses("model_type", "t5", "only \"whisper\" is supported");
  CHECK_THROWS_WITH(config_from_json(Json::parse("{}"), "x"), Contains("x: field \"vocab_size\" is missing"));
  CHECK_THROWS_WITH(config_from_json(Json::parse("[]"), "x"), Contains("x: is not a JSON object"));
}

TEST_CASE("Whisper config: a file that is missing or malformed is named") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(whisper::load_config(folder / "config.json"), looptorch::FileError);
  looptorch::write_file_atomically(folder / "config.json", "{\"d_model\": }");
  CHECK_THROWS_AS(whisper::load_config(folder / "config.json"), ConfigError);
  CHECK_THROWS_WITH(whisper::load_config(folder / "config.json"), Contains("config.json: line 1, column 13"));
}
