// SPDX-License-Identifier: MIT
// Training targets against tests/parity/whisper_scripts.py: a sentence a script by Whisper's multilingual
// vocabulary. A target that begins with a token which decoding never begins with cannot be decoded again.
// Tests whisper/decoding: recognizer
#include "support/precompiled.hpp"

#include <looptorch/base/json/json.hpp>
#include <looptorch/optim/fused_adamw.hpp>

#include "../reference.hpp"

#include <whisper/clips/training_text.hpp>
#include <whisper/decoding/recognizer.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

using looptorch::Json;
using whisper::DecodingOptions, whisper::Tokenizer;

namespace {

using Ids = std::vector<std::int64_t>;

Ids to_ids(const Json& json) {
  Ids ids;
  for (const auto& id : json.as_array()) ids.push_back(id.as_int());
  return ids;
}

const Json& recorded() {
  static const auto json = looptorch::load_json(std::filesystem::path(LOOPTORCH_SOURCE_DIR) /
                                                "tests/parity/data/whisper_scripts.json");
  return json;
}

const Tokenizer& multilingual() {
  static const Tokenizer tokenizer(recorded()["tokenizer"]);
  return tokenizer;
}

DecodingOptions decoding(const std::string& language) {
  const auto id = [](const std::string& token) { return multilingual().token_id(token).value(); };
  return {.prompt = {id("<|startoftranscript|>"), id("<|" + language + "|>"), id("<|transcribe|>"),
                     id("<|notimestamps|>")},
          .suppress = {},
          .begin_suppress = to_ids(recorded()["begin_suppress_tokens"]),
          .end_of_text = id("<|endoftext|>"),
          .ends_loops = true};
}

/// Its own ids are few, the vocabulary is Whisper's.
whisper::Whisper small_model() {
  torch::manual_seed(1);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 51865,
                                                .d_model = 32,
                                                .encoder_layers = 1,
                                                .decoder_layers = 1,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 2,
                                                .encoder_ffn_dim = 64,
                                                .decoder_ffn_dim = 64,
                                                .num_mel_bins = 8,
                                                .max_source_positions = 10,
                                                .max_target_positions = 64});
  return model;
}

/// What a model says to one clip when it has learnt that `text` is said there.
std::string learnt(const DecodingOptions& options, const std::string& text) {
  const auto tokens = torch::tensor(whisper::training_tokens(multilingual(), options, text)).unsqueeze(0);
  const auto length = tokens.size(1) - 1;
  whisper::Recognizer recognizer{small_model(), multilingual(), options};
  const auto mel_BMT = at::randn({1, 8, 20});
  looptorch::FusedAdamW optimizer(recognizer.model->parameters(), {.lr = 3e-2, .weight_decay = 0.0});
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    whisper_test::token_mean_loss(recognizer.model(mel_BMT, tokens.narrow(1, 0, length)),
                                  tokens.narrow(1, 1, length))
        .backward();
    optimizer.step();
  }
  return recognizer.transcribe(mel_BMT).front();
}

}  // namespace

TEST_CASE("No script's target begins with a token that decoding suppresses there") {
  const auto begin_suppress = to_ids(recorded()["begin_suppress_tokens"]);
  std::set<std::string> without_blank;
  for (const auto& entry : recorded()["sentences"].as_array()) {
    const auto& language = entry["language"].as_string();
    CAPTURE(language, entry["text"].as_string());
    const auto options = decoding(language);
    const auto tokens = whisper::training_tokens(multilingual(), options, entry["text"].as_string());
    REQUIRE(tokens.size() > options.prompt.size() + 1);
    const Ids target(tokens.begin() + static_cast<std::ptrdiff_t>(options.prompt.size()), tokens.end() - 1);
    const bool is_suppressed =
        std::find(begin_suppress.begin(), begin_suppress.end(), target.front()) != begin_suppress.end();
    CHECK_FALSE(is_suppressed);
    const bool blank_is_alone = to_ids(entry["after_blank"]).front() == begin_suppress.front();
    if (blank_is_alone) without_blank.insert(language);
    CHECK(target == to_ids(entry[blank_is_alone ? "plain" : "after_blank"]));
  }
  CHECK(without_blank == std::set<std::string>{"bn", "bo", "gu", "ja", "lo", "ml", "pa", "te", "th", "zh"});
}

TEST_CASE("White space around a text is no token of its target") {
  const auto& tokenizer = multilingual();
  CHECK(whisper::transcript_tokens(tokenizer, " \t\n the weather") == tokenizer.encode(" the weather"));
  const std::string thai = recorded()["sentences"].as_array()[17]["text"].as_string();
  CHECK(whisper::transcript_tokens(tokenizer, "  " + thai) == tokenizer.encode(thai));
  CHECK(whisper::transcript_tokens(tokenizer, "the weather \r\n") == tokenizer.encode(" the weather"));
  CHECK(whisper::transcript_tokens(tokenizer, " ").empty());
  CHECK_THROWS_WITH(whisper::training_tokens(tokenizer, decoding("th"), " \n"), "its text is blank");
}

