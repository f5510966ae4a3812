// SPDX-License-Identifier: MIT
// What the tests of the KonkaniVani example share: a tiny random model and clips of several lengths.
#pragma once

#include <looptorch/data/loader/intra_op.hpp>

#include <konkanivani/model/model.hpp>

#include <vector>

namespace konkanivani_test {

/// Two layers a side, width 16, 6 mel bins, no dropout; every run gets the same weights.
inline konkanivani::ModelConfig tiny_config(int64_t vocabulary = 9) {
  return {.vocabulary = vocabulary,
          .d_model = 16,
          .encoder_layers = 2,
          .decoder_layers = 2,
          .heads = 2,
          .feed_forward = 2,
          .kernel = 5,
          .mel_bins = 6,
          .dropout = 0};
}

inline konkanivani::KonkaniVani tiny_model(const konkanivani::ModelConfig& config = tiny_config()) {
  torch::manual_seed(7);
  return konkanivani::KonkaniVani(config);
}

inline at::Tensor ids(const std::vector<int64_t>& values) { return torch::tensor(values, at::kLong); }

/// BatchNorm has seen frames, so that its running statistics are not those of a fresh model.
inline konkanivani::KonkaniVani used_model(const konkanivani::ModelConfig& config = tiny_config()) {
  auto model = tiny_model(config);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) (void)model->encode(at::randn({4, 6, 40}), ids({40, 31, 22, 40}));
  model->eval();
  return model;
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace konkanivani_test
