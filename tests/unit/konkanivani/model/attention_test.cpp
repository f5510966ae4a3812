// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

using namespace konkanivani_test;

TEST_CASE("Attention is PyTorch's MultiheadAttention, with a mask and without") {
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  konkanivani::Attention ours(8, 2);
  torch::nn::MultiheadAttention theirs(8, 2);
  auto p = ours->named_parameters();
  for (auto& item : p) item.value().normal_();
  const auto joined = [&](const std::string& what) {
    return at::cat({p["q_proj." + what], p["k_proj." + what], p["v_proj." + what]});
  };
  theirs->in_proj_weight.copy_(joined("weight"));
  theirs->in_proj_bias.copy_(joined("bias"));
  theirs->out_proj->weight.copy_(p["out_proj.weight"]);
  theirs->out_proj->bias.copy_(p["out_proj.bias"]);
  const auto queries_BTD = at::randn({2, 3, 8}), source_BSD = at::randn({2, 5, 8});
  const auto wanted = [&](const at::Tensor& padding_BS) {
    const auto source = source_BSD.transpose(0, 1);
    return std::get<0>(theirs->forward(queries_BTD.transpose(0, 1), source, source, padding_BS, false))
        .transpose(0, 1);
  };
  const auto source = ours->project(source_BSD);
  CHECK(largest_difference(ours(queries_BTD, source, at::Tensor()), wanted({})) < 1e-5);
  const auto visible_BS = konkanivani::valid_places(ids({5, 2}), 5);
  CHECK(largest_difference(ours(queries_BTD, source, visible_BS.unsqueeze(1).unsqueeze(1)),
                           wanted(visible_BS.logical_not())) < 1e-5);
  const auto [own_queries, own_source] = ours->project_all(queries_BTD);
  CHECK(largest_difference(ours->attend(own_queries, own_source, {}),
                           ours(queries_BTD, ours->project(queries_BTD), at::Tensor())) < 1e-5);
}

TEST_CASE("Relative attention scores a key by its content and its distance") {
  torch::manual_seed(3);
  konkanivani::RelativeAttention attention(8, 2);
  const torch::NoGradGuard no_grad;
  auto p = attention->named_parameters();
  for (auto& item : p) item.value().normal_();
  const int64_t T = 5, visible = 4, d = 4;
  const auto x_TD = at::randn({T, 8});
  const auto table_PD = konkanivani::distance_table(T, 8, at::TensorOptions(at::kFloat));
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto q = linear(x_TD, "q_proj"), k = linear(x_TD, "k_proj"), v = linear(x_TD, "v_proj");
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < 2; ++h) {
    auto scores = at::empty({T, visible});
    for (int64_t i = 0; i < T; ++i) {
      for (int64_t j = 0; j < visible; ++j) {
        const auto part = [&](const at::Tensor& t) { return t.narrow(0, h * d, d); };
        const auto distance =
            at::matmul(p["pos_proj.weight"], konkanivani::sinusoids(at::tensor({i - j}), 8)[0]);
        scores[i][j] = (at::dot(part(q[i]) + p["content_bias"][h][0], part(k[j])) +
                        at::dot(part(q[i]) + p["distance_bias"][h][0], part(distance))) /
                       std::sqrt(static_cast<double>(d));
      }
    }
    heads.push_back(at::matmul(scores.softmax(1), v.narrow(0, 0, visible).narrow(1, h * d, d)));
  }
  const auto expected = linear(at::cat(heads, 1), "out_proj");
  const auto visible_B11T = konkanivani::valid_places(ids({visible}), T).unsqueeze(1).unsqueeze(1);
  CHECK(largest_difference(attention(x_TD.unsqueeze(0), visible_B11T, table_PD)[0], expected) < 1e-4);
}

TEST_CASE("Relative attention of one frame, and of frames that padding follows") {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  konkanivani::RelativeAttention attention(8, 2);
  const auto attend = [&](const at::Tensor& x_BTD, const std::vector<int64_t>& lengths) {
    const auto frames = x_BTD.size(1);
    return attention(x_BTD, konkanivani::valid_places(ids(lengths), frames).unsqueeze(1).unsqueeze(1),
                     konkanivani::distance_table(frames, 8, x_BTD.options()));
  };
  const auto x_BTD = at::randn({2, 6, 8});
  const auto both = attend(x_BTD, {1, 4});
  CHECK(largest_difference(both[0].narrow(0, 0, 1), attend(x_BTD.slice(0, 0, 1).slice(1, 0, 1), {1})[0]) <
        1e-5);
  CHECK(largest_difference(both[1].narrow(0, 0, 4), attend(x_BTD.slice(0, 1).slice(1, 0, 4), {4})[0]) < 1e-5);
}
