// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../reference.hpp"

#include <whisper/decoding/decoding.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

using namespace whisper_test;
using whisper::DecodingOptions;

namespace {

using Ids = std::vector<int64_t>;

DecodingOptions beam_options(int64_t beams) {
  DecodingOptions options{
      .prompt = {1, 2}, .suppress = {5}, .begin_suppress = {7}, .end_of_text = 38, .max_length = 12};
  options.beam_size = beams;
  return options;
}

/// openai-whisper's beam search as it reads in Python: no cache, texts as keys, one clip.
Ids search_naively(whisper::Whisper& model, const at::Tensor& mel, const DecodingOptions& options) {
  torch::NoGradGuard no_grad;
  const auto wanted = static_cast<size_t>(std::nearbyint(double(options.beam_size) * options.patience));
  const auto beams = static_cast<size_t>(options.beam_size);
  std::vector<std::pair<Ids, float>> live{{{}, 0.0F}}, found;
  for (size_t step = options.prompt.size(); step < static_cast<size_t>(options.max_length); ++step) {
    std::map<Ids, float> scores;
    for (const auto& [text, sum] : live) {
      auto ids = options.prompt;
      ids.insert(ids.end(), text.begin(), text.end());
      auto row = model->forward(mel, torch::tensor(ids, at::kLong).unsqueeze(0))[0][-1];
      for (auto id : options.suppress) row[id] = -INFINITY;
      if (text.empty())
        for (auto id : options.begin_suppress) row[id] = -INFINITY;
      const auto [best, places] = at::log_softmax(row, 0).sort(0, /*descending=*/true);
      for (int64_t k = 0; k < row.size(0); ++k) {
        auto longer = text;
        longer.push_back(places[k].item<int64_t>());
        scores[longer] = sum + best[k].item<float>();
      }
    }
    std::vector<std::pair<Ids, float>> sorted(scores.begin(), scores.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.second > b.second; });
    live.clear();
    for (auto& [text, sum] : sorted) {
      if (live.size() == beams) break;
      if (!options.ends_text(text.back())) {
        live.emplace_back(text, sum);
      } else if (found.size() < wanted) {
        found.emplace_back(Ids(text.begin(), text.end() - 1), sum);
      }
    }
    if (found.size() >= wanted) break;
  }
  for (size_t i = 0; i < live.size() && found.size() < beams; ++i) found.push_back(live[i]);
  const auto score = [&](const auto& text) {
    const auto length = std::max(1.0, double(text.first.size()));
    return text.second /
           (options.length_penalty ? std::pow((5 + length) / 6, *options.length_penalty) : length);
  };
  return std::max_element(found.begin(), found.end(), [&](auto& a, auto& b) { return score(a) < score(b); })
      ->first;
}

std::vector<Ids> decoded_texts(whisper::Whisper& model, const at::Tensor& mel,
                               const DecodingOptions& options) {
  torch::NoGradGuard no_grad;
  std::vector<Ids> texts;
  for (auto& decoded : whisper::decode(model, model->encoder()(mel), options))
    texts.push_back(decoded.tokens);
  return texts;
}

}  // namespace

TEST_CASE("A batch's beams are those of each clip alone, searched without a cache") {
  auto model = tiny_model();
  const auto mel = at::randn({3, 6, 24}) * 3;
  auto options = beam_options(GENERATE(2, 3, 5));
  options.end_of_text = GENERATE(3, 22, 38);
  SECTION("as they are") {}
  SECTION("with patience") { options.patience = 2; }
  SECTION("with less patience than texts") { options.patience = 0.5; }
  SECTION("with a length penalty") { options.length_penalty = 1; }
  SECTION("with further ends") { options.other_ends = {9, 12, 26, 33, 36}; }
  const auto texts = decoded_texts(model, mel, options);
  for (int64_t clip = 0; clip < mel.size(0); ++clip)
    CHECK(texts[static_cast<size_t>(clip)] == search_naively(model, mel.slice(0, clip, clip + 1), options));
}

TEST_CASE("A beam's average log-probability is that of its tokens") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto mel = at::randn({1, 6, 24}) * 3;
  auto options = beam_options(3);
  options.suppress = options.begin_suppress = {};
  const auto decoded = whisper::decode(model, model->encoder()(mel), options)[0];
  auto ids = options.prompt;
  ids.insert(ids.end(), decoded.tokens.begin(), decoded.tokens.end());
  const auto log_probs =
      at::log_softmax(model->forward(mel, torch::tensor(ids, at::kLong).unsqueeze(0))[0], 1);
  double sum = 0;
  for (size_t i = 2; i < ids.size(); ++i) sum += log_probs[int64_t(i) - 1][ids[i]].item<double>();
  if (ids.size() < 12) sum += log_probs[-1][options.end_of_text].item<double>();
  CHECK(decoded.average_log_probability == Approx(sum / double(decoded.tokens.size() + 1)).epsilon(1e-4));
}

