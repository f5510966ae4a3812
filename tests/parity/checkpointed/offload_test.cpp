// SPDX-License-Identifier: MIT
// Offload, off, and every K-th layer.
#include "parity/checkpointed/support/scenarios.hpp"

using namespace checkpointed;

TEMPLATE_TEST_CASE("offloaded blocks give the plain run's bits", "", float, double) {
  const lt::CheckpointOptions offload{.mode = lt::CheckpointMode::offload};
  check_same_bits(cpu<TestType>(), scenarios::batch_norm, offload);
  check_same_bits(cpu<TestType>(), scenarios::in_place, offload);
  check_same_bits(cpu<TestType>(), scenarios::views, offload);
  check_same_bits(cpu<TestType>(), scenarios::nested, offload);
  check_same_bits(cpu<TestType>(), scenarios::shared_parameters, offload);
  check_same_bits(cpu<TestType>(), scenarios::frozen, offload);
  check_same_bits(cpu<TestType>(), scenarios::autocast<false>(at::kBFloat16), offload);
}

TEST_CASE("an offloaded block runs once") {
  const FeedForward block;
  lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, input(cpu<float>())).sum().backward();
  CHECK(block->runs == 1);
}

TEST_CASE("what an offloaded block saved on a CPU may not be changed in place") {
  const at::Tensor x = input(cpu<float>()), h = x * 1;
  const at::Tensor y = lt::checkpoint(
      {.mode = lt::CheckpointMode::offload}, [](const at::Tensor& h) { return h.sin(); }, h);
  h.add_(1);
  CHECK_THROWS_AS(y.sum().backward(), lt::CheckpointError);
}

TEST_CASE("off: LibTorch saves as it always does") {
  const at::Tensor x = input(cpu<float>());
  lt::detail::SavedTensorKeeper* within = nullptr;
  int runs = 0;
  const auto block = [&](const at::Tensor& x) {
    ++runs;
    within = lt::detail::current_keeper;
    return x.exp();
  };
  lt::checkpoint({.mode = lt::CheckpointMode::off}, block, x).sum().backward();
  CHECK(within == nullptr);
  CHECK(runs == 1);
  lt::checkpoint(block, x);
  CHECK(within != nullptr);
}

TEST_CASE("every K-th layer of a list") {
  const auto runs = [](auto every) {
    torch::manual_seed(0);
    std::vector<FeedForward> blocks(5);
    const at::Tensor x = input(cpu<float>());
    const at::Tensor y = every(blocks, x);
    y.sum().backward();
    std::vector<int> counts;
    for (const auto& block : blocks) counts.push_back(block->runs);
    return std::make_pair(counts, append(gradients(blocks[0]), {y, x.grad()}));
  };
  const auto plain = runs([](auto& blocks, at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  });
  const auto one = runs([](auto& blocks, const at::Tensor& x) { return lt::checkpoint_every<1>(blocks, x); });
  const auto two = runs([](auto& blocks, const at::Tensor& x) { return lt::checkpoint_every<2>(blocks, x); });
  const auto ten =
      runs([](auto& blocks, const at::Tensor& x) { return lt::checkpoint_every<10>(blocks, x); });
  const auto off = runs([](auto& blocks, const at::Tensor& x) {
    return lt::checkpoint_every<1>(blocks, x, {.mode = lt::CheckpointMode::off});
  });
  CHECK(one.first == std::vector<int>{2, 2, 2, 2, 2});
  CHECK(two.first == std::vector<int>{2, 1, 2, 1, 2});
  CHECK(ten.first == std::vector<int>{2, 1, 1, 1, 1});
  CHECK(off.first == std::vector<int>{1, 1, 1, 1, 1});
  for (const auto& run : {one, two, ten, off}) check_same(plain.second, run.second);
}
