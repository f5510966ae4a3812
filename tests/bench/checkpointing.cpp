// SPDX-License-Identifier: MIT
// Measures recomputation: 12 pre-norm Transformer blocks whose training step runs plain, with all blocks
// recomputed, with every second, and with all but the results of attention. One thread, CPU, fp32.
//
//   checkpointing   reads names of modes from stdin, makes a step in each, and answers each with a JSON
//                   object; checkpointing.py, the peer, sends them and takes turns
#include <looptorch/memory/checkpoint.hpp>
#include <looptorch/memory/keep.hpp>

#include "support/counting_allocator.hpp"
#include "support/interleaved.hpp"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr std::int64_t kBatch = 8, kLength = 256, kWidth = 256, kHeads = 4, kBlocks = 12;

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return at::scaled_dot_product_attention(q, k, v);
}

/// Computes what PyTorch computes; the forward of torch::nn::Linear adds the bias in a separate pass.
at::Tensor linear(const torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("n1", n1), register_module("n2", n2), register_module("qkv", qkv);
    register_module("o", o), register_module("f1", f1), register_module("f2", f2);
    register_module("dropout", dropout);
  }

  at::Tensor forward(at::Tensor x_BTD) {
    const auto qkv_BHTC = linear(qkv, n1(x_BTD))
                              .view({kBatch, kLength, 3, kHeads, kWidth / kHeads})
                              .permute({2, 0, 3, 1, 4})
                              .unbind(0);
    const auto attended_BHTC = keep_attention ? lt::keep(attend, qkv_BHTC[0], qkv_BHTC[1], qkv_BHTC[2])
                                              : attend(qkv_BHTC[0], qkv_BHTC[1], qkv_BHTC[2]);
    x_BTD = x_BTD + dropout(linear(o, attended_BHTC.transpose(1, 2).reshape({kBatch, kLength, kWidth})));
    return x_BTD + dropout(linear(f2, at::gelu(linear(f1, n2(x_BTD)))));
  }

  torch::nn::LayerNorm n1{torch::nn::LayerNormOptions({kWidth})}, n2{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear qkv{kWidth, 3 * kWidth}, o{kWidth, kWidth}, f1{kWidth, 4 * kWidth},
      f2{4 * kWidth, kWidth};
  torch::nn::Dropout dropout{0.1};
  bool keep_attention = false;
};
TORCH_MODULE(Block);

class Model {
 public:
  /// Makes a step in `mode` and prints its time and memory.
  void step(const std::string& mode) {
    torch::manual_seed(1);
    for (Block& block : blocks_) block->keep_attention = mode == "selective";
    bench_forget_peak();
    const std::int64_t before = bench_live_bytes();
    const auto begin = bench::Clock::now();
    const at::Tensor loss = forward_.at(mode)().pow(2).mean();
    loss.backward();
    const double ms = bench::microseconds(bench::Clock::now() - begin) / 1000;
    const std::int64_t peak = bench_peak_bytes() - before;
    std::printf("{\"ms\": %.3f, \"bytes\": %lld, \"norm\": %.9g}\n", ms, static_cast<long long>(peak),
                take_gradients());
    std::fflush(stdout);
  }

 private:
  /// Clears the gradients and returns their norm.
  double take_gradients() {
    double squares = 0;
    for (Block& block : blocks_)
      for (at::Tensor& parameter : block->parameters()) {
        squares += parameter.grad().pow(2).sum().item<double>();
        parameter.mutable_grad().reset();
      }
    x_.mutable_grad().reset();
    return std::sqrt(squares);
  }

  at::Tensor plain() {
    at::Tensor x = x_;
    for (Block& block : blocks_) x = block(x);
    return x;
  }

  std::vector<Block> blocks_ = std::vector<Block>(kBlocks);
  at::Tensor x_ = torch::randn({kBatch, kLength, kWidth}).requires_grad_();
  std::map<std::string, std::function<at::Tensor()>> forward_{
      {"plain", [this] { return plain(); }},
      {"all", [this] { return lt::checkpoint_every<1>(blocks_, x_); }},
      {"every second", [this] { return lt::checkpoint_every<2>(blocks_, x_); }},
      {"selective", [this] { return lt::checkpoint_every<1>(blocks_, x_); }}};
};

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(0);
  Model model;
  for (std::string mode; std::getline(std::cin, mode);) model.step(mode);
}
