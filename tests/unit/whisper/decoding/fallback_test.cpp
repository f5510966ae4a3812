// SPDX-License-Identifier: MIT
// Tests whisper/decoding: decoding_flags, language_detection
#include "support/precompiled.hpp"

#include "../reference.hpp"

#include <whisper/decoding/decoding_flags.hpp>

#include <string>
#include <vector>

using namespace whisper_test;
using Catch::Contains;
using whisper::DecodingOptions, whisper::FallbackOptions, whisper::Transcript;

namespace {

using Ids = std::vector<int64_t>;

std::string spelled(const Ids& ids) {
  std::string text;
  for (const auto id : ids) text += " w" + std::to_string(id);
  return text;
}

Transcript transcript(double log_probability, double no_speech, double ratio) {
  return {.text = "x",
          .language = {},
          .tokens = {},
          .average_log_probability = log_probability,
          .no_speech_probability = no_speech,
          .compression_ratio = ratio};
}

whisper::SpecialTokens three_languages() {
  return {.start = 1,
          .transcribe = 5,
          .translate = 6,
          .no_timestamps = 8,
          .languages = {{"en", 2}, {"kn", 3}, {"ta", 4}}};
}

}  // namespace

TEST_CASE("A text is decoded again if it repeats itself or is unsure, but not if nobody speaks") {
  const FallbackOptions options;
  const auto again = [&](double log_probability, double no_speech, double ratio) {
    return !whisper::detail::is_good_enough(transcript(log_probability, no_speech, ratio), options);
  };
  CHECK_FALSE(again(-0.3, 0.1, 1.4));
  CHECK_FALSE(again(-1, 0.1, 2.4));
  CHECK(again(-0.3, 0.1, 2.5));
  CHECK(again(-1.1, 0.1, 1.4));
  CHECK(again(-1.1, 0.6, 1.4));
  CHECK_FALSE(again(-1.1, 0.7, 1.4));
  CHECK_FALSE(again(-1.1, 0.7, 2.5));
  CHECK(again(-0.3, 0.7, 2.5));
  const auto never = whisper::detail::once(0);
  CHECK(whisper::detail::is_good_enough(transcript(-9, 0.1, 9), never));
}

TEST_CASE("Probable silence is skipped unless the model is sure of the words") {
  const FallbackOptions options;
  const auto dropped = [&](double log_probability, double no_speech) {
    return whisper::detail::counts_as_silence(transcript(log_probability, no_speech, 1), options);
  };
  CHECK(dropped(-1.2, 0.7));
  CHECK_FALSE(dropped(-0.9, 0.7));
  CHECK_FALSE(dropped(-1.2, 0.6));
  CHECK_FALSE(whisper::detail::counts_as_silence(transcript(-9, 1, 1), whisper::detail::once(0)));
}

TEST_CASE("Only the clips whose text is not good enough are decoded at the next temperature") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto states = model->encoder()(at::randn({5, 6, 24}) * 3);
  DecodingOptions options{
      .prompt = {1}, .suppress = {}, .begin_suppress = {}, .end_of_text = 38, .max_length = 12};
  const auto greedy = whisper::decode(model, states, options);
  std::vector<double> averages;
  for (const auto& text : greedy) averages.push_back(text.average_log_probability);
  std::sort(averages.begin(), averages.end());
  FallbackOptions fallback{
      .temperatures = {0, 0.7, 1.3}, .compression_ratio = {}, .log_probability = averages[2]};
  const auto decoded = whisper::decode_with_fallback(model, states, options, fallback, spelled);
  int again = 0;
  for (size_t clip = 0; clip < 5; ++clip) {
    if (greedy[clip].average_log_probability >= averages[2]) {
      CHECK(decoded[clip].temperature == 0);
      CHECK(decoded[clip].tokens == greedy[clip].tokens);
      CHECK(decoded[clip].text == spelled(greedy[clip].tokens));
      continue;
    }
    ++again;
    CHECK(decoded[clip].temperature > 0);
    options.temperature = decoded[clip].temperature;
    const auto drawn = whisper::decode(model, states, options)[clip];
    CHECK(decoded[clip].tokens == drawn.tokens);
    CHECK((decoded[clip].average_log_probability >= averages[2] || decoded[clip].temperature == 1.3));
  }
  CHECK(again == 2);
  fallback.log_probability = 0;  // which no text reaches
  for (const auto& clip : whisper::decode_with_fallback(model, states, options, fallback, spelled))
    CHECK(clip.temperature == 1.3);
  fallback.temperatures.clear();
  CHECK_THROWS_WITH(whisper::decode_with_fallback(model, states, options, fallback, spelled),
                    Contains("there is no temperature"));
}

TEST_CASE("Temperatures go up to one in steps of a fifth") {
  using whisper::detail::temperatures_from;
  CHECK(temperatures_from(0).size() == 6);
  CHECK(temperatures_from(0)[3] == Approx(0.6));
  CHECK(temperatures_from(0.5).size() == 3);
  CHECK(temperatures_from(1) == std::vector<double>{1});
}

TEST_CASE("Suppressed tokens are a list of ids in the vocabulary") {
  using whisper::detail::parse_ids;
  CHECK(parse_ids("7", 10) == Ids{7});
  CHECK(parse_ids("7,0,9", 10) == Ids{7, 0, 9});
  CHECK_THROWS_WITH(parse_ids("7,10", 10), "--suppress-tokens: 10 is more than 9");
  CHECK_THROWS_WITH(parse_ids("7,,1", 10), "--suppress-tokens: \"\" is not an integer");
  CHECK_THROWS_WITH(parse_ids("-1", 10), "--suppress-tokens: -1 is less than 0");
}

TEST_CASE("The prompt says language, task and whether there are timestamps") {
  DecodingOptions options;
  options.special = three_languages();
  whisper::set_prompt(options, "kn");
  CHECK(options.prompt == Ids{1, 3, 5, 8});
  whisper::set_prompt(options, "ta", whisper::Task::translate);
  CHECK(options.prompt == Ids{1, 4, 6, 8});
  options.without_timestamps = false;
  whisper::set_prompt(options, "ta");
  CHECK(options.prompt == Ids{1, 4, 5});
  CHECK_THROWS_WITH(whisper::set_prompt(options, "xx"), "the model does not know the language \"xx\"");
  options.special.languages.clear(), options.special.translate = -1;
  CHECK_THROWS_WITH(whisper::set_prompt(options, "en", whisper::Task::translate),
                    "the model cannot translate: it knows English only");
}

TEST_CASE("The language is the most probable of the languages' tokens after the start") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto mel = at::randn({6, 6, 24}) * 3;
  const auto special = three_languages();
  const auto detected = whisper::detect_languages(model, model->encoder()(mel), special);
  const auto scores = model->forward(mel, torch::ones({6, 1}, at::kLong)).select(1, 0).slice(1, 2, 5);
  const auto expected = at::softmax(scores, 1);
  for (int64_t clip = 0; clip < 6; ++clip) {
    const auto place = expected[clip].argmax().item<int64_t>();
    const auto& language = detected[static_cast<size_t>(clip)];
    CHECK(language.code == special.languages[static_cast<size_t>(place)].first);
    CHECK(language.probability == Approx(expected[clip][place].item<double>()).epsilon(1e-4));
  }
  const auto english = whisper::detect_languages(model, at::zeros({2, 12, 16}), {.start = 1});
  CHECK(english.size() == 2);
  CHECK(english[1].code == "en");
}
