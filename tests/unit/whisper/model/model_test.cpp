// SPDX-License-Identifier: MIT
// Tests whisper/model: attention, decoder, encoder
#include "support/precompiled.hpp"

#include "../reference.hpp"

#include <algorithm>
#include <map>

using namespace whisper_test;
using Catch::Contains;
using torch::indexing::None;
using torch::indexing::Slice;

namespace {

constexpr int64_t kStart = 50257, kEnd = 50256, kNoTimestamps = 50362;

struct Example {
  at::Tensor tokens, labels;
};

/// The script's `training_tokens`.
Example training_tokens() {
  const auto row = [](std::vector<int64_t> head, int64_t text, std::vector<int64_t> tail) {
    for (int64_t i = 0; i < text; ++i) head.push_back(300 + i);
    head.insert(head.end(), tail.begin(), tail.end());
    return torch::tensor(head, at::kLong);
  };
  const auto ignored = whisper::kIgnored;
  return {at::stack({row({kStart, kNoTimestamps}, 10, {}),
                     row({kStart, kNoTimestamps}, 6, {kEnd, kEnd, kEnd, kEnd})}),
          at::stack({row({kNoTimestamps}, 10, {kEnd}),
                     row({kNoTimestamps}, 6, {kEnd, ignored, ignored, ignored, ignored})})};
}

std::map<std::string, at::Tensor> gradients(whisper::Whisper& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& item : model->named_parameters()) {
    if (item.value().requires_grad()) out.emplace(item.key(), item.value().grad());
  }
  return out;
}

at::Tensor samples(const at::Tensor& tensor, int64_t count) {
  return tensor.flatten().index_select(0, at::arange(count).mul(tensor.numel()).floor_divide(count));
}

}  // namespace

TEST_CASE("Parameters have the names that transformers gives them") {
  whisper::WhisperConfig config{.vocab_size = 60000, .d_model = 6};
  std::vector<std::string> names;
  const whisper::Whisper model(config);
  for (const auto& item : model->named_parameters()) names.push_back(item.key());
  std::sort(names.begin(), names.end());
  CHECK(names == recorded_names());
}

TEST_CASE("The encoder halves the frames and cuts its positions to them") {
  auto model = tiny_model();
  for (int64_t frames : {1, 2, 7, 8, 39, 40}) {
    CHECK(model->encoder()(at::randn({3, 6, frames})).sizes() == at::IntArrayRef({3, (frames + 1) / 2, 16}));
  }
  CHECK_THROWS_WITH(model->encoder()(at::randn({1, 6, 42})), Contains("42 mel frames are more than its 40"));
}

