// SPDX-License-Identifier: MIT
// What the tests of the KonkaniVani example share: a tiny random model and clips of several lengths.
#pragma once

#include <looptorch/data/intra_op.hpp>

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

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace konkanivani_test
