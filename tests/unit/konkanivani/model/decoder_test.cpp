// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"

using namespace konkanivani_test;

TEST_CASE("A decoder layer is PyTorch's TransformerDecoderLayer with the norm after") {
  const auto config = tiny_config();
  konkanivani::DecoderLayer ours(config);
  torch::nn::TransformerDecoderLayer theirs(
      torch::nn::TransformerDecoderLayerOptions(16, 2).dim_feedforward(32).dropout(0));
  const torch::NoGradGuard no_grad;
  auto from = ours->named_parameters();
  const auto copy_attention = [&](torch::nn::MultiheadAttention& to, const std::string& name) {
    const auto part = [&](const char* what) {
      return at::cat(
          {from[name + ".q_proj." + what], from[name + ".k_proj." + what], from[name + ".v_proj." + what]});
    };
    to->in_proj_weight.copy_(part("weight"));
    to->in_proj_bias.copy_(part("bias"));
    to->out_proj->weight.copy_(from[name + ".out_proj.weight"]);
    to->out_proj->bias.copy_(from[name + ".out_proj.bias"]);
  };
  const auto copy = [&](auto& to, const std::string& name) {
    to->weight.copy_(from[name + ".weight"]);
    to->bias.copy_(from[name + ".bias"]);
  };
  for (const auto* name : {"self_norm", "cross_norm", "norm"})
    from[std::string(name) + ".weight"].uniform_(0.5, 2);
  copy_attention(theirs->self_attn, "self_attention");
  copy_attention(theirs->multihead_attn, "cross_attention");
  copy(theirs->linear1, "up");
  copy(theirs->linear2, "down");
  copy(theirs->norm1, "self_norm");
  copy(theirs->norm2, "cross_norm");
  copy(theirs->norm3, "norm");

  const auto x_BLD = at::randn({2, 4, 16}), states_BTD = at::randn({2, 7, 16});
  const auto visible_BT = konkanivani::valid_places(ids({7, 5}), 7);
  const auto earlier = at::ones({4, 4}, at::kBool).tril();
  const auto expected = theirs->forward(x_BLD.transpose(0, 1), states_BTD.transpose(0, 1),
                                        at::zeros({4, 4}).masked_fill(earlier.logical_not(), -1e30), {}, {},
                                        visible_BT.logical_not());
  const auto got = ours(x_BLD, states_BTD, earlier, visible_BT.unsqueeze(1).unsqueeze(1));
  CHECK(largest_difference(got, expected.transpose(0, 1)) < 1e-5);
}

TEST_CASE("A later character does not change the scores of earlier ones") {
  auto model = used_model(tiny_config());
  const auto encoded = model->encode(at::randn({2, 6, 24}), ids({24, 16}));
  const auto characters = at::randint(5, 9, {2, 7}, at::kLong);
  auto changed = characters.clone();
  changed.slice(1, 5) = 13 - characters.slice(1, 5);
  const auto before = model->decoder_scores(characters, ids({7, 7}), encoded),
             after = model->decoder_scores(changed, ids({7, 7}), encoded);
  CHECK(largest_difference(before.slice(1, 0, 5), after.slice(1, 0, 5)) < 1e-6);
  CHECK(largest_difference(before.slice(1, 5), after.slice(1, 5)) > 1e-3);
}

TEST_CASE("Decoding with the cache gives the scores of decoding without, and rows can be taken") {
  const torch::NoGradGuard no_grad;
  auto model = used_model(tiny_config());
  const auto encoded = model->encode(at::randn({3, 6, 24}), ids({24, 16, 9}));
  const auto characters = at::randint(5, 9, {3, 6}, at::kLong);
  const auto expected = model->decoder_scores(characters, ids({6, 6, 6}), encoded);
  konkanivani::DecoderCache cache;
  for (int64_t i = 0; i < 4; ++i)
    CHECK(largest_difference(model->extend(characters.select(1, i), encoded, cache), expected.select(1, i)) <
          1e-5);
  const auto rows = ids({2, 0});
  cache.select(rows, /*same_clips=*/false);
  const auto rest = encoded.select(rows);
  const auto scores = model->extend(characters.select(1, 4).index_select(0, rows), rest, cache);
  CHECK(largest_difference(scores, expected.select(1, 4).index_select(0, rows)) < 1e-5);
  cache.select(ids({0, 1}), /*same_clips=*/true);
  CHECK(cache.length == 5);
}

TEST_CASE("What stands after a text does not change its scores, nor do states after a clip") {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  konkanivani::Decoder decoder(tiny_config());
  const konkanivani::Encoded clips{at::randn({2, 7, 16}), ids({7, 4})};
  const auto texts = at::randint(5, 9, {2, 6}, at::kLong);
  const auto scores = decoder(texts, ids({6, 3}), clips);
  CHECK(scores.sizes() == at::IntArrayRef({2, 6, 9}));
  const konkanivani::Encoded clip{clips.states_BTD.narrow(0, 1, 1).narrow(1, 0, 4), ids({4})};
  const auto alone = decoder(texts.narrow(0, 1, 1).narrow(1, 0, 3), ids({3}), clip);
  CHECK(largest_difference(alone[0], scores[1].narrow(0, 0, 3)) < 1e-5);
}