TEST_CASE("The encoder's positions are a sinusoid table and receive no gradient") {
  auto model = tiny_model();
  const auto positions = model->named_parameters()["model.encoder.embed_positions.weight"];
  CHECK(at::equal(positions, whisper::sinusoids(20, 16)));
  CHECK(positions[0][0].item<double>() == 0.0);
  CHECK(positions[0][8].item<double>() == 1.0);
  CHECK(relative_error(positions[3][1], std::sin(3.0 / std::pow(10'000.0, 1.0 / 7))) < 1e-6);

  model->forward(at::randn({1, 6, 8}), at::ones({1, 3}, at::kLong)).sum().backward();
  CHECK_FALSE(positions.grad().defined());
  for (const auto& [name, gradient] : gradients(model)) {
    INFO(name);
    CHECK(gradient.defined());
  }
}

TEST_CASE("A later token does not change the scores of earlier ones") {
  auto model = tiny_model();
  const auto mel = at::randn({2, 6, 16});
  const auto tokens = at::randint(2, 40, {2, 9}, at::kLong);
  auto changed = tokens.clone();
  changed.slice(1, 6) = 39 - tokens.slice(1, 6);
  const auto before = model->forward(mel, tokens), after = model->forward(mel, changed);
  CHECK(before.sizes() == at::IntArrayRef({2, 9, 40}));
  CHECK(largest_difference(before.slice(1, 0, 6), after.slice(1, 0, 6)) < 1e-5);
  CHECK(largest_difference(before.slice(1, 6), after.slice(1, 6)) > 1e-2);
}

TEST_CASE("Decoding with the cache gives the states of decoding without") {
  auto model = tiny_model();
  torch::NoGradGuard no_grad;
  const auto audio = model->encoder()(at::randn({3, 6, 16}));
  const auto tokens = at::randint(0, 40, {3, 8}, at::kLong);
  const auto expected = model->decoder()(tokens, audio);

  whisper::DecoderCache cache;
  std::vector<at::Tensor> states{model->decoder()->extend(tokens.slice(1, 0, 3), audio, cache)};
  for (int64_t i = 3; i < 8; ++i)
    states.push_back(model->decoder()->extend(tokens.slice(1, i, i + 1), audio, cache));
  CHECK(cache.length() == 8);
  CHECK(largest_difference(at::cat(states, 1), expected) < 1e-5);

  SECTION("two tokens at once after the prompt are refused, since nothing would mask the second one") {
    CHECK_THROWS_WITH(model->decoder()->extend(tokens.slice(1, 0, 2), audio, cache),
                      Contains("one token at a time, not 2"));
  }
  SECTION("more tokens than positions are refused") {
    for (int i = 0; i < 4; ++i) model->decoder()->extend(tokens.slice(1, 0, 1), audio, cache);
    CHECK_THROWS_WITH(model->decoder()->extend(tokens.slice(1, 0, 1), audio, cache),
                      Contains("13 tokens are more than its 12 positions"));
  }
  SECTION("a selected row continues as itself") {
    const auto next = at::full({3, 1}, 5, at::kLong);
    auto narrow = cache;
    narrow.select(torch::tensor({2}, at::kLong));
    const auto one = model->decoder()->extend(next.slice(0, 2), audio.slice(0, 2), narrow);
    const auto all = model->decoder()->extend(next, audio, cache);
    CHECK(largest_difference(one[0], all[2]) < 1e-5);
  }
}

TEST_CASE("Ignored labels count neither in the loss nor in its mean") {
  const auto logits = at::randn({1, 5, 40});
  auto labels = at::randint(0, 40, {1, 5}, at::kLong);
  labels.slice(1, 3).fill_(whisper::kIgnored);
  const auto expected = whisper_test::token_mean_loss(logits.slice(1, 0, 3), labels.slice(1, 0, 3));
  CHECK(relative_error(whisper_test::token_mean_loss(logits, labels), expected.item<double>()) < 1e-6);
}

TEST_CASE("With the weights of tiny.en states, logits, loss and gradients are those of transformers") {
  const auto folder = real_model_folder();
  if (!folder) return;
  auto model = whisper::load_pretrained(*folder);
  const auto frames = GENERATE(3000, 800);
  const auto suffix = looptorch::message("_", frames);
  const auto mel = wave_mel(frames);
  const auto [tokens, labels] = training_tokens();

  const auto states = model->encoder()(mel);
  CHECK(largest_difference(states.index({Slice(), Slice(0, None, 50), Slice(0, None, 8)}),
                           recorded("states" + suffix)) < 1e-3);
  const auto logits = model->forward(mel, tokens);
  CHECK(largest_difference(logits.index({Slice(), Slice(), Slice(0, None, 101)}),
                           recorded("logits" + suffix)) < 1e-3);

  const auto loss = whisper_test::token_mean_loss(logits, labels);
  CHECK(relative_error(loss, recorded("loss" + suffix).item<double>()) < 1e-3);
  loss.backward();
  const auto norms = recorded("gradient_norms" + suffix);
  int64_t i = 0;
  for (const auto& [name, gradient] : gradients(model)) {
    INFO(name);
    CHECK(relative_error(gradient.norm(), norms[i].item<double>()) < 1e-3);
    if (frames == 3000) {
      const auto expected = recorded("gradient_samples_3000")[i];
      const auto rms = gradient.norm() / std::sqrt(static_cast<double>(gradient.numel()));
      const auto allowed = 1e-3 * at::maximum(expected.abs(), rms);
      CHECK(((samples(gradient, expected.size(0)) - expected).abs() <= allowed).all().item<bool>());
    }
    ++i;
  }
  CHECK(i == norms.size(0));
}