TEST_CASE("Draws depend on the seed, and not on the other clips of the batch") {
  auto model = tiny_model();
  const auto mel = at::randn({4, 6, 24}) * 3;
  auto options = beam_options(1);
  options.temperature = 1.5;
  options.best_of = GENERATE(1, 4);
  options.end_of_text = GENERATE(3, 38);
  const auto texts = decoded_texts(model, mel, options);
  CHECK(texts == decoded_texts(model, mel, options));
  for (int64_t clip = 0; clip < 4; ++clip)
    CHECK(decoded_texts(model, mel.slice(0, clip, clip + 1), options)[0] == texts[static_cast<size_t>(clip)]);
  std::set<std::vector<Ids>> different;
  for (options.seed = 0; options.seed < 5; ++options.seed)
    different.insert(decoded_texts(model, mel, options));
  CHECK(different.size() > 1);
}

TEST_CASE("The best of several drawn texts is at least as probable as the first of them") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto states = model->encoder()(at::randn({4, 6, 24}) * 3);
  auto options = beam_options(1);
  options.temperature = 2;
  const auto one = whisper::decode(model, states, options);
  options.best_of = 8;
  const auto best = whisper::decode(model, states, options);
  const auto score = [](const auto& text) {
    return text.average_log_probability * double(text.tokens.size() + 1) / double(text.tokens.size());
  };
  bool better = false;
  for (size_t clip = 0; clip < 4; ++clip) {
    CHECK(score(best[clip]) >= score(one[clip]) - 1e-5);
    better |= score(best[clip]) > score(one[clip]) + 1e-3;
  }
  CHECK(better);
}

TEST_CASE("Tokens are drawn as often as their probabilities say") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto mel = at::randn({1, 6, 24}) * 3;
  DecodingOptions options{
      .prompt = {1}, .suppress = {}, .begin_suppress = {}, .end_of_text = 0, .max_length = 2};
  options.temperature = 4;
  const auto states = model->encoder()(mel.expand({1, -1, -1}));
  const auto expected =
      at::softmax(model->forward(mel, torch::ones({1, 1}, at::kLong))[0][0] / options.temperature, 0);
  CHECK(expected.max().item<double>() < 0.5);
  auto counts = at::zeros({40});
  constexpr int kDraws = 2000;
  for (options.seed = 0; options.seed < kDraws; ++options.seed) {
    const auto text = whisper::decode(model, states, options)[0].tokens;
    counts[text.empty() ? 0 : text[0]] += 1;
  }
  CHECK((counts / kDraws - expected).abs().max().item<double>() < 0.03);
}

TEST_CASE("Previous text leads the prompt, its end if it is long") {
  auto options = beam_options(1);
  options.special.previous = 9;
  CHECK(options.first_tokens() == Ids{1, 2});
  options.previous = {30, 31};
  CHECK(options.first_tokens() == Ids{9, 30, 31, 1, 2});
  options.previous = {30, 31, 32, 33, 34, 35, 36};
  CHECK(options.first_tokens() == Ids{9, 32, 33, 34, 35, 36, 1, 2});  // 12 / 2 - 1 tokens
  auto model = tiny_model();
  const auto mel = at::randn({2, 6, 24}) * 3;
  auto spelled = beam_options(1);
  spelled.prompt = options.first_tokens();
  CHECK(decoded_texts(model, mel, options) == decoded_texts(model, mel, spelled));
  options.special.previous = -1;
  CHECK_THROWS_WITH(decoded_texts(model, mel, options),
                    Catch::Contains("no token for the start of previous text"));
}

TEST_CASE("A search without a text is refused") {
  auto model = tiny_model();
  const auto mel = at::randn({1, 6, 24});
  auto options = beam_options(0);
  CHECK_THROWS_WITH(decoded_texts(model, mel, options),
                    Catch::Contains("beam_size 0 and best_of 1 must be at least 1"));
  options = beam_options(4);
  options.patience = 0.1;
  CHECK_THROWS_WITH(decoded_texts(model, mel, options), Catch::Contains("a patience of 0.1"));
}

TEST_CASE("The probability of no speech is that after the start token") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto mel = at::randn({2, 6, 24}) * 3;
  auto options = beam_options(3);
  options.special.no_speech = 11, options.special.previous = 9, options.previous = {30, 31};
  const auto decoded = whisper::decode(model, model->encoder()(mel), options);
  const auto scores = model->forward(mel, torch::tensor({{9, 30, 31, 1}, {9, 30, 31, 1}}, at::kLong));
  const auto expected = at::softmax(scores.select(1, 3), 1).select(1, 11);
  for (int64_t clip = 0; clip < 2; ++clip)
    CHECK(decoded[static_cast<size_t>(clip)].no_speech_probability ==
          Approx(expected[clip].item<double>()).epsilon(1e-4));
}
