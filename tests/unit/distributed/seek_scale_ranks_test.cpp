// SPDX-License-Identifier: MIT
// Ranks search for a first loss scale together: one that overflows alone makes all do the window again, and
// the run has the bits of one that was given the scale. The processes that this file starts run its hidden
// cases, whose names begin with "seeks: ".
//
// Tests redo: seek_scale
// Tests ranks: several_ranks
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/distributed/shard_optimizer.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace lt = looptorch;
using Half = lt::Autocast<lt::fp16>;

namespace seek_scale_ranks_test {

bool normed = true;  // has batch statistics

struct NetImpl : torch::nn::Module {
  NetImpl() {
    if (normed) register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = normed ? norm(first(x)) : first(x);
    return second(torch::dropout(hidden, 0.25, is_training()));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 8));
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Net);

/// Rank 1 alone has batches whose gradients overflow at 65536, and fewer of them.
std::vector<at::Tensor> batches() {
  torch::manual_seed(static_cast<std::uint64_t>(3 + ranks::rank()));
  std::vector<at::Tensor> result;
  for (int i = 0; i < (ranks::rank() == 1 ? 5 : 8); ++i)
    result.push_back(torch::randn({4, 4}) * (ranks::rank() == 1 ? 30 : 0.01));
  return result;
}

struct Trained {
  std::vector<at::Tensor> tensors;
  double scale = 0;
  std::int64_t calls = 0, skipped = 0;
};

template <class... Policies>
Trained train(double scale, std::int64_t steps, Policies... policies) {
  torch::manual_seed(0);
  Net net;
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-3});
  Trained trained;
  const auto objective = [&](Net& net, const at::Tensor& x) {
    ++trained.calls;
    return lt::Loss{.value = net(x).to(at::kFloat).square().mean() * 100, .weight = x.size(0)};
  };
  lt::Trainer trainer(net, optimizer, objective, Half{.initial_scale = scale}, lt::Accumulate<2>{},
                      policies...);
  torch::manual_seed(9);
  const auto result = trainer.fit(batches(), {.epochs = 2, .max_steps = steps});
  trained.skipped = result.skipped;
  for (const at::Tensor& parameter : net->parameters()) trained.tensors.push_back(parameter.detach().clone());
  for (const at::Tensor& buffer : net->buffers()) trained.tensors.push_back(buffer.clone());
  trained.scale = trainer.template policy<Half>().scale.template item<double>();
  return trained;
}

template <class... Policies>
void check(Policies... policies) {
  const Trained first = train(65536, 1, policies...);
  CHECK(first.skipped == 0);
  const double found = first.scale;
  CHECK(found < 65536);
  const Trained searching = train(65536, 100, policies...), given = train(found, 100, policies...);
  CHECK(searching.calls > given.calls);
  CHECK(searching.skipped == given.skipped);
  CHECK(searching.scale == given.scale);
  for (std::size_t i = 0; i < given.tensors.size(); ++i) CHECK(searching.tensors[i].equal(given.tensors[i]));
}

TEST_CASE("seeks: sums of ranks", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  normed = true;
  check(lt::DataParallel{.batch_norm = lt::BatchNormMode::per_rank});
  check(lt::DataParallel{.overlap = false, .batch_norm = lt::BatchNormMode::per_rank}, lt::ShardOptimizer{});
}

TEST_CASE("seeks: sums of shards", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  normed = false;
  check(lt::DataParallel{.reproducible = true, .chunks = 4});
}

TEST_CASE("seeks: a rank without a batch", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  normed = false;
  const auto overflowing = [] { return ranks::rank() == 1 ? std::vector<at::Tensor>() : batches(); };
  const auto train = [&](double scale) {
    torch::manual_seed(0);
    Net net;
    lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-3});
    const auto objective = [](Net& net, const at::Tensor& x) {
      return net(x * 3000).to(at::kFloat).square().mean() * 100;
    };
    lt::Trainer trainer(net, optimizer, objective, Half{.initial_scale = scale}, lt::Accumulate<2>{},
                        lt::DataParallel{.reproducible = true, .chunks = 4});
    trainer.fit(overflowing(), {.max_steps = 3});
    return std::pair(net->first->weight.detach().clone(), trainer.policy<Half>().scale.item<double>());
  };
  const auto [searched, found] = train(65536);
  CHECK(found < 65536);
  CHECK(searched.equal(train(found).first));
}

TEST_CASE("seeks: batch statistics of all ranks", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  normed = true;
  check(lt::DataParallel{.batch_norm = lt::BatchNormMode::sync});
}

TEST_CASE("ranks search for a first loss scale together, to the bits of a run that was given it") {
  for (const std::string name :
       {"sums of ranks", "sums of shards", "a rank without a batch", "batch statistics of all ranks"}) {
    looptorch::testing::TemporaryFolder folder;
    for (const ranks::Outcome& rank : ranks::run_ranks(2, "seeks: " + name, folder.path())) {
      INFO(name << "\n" << rank.output);
      CHECK(rank.passed());
    }
  }
}

}  // namespace seek_scale_ranks_test