TEST_CASE("A blank text is a target where empty texts are allowed") {
  auto options = decoding("en");
  whisper::allow_empty_texts(options);
  auto expected = options.prompt;
  expected.push_back(options.end_of_text);
  CHECK(whisper::training_tokens(multilingual(), options, " ") == expected);
  CHECK(options.begin_suppress.size() + 1 == decoding("en").begin_suppress.size());
  CHECK(learnt(options, "").empty());
}

TEST_CASE("A text that is spelt out has a token for each character and reads the same") {
  auto tokenizer = multilingual();
  tokenizer.spell_out();
  const std::string text = "cq de w1aw/p = \xC3\xA9t\xC3\xA9 \xE0\xB4\x95 the";
  Ids by_character;
  for (std::size_t at = 0, size = 0; at < text.size(); at += size) {
    size = (text[at] & 0x80) == 0 ? 1 : (text[at] & 0x20) == 0 ? 2 : 3;
    for (const auto id : multilingual().encode(text.substr(at, size))) by_character.push_back(id);
  }
  const auto ids = whisper::transcript_tokens(tokenizer, text);
  CHECK(ids == by_character);
  CHECK(ids.size() > multilingual().encode(text).size());
  CHECK(tokenizer.decode(ids) == text);
  CHECK(tokenizer.encode("<|endoftext|>") == multilingual().encode("<|endoftext|>"));
  CHECK_THROWS_AS(tokenizer.encode("\xff"), whisper::TokenizerError);
}

TEST_CASE("What was learnt in a script without a merged blank is decoded again") {
  for (const auto& entry : recorded()["sentences"].as_array()) {
    const auto& language = entry["language"].as_string();
    if (language != "ml" && language != "ja" && language != "en") continue;
    CAPTURE(language);
    CHECK(learnt(decoding(language), entry["text"].as_string()) == entry["text"].as_string());
  }
}

TEST_CASE("Each clip of a batch is transcribed in its own language") {
  const auto id = [](const std::string& token) { return multilingual().token_id(token).value(); };
  auto options = decoding("en");
  options.special = {.start = id("<|startoftranscript|>"),
                     .transcribe = id("<|transcribe|>"),
                     .no_timestamps = id("<|notimestamps|>")};
  options.max_length = 20;
  for (const auto* code : {"en", "ml", "ja"})
    options.special.languages.emplace_back(code, id("<|" + std::string(code) + "|>"));
  whisper::Recognizer recognizer{small_model(), multilingual(), options};
  for (auto& parameter : recognizer.model->named_parameters()) {  // the prompt matters to what follows
    torch::NoGradGuard no_grad;
    if (parameter.key().find("decoder.layers.0.self_attn") != std::string::npos) parameter.value().mul_(8);
  }
  const auto mel_BMT = at::randn({1, 8, 20}).expand({4, 8, 20}).contiguous();
  const auto tokens = [&](const std::vector<std::string>& languages) {
    std::vector<Ids> all;
    for (const auto& transcript : recognizer.decode(mel_BMT, languages)) all.push_back(transcript.tokens);
    return all;
  };
  const auto english = tokens({})[0], malayalam = tokens({"ml", "ml", "ml", "ml"})[0];
  REQUIRE(english != malayalam);  // though it is one clip
  CHECK(tokens({"en", "ml", "", "ml"}) == std::vector<Ids>{english, malayalam, english, malayalam});
  CHECK(recognizer.decode(mel_BMT, {"ja", "en", "en", "en"})[0].language == "ja");
  CHECK_THROWS_WITH(tokens({"tlh", "en", "en", "en"}), "the model does not know the language \"tlh\"");
  recognizer.detects_language = true;
  CHECK(tokens({"ml", "ml", "en", "en"})[0] == tokens({"en", "en", "ml", "ml"})[0]);
}

TEST_CASE("A transcript never ends inside a character") {
  const whisper::Recognizer recognizer{small_model(), multilingual(), decoding("ml")};
  for (const auto& entry : recorded()["sentences"].as_array()) {
    const auto& text = entry["text"].as_string();
    auto ids = whisper::transcript_tokens(multilingual(), text);
    for (; !ids.empty(); ids.pop_back()) {
      const auto said = recognizer.text_of(ids);
      CAPTURE(text, said);
      CHECK(text.starts_with(said));
      CHECK(said.size() + 3 >= multilingual().bytes_of(ids).size() - 1);
    }
  }
  CHECK(recognizer.text_of(multilingual().encode("a\xEF\xBF\xBD")) ==
        "a\xEF\xBF\xBD");  // U+FFFD that was said
}
