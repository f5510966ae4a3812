// SPDX-License-Identifier: MIT
// Small models that the tests export.
#pragma once

#include <torch/torch.h>

#include <utility>
#include <vector>

namespace export_tests {

/// A module whose forward the test gives.
struct NetImpl : torch::nn::Module {
  NetImpl() : fc(register_module("fc", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x) { return fc(x); }
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

/// Reshapes by its batch, drops out, chunks, and holds a buffer and a constant.
struct MlpImpl : torch::nn::Module {
  MlpImpl()
      : fc1(register_module("fc1", torch::nn::Linear(4, 6))),
        drop(register_module("drop", torch::nn::Dropout(0.3))),
        fc2(register_module("fc2", torch::nn::Linear(6, 2))),
        scale(register_buffer("scale", torch::full({2}, 1.5))) {}
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = drop(torch::gelu(fc1(x))).view({x.size(0) * 2, 3}).view({x.size(0), 6});
    const auto halves = fc2(hidden).chunk(2, -1);
    return torch::cat({halves[0], halves[1]}, 1) * scale + torch::tensor({0.5F, 0.25F});
  }
  torch::nn::Linear fc1;
  torch::nn::Dropout drop;
  torch::nn::Linear fc2;
  at::Tensor scale;
};
TORCH_MODULE(Mlp);

/// Has layers whose names Python has as keywords.
struct KeywordsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(4, 6));
  torch::nn::Linear out = register_module("lambda", torch::nn::Linear(6, 2));
};
TORCH_MODULE(Keywords);

}  // namespace export_tests
