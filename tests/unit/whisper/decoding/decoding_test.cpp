// SPDX-License-Identifier: MIT
// Tests whisper/decoding/repetition: loop_begin
#include "support/precompiled.hpp"

#include "../reference.hpp"

#include <whisper/decoding/decoding.hpp>
#include <whisper/decoding/generation_config.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

using namespace whisper_test;

namespace {

/// Greedy decoding of one row as its definition reads: no cache, the whole prefix each time.
std::vector<int64_t> decode_naively(whisper::Whisper& model, const at::Tensor& mel,
                                    const whisper::DecodingOptions& options) {
  torch::NoGradGuard no_grad;
  auto ids = options.prompt;
  while (static_cast<int64_t>(ids.size()) < options.max_length) {
    auto scores = model->forward(mel, torch::tensor(ids, at::kLong).unsqueeze(0))[0][-1];
    for (auto id : options.suppress) scores[id] = -1e30;
    if (ids.size() == options.prompt.size()) {
      for (auto id : options.begin_suppress) scores[id] = -1e30;
    }
    const auto next = scores.argmax().item<int64_t>();
    if (next == options.end_of_text) break;
    ids.push_back(next);
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(options.prompt.size()), ids.end()};
}

std::vector<std::vector<int64_t>> decode_greedily(whisper::Whisper& model, const at::Tensor& mel,
                                                  const whisper::DecodingOptions& options) {
  const torch::NoGradGuard no_grad;
  std::vector<std::vector<int64_t>> texts;
  for (auto& decoded : whisper::decode(model, model->encoder()(mel), options))
    texts.push_back(std::move(decoded.tokens));
  return texts;
}

bool contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

TEST_CASE("A batch decodes to what each row alone decodes to, without a cache") {
  auto model = tiny_model();
  const auto mel = at::randn({6, 6, 24}) * 3;
  whisper::DecodingOptions options{.prompt = {1, 2}, .suppress = {}, .begin_suppress = {}, .max_length = 12};
  options.end_of_text = GENERATE(3, 17, 22, 31, 38);
  const auto texts = decode_greedily(model, mel, options);
  REQUIRE(texts.size() == 6);
  for (int64_t row = 0; row < 6; ++row)
    CHECK(texts[row] == decode_naively(model, mel.slice(0, row, row + 1), options));
}

TEST_CASE("Rows that end at different steps keep their own texts") {
  auto model = tiny_model();
  const auto mel = at::randn({16, 6, 24}) * 3;
  whisper::DecodingOptions options{
      .prompt = {1}, .suppress = {}, .begin_suppress = {}, .end_of_text = 40, .max_length = 12};
  const auto endless = decode_greedily(model, mel, options);
  options.end_of_text = endless[0][2];
  const auto texts = decode_greedily(model, mel, options);
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto end = std::find(endless[row].begin(), endless[row].end(), options.end_of_text);
    CHECK(texts[row] == std::vector<int64_t>(endless[row].begin(), end));
  }
  CHECK(texts[0].size() <= 2);
}

TEST_CASE("A text ends at any of its ends") {
  auto model = tiny_model();
  const auto mel = at::randn({16, 6, 24}) * 3;
  whisper::DecodingOptions options{
      .prompt = {1}, .suppress = {}, .begin_suppress = {}, .end_of_text = 40, .max_length = 12};
  const auto endless = decode_greedily(model, mel, options);
  options.other_ends = {endless[0][2], endless[1][1]};
  const auto texts = decode_greedily(model, mel, options);
  for (size_t row = 0; row < texts.size(); ++row) {
    const auto end = std::find_first_of(endless[row].begin(), endless[row].end(), options.other_ends.begin(),
                                        options.other_ends.end());
    CHECK(texts[row] == std::vector<int64_t>(endless[row].begin(), end));
  }
  CHECK((texts[0].size() <= 2 && texts[1].size() <= 1));
}

