// SPDX-License-Identifier: MIT
// Measures what a listed Autopsy adds to a training step in which nothing is wrong: two Trainers of equal
// nets, with and without it, take turns in blocks of steps, in one thread. The nets end with the same bits.
//
//   autopsy [ROUNDS]    prints one JSON object a net
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/trainer.hpp>

#include "support/interleaved.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace lt = looptorch;

namespace {

struct Batch {
  at::Tensor x;  // [B, D], or [B, L, D]
};

torch::nn::Sequential mlp(std::int64_t width, int layers) {
  torch::nn::Sequential net;
  for (int i = 0; i < layers; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::ReLU());
  }
  net->push_back(torch::nn::Linear(width, 10));
  return net;
}

/// Blocks of a Transformer without attention's masks.
struct EncoderImpl : torch::nn::Module {
  EncoderImpl(std::int64_t width, int layers) {
    for (int i = 0; i < layers; ++i)
      blocks->push_back(torch::nn::TransformerEncoderLayer(
          torch::nn::TransformerEncoderLayerOptions(width, 4).dim_feedforward(4 * width).dropout(0.1)));
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<torch::nn::TransformerEncoderLayer>()->forward(x);
    return x;
  }
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Encoder);

template <class Net>
std::vector<at::Tensor> measure(const char* name, std::int64_t rounds, std::int64_t steps,
                                const at::Tensor& x, Net ours, Net peer) {
  const auto objective = [](Net& net, const Batch& batch) { return net->forward(batch.x).pow(2).mean(); };
  lt::FusedAdamW of_ours(ours->parameters(), {.lr = 1e-4}), of_peer(peer->parameters(), {.lr = 1e-4});
  lt::Trainer with(ours, of_ours, objective, lt::Autopsy{});
  lt::Trainer without(peer, of_peer, objective);
  const Batch batch{x};
  const auto block = [&](auto& trainer) {
    torch::manual_seed(1);
    const auto begin = bench::Clock::now();
    for (std::int64_t i = 0; i < steps; ++i) trainer.step(batch);
    return bench::microseconds(bench::Clock::now() - begin) / static_cast<double>(steps);
  };
  std::vector<bench::Times> times;
  for (std::int64_t round = -2; round < rounds; ++round) {
    const bool first = round % 2 == 0;
    bench::Times now{};
    if (first) now.ours = block(with);
    now.peer = block(without);
    if (!first) now.ours = block(with);
    if (round >= 0) times.push_back(now);
  }
  const bench::Times middle = bench::medians(times);
  std::printf(
      "{\"name\": \"%s\", \"value\": %.2f, \"unit\": \"us/step\", \"peer\": \"without\", \"peer_value\": %.2f}\n",
      name, middle.ours, middle.peer);
  std::fflush(stdout);
  for (std::size_t i = 0; i < ours->parameters().size(); ++i)
    if (!ours->parameters()[i].equal(peer->parameters()[i])) {
      std::fprintf(stderr, "%s: not the same training\n", name);
      std::exit(1);
    }
  return ours->parameters();
}

template <class Make>
auto twice(Make make) {
  torch::manual_seed(0);
  auto one = make();
  torch::manual_seed(0);
  return std::pair(one, make());
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::int64_t rounds = argc > 1 ? std::atoll(argv[1]) : 40;
  const auto small = twice([] { return mlp(64, 1); });
  measure("MLP 64-64-10, batches of 32", rounds, 500, torch::randn({32, 64}), small.first, small.second);
  const auto wide = twice([] { return mlp(512, 3); });
  measure("MLP of 4 layers of 512, batches of 128", rounds, 10, torch::randn({128, 512}), wide.first,
          wide.second);
  const auto encoder = twice([] { return Encoder(256, 4); });
  measure("4 Transformer blocks of 256, 8 x 100 tokens", rounds, 2, torch::randn({100, 8, 256}),
          encoder.first, encoder.second);
}
