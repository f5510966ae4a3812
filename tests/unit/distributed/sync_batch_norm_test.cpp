// SPDX-License-Identifier: MIT
// Batch statistics over all ranks are those of one process on the whole batch. data_parallel_test starts the
// processes that run these cases.
//
// Tests distributed: sync_batch_norm, batch_statistics
// Tests ranks: in_lockstep
#include "support/precompiled.hpp"

#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

namespace lt = looptorch;

namespace sync_batch_norm_test {

struct Batch {
  at::Tensor pictures;  // [B, 3, 5, 5]
};

/// A model as users write it: modules of LibTorch, with and without weights and running statistics.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("convolution", convolution);
    register_module("pictures", pictures);
    register_module("instance", instance);
    register_module("hidden", hidden);
    register_module("features", features);
    register_module("bare", bare);
    register_module("last", last);
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor seen = torch::relu(pictures(instance(convolution(x))));
    return last(bare(torch::tanh(features(hidden(seen.mean({2, 3}))))));
  }
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(3, 6, 3)};
  torch::nn::InstanceNorm2d instance{torch::nn::InstanceNorm2dOptions(6).affine(true)};
  torch::nn::BatchNorm2d pictures{torch::nn::BatchNorm2dOptions(6).momentum(0.3)};
  torch::nn::Linear hidden{6, 7};
  torch::nn::BatchNorm1d features{torch::nn::BatchNorm1dOptions(7).momentum(std::nullopt)};
  torch::nn::BatchNorm1d bare{torch::nn::BatchNorm1dOptions(7).affine(false).track_running_stats(false)};
  torch::nn::Linear last{7, 2};
};
TORCH_MODULE(Net);

lt::Loss objective(Net& net, const Batch& batch) {
  return {.value = (net(batch.pictures) * batch.pictures.mean({1, 2, 3}).unsqueeze(1)).square().mean(),
          .weight = batch.pictures.size(0)};
}

Net net_of(std::uint64_t seed) {
  torch::manual_seed(seed);
  return Net();
}

double distance(Net& a, Net& b) {
  double largest = 0;
  const auto compare = [&](const std::vector<at::Tensor>& of_a, const std::vector<at::Tensor>& of_b) {
    for (std::size_t i = 0; i < of_a.size(); ++i)
      largest = std::max(largest, (of_a[i] - of_b[i]).abs().max().item<double>());
  };
  compare(a->parameters(), b->parameters());
  compare(a->buffers(), b->buffers());
  return largest;
}

TEST_CASE("rank: batch statistics of all", "[.ranks]") {
  if (!ranks::is_started()) return;
  torch::set_num_threads(1);
  const auto size = static_cast<std::size_t>(ranks::size()), rank = static_cast<std::size_t>(ranks::rank());
  struct Scenario {
    const char* name;
    std::size_t turns, window;
    std::vector<std::size_t> absent;  // turns in which the last rank has no batch
  };
  for (const Scenario& scenario : {Scenario{"even", 4, 1, {}}, Scenario{"accumulated", 6, 2, {}},
                                   Scenario{"a short window on one rank", 5, 2, {4}},
                                   Scenario{"fewer batches on one rank", 6, 1, {4, 5}}}) {
    CAPTURE(scenario.name, rank, size);
    torch::manual_seed(5);
    std::vector<Batch> all, mine;  // a micro-batch of all ranks, side by side
    for (std::size_t turn = 0; turn < scenario.turns; ++turn) {
      std::vector<at::Tensor> parts;
      for (std::size_t of = 0; of < size; ++of) {
        const auto samples = static_cast<std::int64_t>(2 + (turn + of) % 3);
        const at::Tensor part = torch::randn({samples, 3, 5, 5}, torch::kDouble) * (1.0 + of) + turn;
        if (of + 1 == size && std::ranges::count(scenario.absent, turn) > 0) continue;
        if (of == rank) mine.push_back({part});
        parts.push_back(part);
      }
      all.push_back({torch::cat(parts)});
    }
    const auto train = [&](Net& net, const std::vector<Batch>& batches, auto... policies) {
      // Biases in front of a norm have gradients of rounding alone, which Adam would blow up.
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
      lt::Trainer trainer(net, optimizer, objective,
                          lt::Accumulate<>{static_cast<std::int64_t>(scenario.window)}, lt::ClipGradNorm{0.5},
                          policies...);
      return trainer.fit(batches, {.epochs = 2});
    };
    Net one = net_of(0), net = net_of(rank);
    const auto expected = train(one, all);
    const auto result =
        train(net, mine, lt::DataParallel{.bucket_bytes = 200, .batch_norm = lt::BatchNormMode::sync});
    CHECK(result.steps == expected.steps);
    CHECK(result.loss == Approx(expected.loss).epsilon(1e-12));
    CHECK(distance(one, net) < 1e-12);
  }
  // Outside of the fit LibTorch's own layers run.
  Net alone = net_of(1);
  CHECK(alone(torch::randn({4, 3, 5, 5}, torch::kDouble)).defined());
}

TEST_CASE("rank: batch statistics of all with what does not fit", "[.ranks]") {
  if (!ranks::is_started()) return;
  Net net = net_of(0);
  torch::optim::SGD first(net->last->parameters(), 0.1), second(net->hidden->parameters(), 0.1);
  const std::vector<Batch> batches{{torch::randn({4, 3, 5, 5}, torch::kDouble)}};
  lt::Trainer trainer(net, lt::Update(first, objective), lt::Update(second, objective),
                      lt::DataParallel{.batch_norm = lt::BatchNormMode::sync});
  CHECK_THROWS_WITH(trainer.fit(batches), Catch::Contains("micro-batches of one update"));
}

TEST_CASE("rank: batch statistics of 16-bit input keep the gradients of fp32 parameters exact", "[.ranks]") {
  if (!ranks::is_started()) return;
  struct Features {
    at::Tensor x;  // [B, 1]
  };
  constexpr std::int64_t kSamples = 257;  // bf16 has 256 and 258
  torch::nn::BatchNorm1d norm(1);
  torch::optim::SGD optimizer(norm->parameters(), 1.0);
  const auto sum = [](torch::nn::BatchNorm1d& model, const Features& batch) -> lt::Loss {
    return {.value = model(batch.x.to(torch::kBFloat16)).to(torch::kFloat).sum(), .weight = 1};
  };
  lt::Trainer trainer(norm, optimizer, sum, lt::DataParallel{.batch_norm = lt::BatchNormMode::sync});
  torch::manual_seed(ranks::rank());
  trainer.fit(std::vector<Features>{{torch::randn({kSamples, 1})}});
  CHECK(norm->bias.item<double>() == -static_cast<double>(kSamples));
}

}  // namespace sync_batch_norm_test