TEST_CASE("Suppressed tokens do not appear, those of the beginning not at the beginning") {
  auto model = tiny_model();
  const auto mel = at::randn({1, 6, 24});
  whisper::DecodingOptions options{
      .prompt = {1}, .suppress = {}, .begin_suppress = {}, .end_of_text = 40, .max_length = 12};
  const auto free = decode_greedily(model, mel, options)[0];
  REQUIRE(free.size() == 11);
  options.suppress = {free[4]};
  CHECK_FALSE(contains(decode_greedily(model, mel, options)[0], free[4]));
  options.suppress = {};
  options.begin_suppress = {free[0]};
  const auto other = decode_greedily(model, mel, options)[0];
  CHECK(other[0] != free[0]);
  CHECK(other == decode_naively(model, mel, options));
}

TEST_CASE("Decoding needs a prompt and stops at the model's positions") {
  auto model = tiny_model();
  const auto mel = at::randn({1, 6, 24});
  whisper::DecodingOptions options{
      .prompt = {}, .suppress = {}, .begin_suppress = {}, .end_of_text = 40, .max_length = 448};
  CHECK_THROWS_WITH(decode_greedily(model, mel, options), Catch::Contains("prompt is empty"));
  options.prompt = {1, 2};
  CHECK(decode_greedily(model, mel, options)[0].size() == 10);
}

TEST_CASE("A loop is five copies or more, of twenty-four tokens or more together") {
  const auto repeated = [](std::vector<int64_t> before, const std::vector<int64_t>& piece, int copies) {
    for (int i = 0; i < copies; ++i) before.insert(before.end(), piece.begin(), piece.end());
    return before;
  };
  CHECK_FALSE(whisper::loop_begin({}));
  CHECK_FALSE(whisper::loop_begin(repeated({1, 2}, {9}, 23)));
  CHECK(whisper::loop_begin(repeated({1, 2}, {9}, 24)) == 3);
  CHECK_FALSE(whisper::loop_begin(repeated({1, 2}, {8, 9}, 11)));
  CHECK(whisper::loop_begin(repeated({1, 2}, {8, 9}, 12)) == 4);
  CHECK_FALSE(whisper::loop_begin(repeated({1}, {3, 4, 5, 6, 7, 8, 9}, 4)));
  CHECK(whisper::loop_begin(repeated({1}, {3, 4, 5, 6, 7, 8, 9}, 5)) == 8);
  auto ended = repeated({1}, {3, 4, 5, 6, 7, 8, 9}, 5);
  ended.push_back(1);
  CHECK_FALSE(whisper::loop_begin(ended));
}

TEST_CASE("A text that repeats itself ends after its first piece, and the others of its batch continue") {
  auto config = tiny_model()->config();
  config.max_target_positions = 100;
  torch::manual_seed(7);
  whisper::Whisper model(config);
  const auto mel = at::randn({6, 6, 24}) * 3;
  whisper::DecodingOptions options{
      .prompt = {1}, .suppress = {}, .begin_suppress = {}, .end_of_text = 40, .max_length = 100};
  const auto endless = decode_greedily(model, mel, options);
  options.ends_loops = true;
  const auto texts = decode_greedily(model, mel, options);
  size_t loops = 0;
  for (size_t row = 0; row < texts.size(); ++row) {
    CHECK(endless[row].size() == 99);
    std::optional<size_t> kept;
    for (size_t length = 1; length <= 99 && !kept; ++length)
      kept = whisper::loop_begin(
          {endless[row].begin(), endless[row].begin() + static_cast<std::ptrdiff_t>(length)});
    loops += kept.has_value();
    CHECK(texts[row] ==
          std::vector<int64_t>(endless[row].begin(),
                               endless[row].begin() + static_cast<std::ptrdiff_t>(kept.value_or(99))));
  }
  CHECK(loops > 0);
}

TEST_CASE("With the weights of tiny.en the ids are those of transformers' generate") {
  const auto folder = real_model_folder();
  if (!folder) return;
  auto model = whisper::load_pretrained(*folder);
  const auto options = whisper::load_decoding_options(*folder, model->config());
  const auto frames = GENERATE(3000, 800);
  const auto texts = decode_greedily(model, speech_mel(frames), options);
  const auto expected = recorded("generated_" + std::to_string(frames));
  for (int64_t row = 0; row < 2; ++row) {
    auto ids = texts[row];
    ids.resize(expected.size(1), options.end_of_text);
    CHECK(at::equal(torch::tensor(ids, at::kLong), expected[row]));
  }
}
