// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"

#include <string>

using namespace konkanivani_test;
using Catch::Contains;

TEST_CASE("Subsampling makes a half or a quarter of the frames, rounded up, and lengths go along") {
  for (const int64_t subsampling : {4, 2, 1}) {
    auto config = tiny_config();
    config.subsampling = subsampling;
    auto model = tiny_model(config);
    for (int64_t frames : {1, 2, 3, 4, 5, 8, 9, 41}) {
      const auto encoded = model->encode(at::randn({2, 6, frames}), ids({frames, (frames + 1) / 2}));
      const auto expected = (frames + subsampling - 1) / subsampling;
      CHECK(encoded.states_BTD.sizes() == at::IntArrayRef({2, expected, 16}));
      CHECK(encoded.lengths_B[0].item<int64_t>() == expected);
      CHECK(konkanivani::encoder_frames(frames, subsampling) == expected);
      CHECK(encoded.lengths_B[1].item<int64_t>() ==
            konkanivani::encoder_frames((frames + 1) / 2, subsampling));
    }
  }
}

TEST_CASE("Frames and lengths that do not fit are refused") {
  auto model = tiny_model();
  CHECK_THROWS_WITH(model->encode(at::randn({1, 5, 9}), ids({9})),
                    Contains("expected mel frames [B, 6, F], got [1, 5, 9]"));
  CHECK_THROWS_WITH(model->encode(at::randn({2, 6, 9}), ids({9})),
                    Contains("lengths of shape [1] for a batch of 2"));
  CHECK_THROWS_WITH(model->encode(at::randn({1, 6, 9}), ids({10})), Contains("within 1 and the 9 frames"));
  CHECK_THROWS_WITH(model->encode(at::randn({2, 6, 9}), ids({9, 0})), Contains("within 1 and the 9 frames"));
}

TEST_CASE("Subsampling is two convolutions and a linear layer, which padding does not reach") {
  const torch::NoGradGuard no_grad;
  for (const int64_t subsampling : {2, 4}) {
    auto config = tiny_config();
    config.subsampling = subsampling;
    konkanivani::Subsampling front(config);
    const auto p = front->named_parameters();
    const auto mel_BFM = at::randn({2, 11, 6});
    const auto convolve = [&](const at::Tensor& x, const std::string& name, int64_t stride) {
      return at::silu(at::conv2d(x, p[name + ".weight"], p[name + ".bias"], {stride, 2}, {1, 1}));
    };
    const auto by_hand = [&](const at::Tensor& mel) {
      const auto x_BCTM = convolve(convolve(mel.unsqueeze(1), "first", 2), "second", subsampling / 2);
      return at::linear(x_BCTM.transpose(1, 2).flatten(2), p["linear.weight"], p["linear.bias"]);
    };
    const auto found = front(mel_BFM, ids({11, 6}));
    CHECK(largest_difference(found[0], by_hand(mel_BFM)[0]) < 1e-5);
    const auto alone = by_hand(mel_BFM.slice(0, 1).slice(1, 0, 6))[0];
    CHECK(largest_difference(found[1].narrow(0, 0, alone.size(0)), alone) < 1e-5);
  }
}

TEST_CASE("The encoder is its front end with positions added, and its blocks one after the other") {
  const torch::NoGradGuard no_grad;
  auto config = tiny_config();
  config.subsampling = 1;
  konkanivani::Encoder encoder(config);
  const auto p = encoder->named_parameters();
  const auto mel_BMF = at::randn({2, 6, 7});
  const auto lengths = ids({7, 3});
  auto x_BTD = at::linear(mel_BMF.transpose(1, 2), p["linear.weight"], p["linear.bias"]) * 4 +
               konkanivani::position_table(7, 16, mel_BMF.options());
  const auto valid_BT = konkanivani::valid_places(lengths, 7);
  for (const auto& child : encoder->named_modules())
    if (auto* block = child.value()->as<konkanivani::ConformerBlock>())
      x_BTD = block->forward(x_BTD, valid_BT, {});
  const auto encoded = encoder(mel_BMF, lengths);
  CHECK(encoded.lengths_B.equal(lengths));
  CHECK(largest_difference(encoded.states_BTD, x_BTD) < 1e-5);
}

TEST_CASE("Rows of what was encoded are taken with their lengths, in any order and twice") {
  const konkanivani::Encoded encoded{at::randn({3, 2, 4}), ids({2, 1, 2})};
  const auto rows = encoded.select(ids({1, 0, 1}));
  CHECK(rows.lengths_B.equal(ids({1, 2, 1})));
  CHECK(rows.states_BTD[0].equal(encoded.states_BTD[1]));
  CHECK(rows.states_BTD[1].equal(encoded.states_BTD[0]));
  CHECK(rows.states_BTD[2].equal(encoded.states_BTD[1]));
}
